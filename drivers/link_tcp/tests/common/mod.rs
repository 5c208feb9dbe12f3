//! Connected streams and links for tests.

// Every test file is a program of its own and uses a part of this.
#![allow(dead_code)]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::Duration;
use unisono_core::wire::frame::{Body, Data, Fingerprint, HEADER_MAX, Header, Phase, encode_head};
use unisono_core::{DType, Form, Kind, Scalar};
use unisono_driver::HostPtr;
use unisono_link_tcp::{End, Options, TcpLink};

/// A hang guard, not a time limit.
pub const GUARD: Duration = Duration::from_secs(60);

/// How much the system holds on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// As it likes.
    System,
    /// To send, as little as it lets itself be told; to receive, enough to need no timers.
    Tiny,
}

/// The two ends of a connection through this host.
pub fn streams(address: IpAddr, buffers: Buffers) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((address, 0)).expect("a free port");
    if buffers == Buffers::Tiny {
        sockopt::set_socket_recv_buffer_size(&listener, 32 << 10).expect("a buffer");
    }
    let a = TcpStream::connect(listener.local_addr().expect("bound")).expect("somebody listens");
    let (b, _) = listener.accept().expect("somebody has connected");
    if buffers == Buffers::Tiny {
        for stream in [&a, &b] {
            sockopt::set_socket_recv_buffer_size(stream, 32 << 10).expect("a buffer");
            sockopt::set_socket_send_buffer_size(stream, 1).expect("a buffer");
        }
    }
    (a, b)
}

/// Both ends of a link.
pub fn pair(
    address: IpAddr,
    channels: usize,
    buffers: Buffers,
) -> (TcpLink<HostPtr>, TcpLink<HostPtr>) {
    let (a, b) = (0..channels).map(|_| streams(address, buffers)).unzip();
    (link(a, End::First), link(b, End::Second))
}

/// Sleeps until a link can go on; false if none could for so long.
pub fn sleep_on(ends: &[&TcpLink<HostPtr>], most: Duration) -> bool {
    let waits = ends.iter().flat_map(|end| end.waits());
    let mut fds: Vec<_> = waits
        .map(|wait| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, wait.readable);
            flags.set(PollFlags::OUT, wait.writable);
            PollFd::from_borrowed_fd(wait.fd, flags)
        })
        .collect();
    let most = Timespec::try_from(most).expect("short");
    poll(&mut fds, Some(&most)).expect("descriptors") > 0
}

/// A link with the usual options.
pub fn link(streams: Vec<TcpStream>, end: End) -> TcpLink<HostPtr> {
    TcpLink::new(streams, end, Options::default()).expect("connected")
}

fn header(op: u64, body: Body) -> Header {
    let (kind, dtype) = (Kind::AllReduce, DType::U8);
    let print = Fingerprint { kind, dtype, op: None, root: 0, count: 9, plan: 4 };
    Header { epoch: 3, op, from: 0, print, body }
}

/// A frame without payload.
pub fn control(n: u64) -> Header {
    header(n, Body::Credit { limit: n })
}

/// A frame with payload.
pub fn data(n: u64, bytes: usize) -> Header {
    let data = Data {
        chunk: n,
        phase: Phase::Contribution,
        form: Form::Leaf,
        weight: Scalar(n),
        limit: n,
        bytes: bytes as u32,
    };
    header(n, Body::Data(data))
}

/// A header as it lies in a stream.
pub fn encoded(header: &Header) -> Vec<u8> {
    let mut out = vec![0; HEADER_MAX];
    let len = encode_head(header, &mut out).expect("it fits");
    out.truncate(len);
    out
}

/// Bytes that can be told apart.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i.wrapping_mul(31) ^ i >> 8 ^ seed.wrapping_mul(97)) as u8).collect()
}
