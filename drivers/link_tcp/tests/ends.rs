//! How links end, and payloads that are taken back.

mod common;

use common::{Buffers, GUARD, control, data, encoded, link, pair, pattern, sleep_on, streams};
use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use unisono_driver::{Arrived, HostPtr, Link, LinkError, Outgoing};
use unisono_link_tcp::{End, Options, TcpError, TcpLink};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// More than the system holds on the way.
const LARGE: usize = 64 << 20;

fn at(bytes: &[u8]) -> Outgoing<HostPtr> {
    let mem = HostPtr::new(bytes.as_ptr().cast_mut());
    Outgoing::At { mem, bytes: bytes.len(), window: None }
}

fn send(link: &mut TcpLink<HostPtr>, channel: usize, n: u64, bytes: &[u8]) {
    assert!(link.has_room(channel));
    // SAFETY: tests keep what they send until its completion or withdrawal.
    unsafe { link.send(channel, &data(n, bytes.len()), at(bytes), n as u32) }.expect("open");
}

fn tell(link: &mut TcpLink<HostPtr>, channel: usize, n: u64) {
    assert!(link.has_room(channel));
    // SAFETY: no payload.
    unsafe { link.send(channel, &control(n), Outgoing::None, 0) }.expect("open");
}

/// Asks again, in rounds, until there is an answer.
fn wait<T>(
    links: &mut [&mut TcpLink<HostPtr>],
    mut ask: impl FnMut(&mut [&mut TcpLink<HostPtr>]) -> Option<T>,
) -> T {
    let since = Instant::now();
    loop {
        links.iter_mut().for_each(|link| link.poll());
        if let Some(answer) = ask(links) {
            return answer;
        }
        assert!(since.elapsed() < GUARD, "it never came");
    }
}

fn receive(link: &mut TcpLink<HostPtr>, into: &mut [u8]) -> Result<bool, LinkError> {
    let into = HostPtr::new(into.as_mut_ptr());
    // SAFETY: the tests' places are as long as the payloads.
    unsafe { link.receive(0, Some(into)) }
}

#[test]
fn a_payload_taken_back_in_the_middle_leaves_the_stream_in_frame() {
    let (mut a, mut b) = pair(LOCALHOST, 2, Buffers::System);
    let mut tensor = vec![1u8; LARGE];
    let mut place = vec![0u8; LARGE];
    for round in 0..3 {
        tensor.fill(1);
        send(&mut a, 0, round, &tensor);
        // Two that have not begun, one of them small enough to be complete already.
        send(&mut a, 0, 100, &tensor[..1000]);
        send(&mut a, 0, 101, &tensor[..8]);
        assert_eq!(a.poll_sent(0), Some(101));
        if round > 0 {
            // Not at its first bytes.
            wait(&mut [&mut a, &mut b], |links| {
                links[1].poll_frame(0).expect("open")?;
                assert!(!receive(links[1], &mut place).expect("open"), "some is on its way");
                place[if round == 1 { 20_000 } else { 9 << 20 }].eq(&1).then_some(())
            });
        }
        assert!(a.withdraw(0));
        tensor.fill(2);
        assert_eq!(a.poll_sent(0), None, "no completion after a withdrawal");
        tell(&mut a, 0, 9);
        let mut headers = Vec::new();
        wait(&mut [&mut a, &mut b], |links| {
            let frame = links[1].poll_frame(0).expect("open")?;
            if headers.last() != Some(&frame.header) {
                headers.push(frame.header);
            }
            if matches!(frame.payload, Arrived::Stream) {
                let whole = receive(links[1], &mut place).expect("in frame");
                assert!(!whole || frame.header == data(101, 8), "withdrawn");
                return None;
            }
            links[1].take(0);
            (frame.header == control(9)).then_some(())
        });
        assert_eq!(headers, [data(round, LARGE), data(101, 8), control(9)]);
        assert!(place.iter().all(|b| *b < 2), "memory was read after it was given back");
        place.fill(0);
    }
}

#[test]
fn a_large_payload_that_nobody_receives_holds_up_its_own_channel_only() {
    let (mut a, mut b) = pair(LOCALHOST, 2, Buffers::System);
    let large = pattern(1, LARGE);
    send(&mut a, 0, 1, &large);
    tell(&mut a, 0, 2);
    for n in 0..1000 {
        tell(&mut a, 1, n);
        let frame = wait(&mut [&mut a, &mut b], |links| links[1].poll_frame(1).expect("open"));
        assert_eq!(frame.header, control(n));
        b.take(1);
    }
    assert_eq!(a.poll_sent(0), None, "it is still on its way");
    let mut place = vec![0; LARGE];
    wait(&mut [&mut a, &mut b], |links| {
        links[1].poll_frame(0).expect("open")?;
        receive(links[1], &mut place).expect("open").then_some(())
    });
    assert!(place == large);
    assert_eq!(a.poll_sent(0), Some(1));
}

#[test]
fn the_end_of_a_link_takes_along_what_was_sent_before() {
    let (near, far) = streams(LOCALHOST, Buffers::System);
    // So that most of the payload is still on this side when the link ends.
    sockopt::set_socket_send_buffer_size(&near, 1 << 20).expect("a buffer");
    sockopt::set_socket_recv_buffer_size(&far, 4 << 10).expect("a buffer");
    let options = Options { linger: GUARD, ..Options::default() };
    let mut a = TcpLink::new(vec![near], End::First, options).expect("connected");
    let mut b = link(vec![far], End::Second);
    // What A has not read makes the system reset the connection when A is gone.
    tell(&mut b, 0, 1);
    let payload = pattern(3, 150_000);
    send(&mut a, 0, 5, &payload);
    wait(&mut [&mut a], |links| links[0].poll_sent(0));
    let place = thread::spawn(move || {
        // A must not end when everything has arrived already; if it does, this proves less.
        thread::sleep(Duration::from_millis(50));
        let mut place = vec![0; 150_000];
        wait(&mut [&mut b], |links| {
            links[0].poll_frame(0).expect("not before everything is read")?;
            receive(links[0], &mut place).expect("all of it").then_some(())
        });
        let error = wait(&mut [&mut b], |links| links[0].poll_frame(0).err());
        assert_eq!(error, LinkError::Closed);
        place
    });
    drop(a);
    assert!(place.join().expect("it has got everything") == payload);
}

#[test]
fn a_peer_that_takes_nothing_does_not_hold_up_the_end_for_ever() {
    let (near, far) = streams(LOCALHOST, Buffers::System);
    let options = Options { linger: Duration::from_millis(50), ..Options::default() };
    let mut link = TcpLink::new(vec![near], End::First, options).expect("connected");
    let large = vec![0; LARGE];
    send(&mut link, 0, 1, &large);
    let since = Instant::now();
    drop(link);
    assert!(since.elapsed() >= Duration::from_millis(50), "it has waited");
    drop(far);
}

#[test]
fn the_end_does_not_wait_for_a_peer_that_is_gone() {
    let options = Options { linger: 10 * GUARD, ..Options::default() };
    for peer_reads in [false, true] {
        let (near, mut far) = streams(LOCALHOST, Buffers::System);
        let mut link = TcpLink::new(vec![near], End::First, options).expect("connected");
        let large = vec![0; LARGE];
        send(&mut link, 0, 1, &large);
        if peer_reads {
            far.read_exact(&mut [0; 4096]).expect("some of it");
        }
        let end = thread::spawn(move || drop(link));
        drop(far);
        let since = Instant::now();
        while !end.is_finished() {
            assert!(since.elapsed() < GUARD, "it waits for nobody");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn half_a_connection_is_none() {
    let (mut near, far) = streams(LOCALHOST, Buffers::System);
    let mut far = link(vec![far], End::Second);
    near.write_all(&encoded(&control(1))).expect("open");
    near.write_all(&encoded(&data(2, 900))[..10]).expect("open");
    near.shutdown(Shutdown::Write).expect("open");
    let frame = wait(&mut [&mut far], |links| links[0].poll_frame(0).expect("one frame"));
    assert_eq!(frame.header, control(1));
    far.take(0);
    let error = wait(&mut [&mut far], |links| links[0].poll_frame(0).err());
    assert_eq!(error, LinkError::Closed, "half a header is no frame, and no garbage");
    assert!(far.has_room(0));
    // SAFETY: no payload.
    assert_eq!(unsafe { far.send(0, &control(1), Outgoing::None, 0) }, Err(LinkError::Closed));
    // The peer hears of it, too.
    assert_eq!(near.read(&mut [0; 9]).expect("an end"), 0);
}

/// Says where the peer of a test in another process listens.
const PEER: &str = "UNISONO_TEST_PEER";

/// Not a test by itself: the process that [`a_peer_that_is_killed_is_noticed_in_the_middle`] kills.
#[test]
fn peer_process() {
    let Ok(address) = std::env::var(PEER) else { return };
    let connect = |_| TcpStream::connect(&address).expect("the test listens");
    let mut link = link((0..2).map(connect).collect(), End::First);
    let large = vec![1; LARGE];
    send(&mut link, 0, 1, &large);
    wait(&mut [&mut link], |_| None)
}

#[test]
fn a_peer_that_is_killed_is_noticed_in_the_middle() {
    let listener = TcpListener::bind((LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "peer_process"])
        .env(PEER, address)
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let accept = |_| listener.accept().expect("the peer").0;
    let mut link = link((0..2).map(accept).collect(), End::Second);
    let large = vec![1; LARGE];
    send(&mut link, 1, 7, &large);
    let mut place = vec![0; LARGE];
    wait(&mut [&mut link], |links| {
        // Received only once the peer is dead: the system holds a part of it on the way.
        links[0].poll_frame(0).expect("open").map(drop)
    });
    assert_eq!(link.poll_sent(1), None);
    child.kill().expect("it runs");
    child.wait().expect("it is dead");
    let error = wait(&mut [&mut link], |links| receive(links[0], &mut place).err());
    assert_eq!(error, LinkError::Closed);
    assert_eq!((place[0], place[LARGE - 1]), (1, 0), "a part has come");
    assert_eq!(link.poll_sent(1), Some(7), "nobody reads this memory any more");
    assert_eq!(wait(&mut [&mut link], |links| links[0].poll_frame(1).err()), LinkError::Closed);
}

#[test]
fn a_caller_may_sleep_until_a_link_can_go_on() {
    let (mut a, mut b) = pair(LOCALHOST, 2, Buffers::System);
    let soon = Duration::from_millis(20);
    b.poll();
    assert_eq!(b.waits().count(), 0, "nothing was asked for");
    assert!(matches!(b.poll_frame(1), Ok(None)));
    let wanted: Vec<_> = b.waits().map(|w| (w.readable, w.writable)).collect();
    assert_eq!(wanted, [(true, false)]);
    // Nobody has asked for the frames of channel 0.
    tell(&mut a, 0, 1);
    assert!(!sleep_on(&[&b], soon));
    tell(&mut a, 1, 2);
    assert!(sleep_on(&[&b], GUARD));
    b.poll();
    assert_eq!(b.poll_frame(1).expect("open").expect("a frame").header, control(2));
    assert_eq!(b.waits().count(), 0, "a frame that nobody takes is nothing to wait for");
    b.take(1);
    // A frame that does not fit on the way.
    let large = pattern(1, LARGE);
    send(&mut a, 1, 3, &large);
    a.poll();
    let wanted: Vec<_> = a.waits().map(|w| (w.readable, w.writable)).collect();
    assert_eq!(wanted, [(false, true)]);
    assert!(!sleep_on(&[&a], soon), "nobody receives it");
    let mut place = vec![0; LARGE];
    let mut rounds = 0;
    loop {
        a.poll();
        b.poll();
        if b.poll_frame(1).expect("open").is_some() {
            let into = HostPtr::new(place.as_mut_ptr());
            // SAFETY: as long as the payload.
            if unsafe { b.receive(1, Some(into)) }.expect("open") {
                break;
            }
        }
        rounds += 1;
        assert!(sleep_on(&[&a, &b], GUARD), "after {rounds} rounds");
    }
    assert!(place == large);
}

#[test]
fn what_cannot_be_a_link_is_refused_with_a_reason() {
    let none = TcpLink::<HostPtr>::new(Vec::new(), End::First, Options::default());
    assert!(matches!(none, Err(TcpError::NoStream)));
    let (near, _far) = streams(LOCALHOST, Buffers::System);
    let loose = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let error = TcpLink::<HostPtr>::new(vec![near, loose.into()], End::First, Options::default());
    let error = error.expect_err("not connected").to_string();
    assert!(error.contains("stream 1") && error.contains("its peer"), "{error}");
}

#[test]
fn streams_send_at_once_and_notice_a_peer_that_is_silent() {
    for (silence, seconds) in [(1, 5), (30, 30), (31, 31), (3600, 3600)] {
        let (near, _far) = streams(LOCALHOST, Buffers::System);
        let same = near.try_clone().expect("a descriptor");
        let silence = Duration::from_secs(silence);
        let options = Options { silence, ..Options::default() };
        let _link = TcpLink::<HostPtr>::new(vec![near], End::First, options).expect("connected");
        assert!(sockopt::tcp_nodelay(&same).expect("an option"));
        assert!(sockopt::socket_keepalive(&same).expect("an option"));
        assert_eq!(sockopt::tcp_user_timeout(&same).expect("an option"), seconds * 1000);
        let idle = sockopt::tcp_keepidle(&same).expect("an option");
        let interval = sockopt::tcp_keepintvl(&same).expect("an option");
        let probes = sockopt::tcp_keepcnt(&same).expect("an option");
        assert_eq!(idle + interval * probes, Duration::from_secs(seconds.into()));
        assert!(idle >= Duration::from_secs(1), "the system refuses less");
    }
}
