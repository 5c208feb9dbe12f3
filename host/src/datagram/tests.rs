//! The link against the suite of all links, and what it has beyond them: a lifeline and a keeper.

use super::{Keeper, UdpLink};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use unisono_core::wire::frame::{Body, Data, Fingerprint, Header, Phase};
use unisono_core::{DType, Form, Kind, Scalar};
use unisono_driver::{HostPtr, Link, LinkError, Outgoing};
use unisono_rendezvous::Datagrams;
use unisono_testkit::link::{LinkHarness, link_suite};

/// A hang guard.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the rendezvous makes for a pair.
fn ends(ip: IpAddr) -> [Datagrams; 2] {
    let listener = TcpListener::bind((ip, 0)).expect("a port");
    let one = TcpStream::connect(listener.local_addr().expect("bound")).expect("a listener");
    let lifelines = [one, listener.accept().expect("somebody has come").0];
    let sockets = [(); 2].map(|()| UdpSocket::bind((ip, 0)).expect("a port"));
    let addresses = [1, 0].map(|i: usize| sockets[i].local_addr().expect("bound"));
    let mut all = lifelines.into_iter().zip(sockets).zip(addresses);
    [(); 2].map(|()| {
        let ((lifeline, socket), peer) = all.next().expect("two ends");
        socket.connect(peer).expect("an address of this machine");
        // Numbers wrap soon.
        Datagrams { socket, lifeline, session: u32::MAX, first: u32::MAX - 5 }
    })
}

/// Links with or without somebody who looks after them.
fn pair(ip: IpAddr, kept: bool) -> (UdpLink, UdpLink) {
    let mut keeper = Keeper::default();
    let [low, high] = ends(ip);
    let low = UdpLink::new(low, true, 4, &mut keeper).expect("sockets that work");
    let high = UdpLink::new(high, false, 4, &mut keeper).expect("sockets that work");
    if kept {
        keeper.start().expect("a thread");
    }
    (low, high)
}

struct Sockets(IpAddr, bool);

impl LinkHarness for Sockets {
    type Link = UdpLink;

    fn pair(&mut self) -> (UdpLink, UdpLink) {
        // The suite has its own view of an end: it drops one and goes on with the other.
        pair(self.0, self.1)
    }

    fn turn(&mut self, ends: &mut [&mut UdpLink]) {
        for end in ends {
            end.shared().watch();
            end.poll();
        }
    }
}

#[test]
fn passes_the_suite_of_all_links() {
    link_suite(&mut Sockets(Ipv4Addr::LOCALHOST.into(), false));
}

#[test]
fn passes_over_ipv6_with_a_keeper_beside_it() {
    link_suite(&mut Sockets(Ipv6Addr::LOCALHOST.into(), true));
}

fn data(bytes: usize) -> Header {
    let (kind, dtype, op) = (Kind::AllReduce, DType::U8, None);
    let print = Fingerprint { kind, dtype, op, root: 0, count: bytes as u64, plan: 4 };
    let (phase, form, weight) = (Phase::Contribution, Form::Leaf, Scalar(0));
    let body = Body::Data(Data { chunk: 0, phase, form, weight, limit: 1, bytes: bytes as u32 });
    Header { epoch: 0, op: 0, from: 0, print, body }
}

fn until<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// More than fits the packets under way, so that the sender has to be answered to get rid of it.
const BYTES: usize = 1 << 20;

#[test]
fn a_sender_that_computes_is_answered_for_and_a_receiver_gets_everything() {
    let (mut a, mut b) = pair(Ipv4Addr::LOCALHOST.into(), true);
    let payload: Vec<u8> = (0..BYTES).map(|i| (i * 7 % 251) as u8).collect();
    let mem = HostPtr::new(payload.as_ptr().cast_mut());
    let sent = Outgoing::At { mem, bytes: BYTES, window: None };
    // SAFETY: the payload outlives the links.
    unsafe { a.send(1, &data(BYTES), sent, 9) }.expect("the link is open");
    // Nobody polls `a` from here on.
    let mut got = vec![0; BYTES];
    let into = HostPtr::new(got.as_mut_ptr());
    until("a frame", || {
        b.poll();
        b.poll_frame(1).expect("the link is open")
    });
    until("its payload", || {
        b.poll();
        // SAFETY: as long as the payload.
        unsafe { b.receive(1, Some(into)) }.expect("the link is open").then_some(())
    });
    assert!(got == payload);
    assert_eq!(a.poll_sent(1), Some(9));
}

#[test]
fn an_end_comes_after_everything_that_was_sent_before_it() {
    let (mut a, mut b) = pair(Ipv4Addr::LOCALHOST.into(), true);
    let payload = vec![5; 50_000];
    let mem = HostPtr::new(payload.as_ptr().cast_mut());
    let sent = Outgoing::At { mem, bytes: payload.len(), window: None };
    // SAFETY: the payload outlives the links.
    unsafe { a.send(0, &data(payload.len()), sent, 9) }.expect("the link is open");
    until("room", || {
        a.poll();
        a.poll_sent(0)
    });
    // `b` is not polled while this end waits for it: its keeper answers.
    drop(a);
    b.poll_frame(0).expect("the frame comes before the end").expect("all of it is here");
    let mut got = vec![0; payload.len()];
    // SAFETY: as long as the payload.
    let whole = unsafe { b.receive(0, Some(HostPtr::new(got.as_mut_ptr()))) };
    assert_eq!((whole, got), (Ok(true), payload));
    let error = until("the end", || {
        b.poll();
        b.poll_frame(0).err()
    });
    assert_eq!(error, LinkError::Closed);
}

#[test]
fn a_process_that_dies_frees_what_was_sent_to_it() {
    let [low, high] = ends(Ipv4Addr::LOCALHOST.into());
    let mut keeper = Keeper::default();
    let mut a = UdpLink::new(low, true, 2, &mut keeper).expect("sockets that work");
    keeper.start().expect("a thread");
    let payload = vec![5; BYTES];
    let mem = HostPtr::new(payload.as_ptr().cast_mut());
    let sent = Outgoing::At { mem, bytes: BYTES, window: None };
    // SAFETY: the payload outlives the links.
    unsafe { a.send(0, &data(BYTES), sent, 9) }.expect("the link is open");
    for _ in 0..100 {
        a.poll();
        assert_eq!(a.poll_sent(0), None, "nobody has answered");
    }
    // What the system does for a process that ends.
    high.lifeline.shutdown(Shutdown::Both).expect("it is connected");
    drop(high);
    let token = until("its memory", || {
        a.poll();
        a.poll_sent(0)
    });
    assert_eq!((token, a.poll_frame(0).err()), (9, Some(LinkError::Closed)));
}

#[test]
fn what_strangers_send_is_not_heard() {
    let [low, high] = ends(Ipv4Addr::LOCALHOST.into());
    // The right address, as if forged, and the right format, but another session.
    let other = Datagrams {
        socket: high.socket.try_clone().expect("a descriptor"),
        lifeline: high.lifeline.try_clone().expect("a descriptor"),
        session: 7,
        ..high
    };
    let mut keeper = Keeper::default();
    let mut a = UdpLink::new(low, true, 2, &mut keeper).expect("sockets that work");
    let mut b = UdpLink::new(high, false, 2, &mut keeper).expect("sockets that work");
    let mut stranger = UdpLink::new(other, false, 2, &mut keeper).expect("sockets that work");
    // SAFETY: it has no payload.
    unsafe { stranger.send(0, &credit(77), Outgoing::None, 0) }.expect("the link is open");
    // SAFETY: as above.
    unsafe { b.send(0, &credit(5), Outgoing::None, 0) }.expect("the link is open");
    let frame = until("a frame", || {
        a.poll();
        a.poll_frame(0).expect("the link is open")
    });
    assert_eq!(frame.header, credit(5));
    assert!(a.shared().foreign() > 0, "the stranger's has come, too");
}

fn credit(limit: u64) -> Header {
    Header { body: Body::Credit { limit }, ..data(0) }
}
