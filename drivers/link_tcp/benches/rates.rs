//! What a link costs over the sockets that it stands on.
//!
//! ```text
//! cargo bench -p unisono-link-tcp
//! ```
//!
//! Two threads, through this host: the round trip of 8 bytes, and 64 MiB in frames of one size. The
//! same bytes go through bare sockets in the same way (one `sendmsg` with a header of the same
//! length, reads straight into place, spinning). Both take turns, so that a change of the machine's
//! speed meets both; medians count, and their ratio is what does not depend on the machine.

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::{IoSlice, Read};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;
use unisono_core::wire::frame::{Body, Data, Fingerprint, HEADER_MAX, Header, Phase, encode_head};
use unisono_core::{DType, Form, Kind, ReduceOp, Scalar};
use unisono_driver::{HostPtr, Link, Outgoing};
use unisono_link_tcp::{End, Options, TcpLink};

const TURNS: usize = 15;
const TRIPS: usize = 5_000;
const TOTAL: usize = 64 << 20;

/// Sends and receives messages of one length, one way or the other.
trait Port {
    fn send(&mut self, bytes: &[u8]);
    fn receive(&mut self, into: &mut [u8]);
}

fn header(bytes: usize) -> Header {
    let (kind, dtype) = (Kind::AllReduce, DType::F32);
    let print = Fingerprint {
        kind,
        dtype,
        op: Some(ReduceOp::Sum),
        root: 0,
        count: 1 << 24,
        plan: u64::MAX / 3,
    };
    let data = Data {
        chunk: 300,
        phase: Phase::Contribution,
        form: Form::Leaf,
        weight: Scalar::one(DType::F32),
        limit: 400,
        bytes: bytes as u32,
    };
    Header { epoch: 1, op: 1000, from: 0, print, body: Body::Data(data) }
}

impl Port for TcpLink<HostPtr> {
    fn send(&mut self, bytes: &[u8]) {
        while !self.has_room(0) {
            self.poll();
        }
        let mem = HostPtr::new(bytes.as_ptr().cast_mut());
        let at = Outgoing::At { mem, bytes: bytes.len(), window: None };
        // SAFETY: waited for below.
        unsafe { Link::send(self, 0, &header(bytes.len()), at, 0) }.expect("open");
        while self.poll_sent(0).is_none() {
            self.poll();
        }
    }

    fn receive(&mut self, into: &mut [u8]) {
        loop {
            self.poll();
            if self.poll_frame(0).expect("open").is_some() {
                let into = HostPtr::new(into.as_mut_ptr());
                // SAFETY: as long as the payload.
                if unsafe { Link::receive(self, 0, Some(into)) }.expect("open") {
                    return;
                }
            }
        }
    }
}

/// A socket without anything around it.
struct Bare {
    stream: TcpStream,
    head: Vec<u8>,
}

impl Bare {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a stream");
        stream.set_nonblocking(true).expect("a stream");
        let mut head = vec![0; HEADER_MAX];
        let len = encode_head(&header(8), &mut head).expect("it fits");
        head.truncate(len);
        Self { stream, head }
    }

    fn read(&mut self, mut place: &mut [u8]) {
        while !place.is_empty() {
            if let Ok(len) = self.stream.read(place) {
                place = &mut place[len..];
            }
        }
    }
}

impl Port for Bare {
    fn send(&mut self, bytes: &[u8]) {
        let mut done = 0;
        while done < self.head.len() + bytes.len() {
            let head = &self.head[done.min(self.head.len())..];
            let rest = &bytes[done.saturating_sub(self.head.len())..];
            let pieces = [IoSlice::new(head), IoSlice::new(rest)];
            let flags = SendFlags::NOSIGNAL;
            let sent = sendmsg(&self.stream, &pieces, &mut SendAncillaryBuffer::default(), flags);
            done += sent.unwrap_or(0);
        }
    }

    fn receive(&mut self, into: &mut [u8]) {
        let head = self.head.len();
        if into.len() <= 4096 {
            // Together, as anybody would.
            let mut both = [0; HEADER_MAX + 4096];
            self.read(&mut both[..head + into.len()]);
            into.copy_from_slice(&both[head..head + into.len()]);
        } else {
            let mut header = [0; HEADER_MAX];
            self.read(&mut header[..head]);
            self.read(into);
        }
    }
}

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    (near, listener.accept().expect("connected").0)
}

/// Microseconds of a round trip of 8 bytes.
fn trip(mut near: impl Port, mut far: impl Port + Send + 'static) -> f64 {
    let echo = thread::spawn(move || {
        let mut bytes = [0; 8];
        for _ in 0..TRIPS {
            far.receive(&mut bytes);
            far.send(&bytes);
        }
    });
    let mut bytes = [1; 8];
    let start = Instant::now();
    for _ in 0..TRIPS {
        near.send(&bytes);
        near.receive(&mut bytes);
    }
    let time = start.elapsed().as_secs_f64() * 1e6 / TRIPS as f64;
    echo.join().expect("an echo");
    time
}

/// GB/s of [`TOTAL`] bytes in frames of so many.
fn rate(mut near: impl Port, mut far: impl Port + Send + 'static, frame: usize) -> f64 {
    let mut to = vec![0; TOTAL];
    let from = vec![1; TOTAL];
    let sink = thread::spawn(move || {
        to.chunks_mut(frame).for_each(|place| far.receive(place));
        far.send(&[1; 8]);
        assert!(to.iter().step_by(4096).all(|byte| *byte == 1));
    });
    let start = Instant::now();
    from.chunks(frame).for_each(|bytes| near.send(bytes));
    near.receive(&mut [0; 8]);
    let time = start.elapsed().as_secs_f64();
    sink.join().expect("a sink");
    TOTAL as f64 / time / 1e9
}

fn median(list: &mut [f64]) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

/// Measures both in turns; prints medians and their ratio.
fn compare(what: &str, mut link: impl FnMut() -> f64, mut bare: impl FnMut() -> f64) {
    let (mut links, mut bares): (Vec<_>, Vec<_>) = (0..TURNS).map(|_| (link(), bare())).unzip();
    let (link, bare) = (median(&mut links), median(&mut bares));
    println!("{what:<28} link {link:8.2}   bare {bare:8.2}   link/bare {:.2}", link / bare);
}

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let links = || {
        let (near, far) = streams();
        let new =
            |stream, end| TcpLink::new(vec![stream], end, Options::default()).expect("connected");
        (new(near, End::First), new(far, End::Second))
    };
    let bares = || {
        let (near, far) = streams();
        (Bare::new(near), Bare::new(far))
    };
    let trips = |ports: (TcpLink<HostPtr>, TcpLink<HostPtr>)| trip(ports.0, ports.1);
    compare(
        "8 B, round trip, us",
        || trips(links()),
        || {
            let (near, far) = bares();
            trip(near, far)
        },
    );
    for frame in [4 << 10, 64 << 10, 256 << 10, 1 << 20] {
        let what = format!("64 MiB by {} KiB, GB/s", frame >> 10);
        compare(
            &what,
            || {
                let (near, far) = links();
                rate(near, far, frame)
            },
            || {
                let (near, far) = bares();
                rate(near, far, frame)
            },
        );
    }
}
