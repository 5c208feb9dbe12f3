//! The suite that every link passes, whatever carries its frames.
//!
//! A driver's test makes pairs of connected ends ([`LinkHarness`]) and calls [`link_suite`].

use unisono_core::wire::frame::{Body, Data, Fingerprint, Header, Phase};
use unisono_core::{DType, Form, Kind, Scalar};
use unisono_driver::{Arrived, HostMemory, Incoming, Link, LinkError, Outgoing};

/// Makes connected ends for the suite.
pub trait LinkHarness {
    /// The link under test.
    type Link: Link<Mem: HostMemory>;

    /// Two connected ends with at least two channels, the first belonging to rank 0.
    fn pair(&mut self) -> (Self::Link, Self::Link);

    /// Bytes of a payload that is lent, if the link lends any, and that it can carry anyway.
    const LENT: usize = 500;

    /// Where `from` sends these bytes from, which the suite keeps: there, unless the link reaches
    /// only some memory. Then copied there, to stay as long as the harness.
    fn lend(&mut self, from: &Self::Link, bytes: &[u8]) -> <Self::Link as Link>::Mem {
        let _ = from;
        HostMemory::from_ptr(bytes.as_ptr().cast_mut())
    }

    /// Lets time pass: called whenever the suite waits for something to come through.
    fn turn(&mut self, ends: &mut [&mut Self::Link]);
}

/// Rounds that the suite waits for something; a hang guard, not a time limit.
const ROUNDS: u32 = 2_000_000;

type Mem<H> = <<H as LinkHarness>::Link as Link>::Mem;

/// Runs every check.
pub fn link_suite<H: LinkHarness>(harness: &mut H) {
    frames_arrive_in_order(harness);
    payloads_of_all_sizes(harness);
    channels_are_independent(harness);
    windows_are_written(harness);
    withdrawn_payloads_are_out_of_reach(harness);
    a_closed_link_says_so_after_the_last_frame(harness);
    a_random_exchange(harness);
}

fn header(op: u64, body: Body) -> Header {
    let print = Fingerprint {
        kind: Kind::AllReduce,
        dtype: DType::U8,
        op: None,
        root: 0,
        count: 9,
        plan: 4,
    };
    Header { epoch: 3, op, from: 0, print, body }
}

fn control(n: u64) -> Header {
    header(n, Body::Credit { limit: n })
}

fn data(n: u64, bytes: usize) -> Header {
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

fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i.wrapping_mul(31) ^ seed.wrapping_mul(97)) as u8).collect()
}

/// Asks `poll` until it has something; the suite fails if nothing ever comes.
fn wait<H: LinkHarness, T>(
    h: &mut H,
    a: &mut H::Link,
    b: &mut H::Link,
    what: &str,
    mut poll: impl FnMut(&mut H::Link, &mut H::Link) -> Option<T>,
) -> T {
    for _ in 0..ROUNDS {
        if let Some(found) = poll(a, b) {
            return found;
        }
        h.turn(&mut [a, b]);
    }
    panic!("{what} never came");
}

fn frame<H: LinkHarness>(
    h: &mut H,
    a: &mut H::Link,
    b: &mut H::Link,
    channel: usize,
) -> Incoming<Mem<H>> {
    wait(h, a, b, "a frame", |_, b| b.poll_frame(channel).expect("the link is open"))
}

/// Sends once there is room.
fn send<H: LinkHarness>(
    h: &mut H,
    a: &mut H::Link,
    b: &mut H::Link,
    channel: usize,
    header: &Header,
    payload: Outgoing<Mem<H>>,
    token: u32,
) {
    wait(h, a, b, "room", |a, _| a.has_room(channel).then_some(()));
    // SAFETY: the suite keeps every payload until its completion or withdrawal.
    unsafe { a.send(channel, header, payload, token) }.expect("the link is open");
}

/// Takes the head frame and its bytes, and gives the memory back.
fn take<H: LinkHarness>(
    h: &mut H,
    a: &mut H::Link,
    b: &mut H::Link,
    channel: usize,
    bytes: usize,
) -> Vec<u8> {
    let incoming = frame(h, a, b, channel);
    let mut got = vec![0u8; bytes];
    match incoming.payload {
        Arrived::None | Arrived::Put => b.take(channel),
        Arrived::Span { mem, handle, .. } => {
            b.take(channel);
            assert!(b.enter(channel, handle), "a span that was not withdrawn can be read");
            // SAFETY: the span is locked and as long as the header says.
            got.copy_from_slice(unsafe { std::slice::from_raw_parts(mem.as_ptr(), bytes) });
            b.exit(channel, handle, false);
            b.release(channel, handle);
        }
        Arrived::Stream => {
            let into = Mem::<H>::from_ptr(got.as_mut_ptr());
            wait(h, a, b, "the payload", |_, b| {
                // SAFETY: `got` is as long as the payload.
                unsafe { b.receive(channel, Some(into)) }.expect("intact").then_some(())
            });
        }
    }
    got
}

fn completion<H: LinkHarness>(h: &mut H, a: &mut H::Link, b: &mut H::Link, channel: usize) -> u32 {
    wait(h, a, b, "a completion", |a, _| a.poll_sent(channel))
}

fn frames_arrive_in_order<H: LinkHarness>(h: &mut H) {
    let (mut a, mut b) = h.pair();
    for round in 0..50 {
        for n in 0..4 {
            send(h, &mut a, &mut b, 0, &control(round * 4 + n), Outgoing::None, 0);
        }
        for n in 0..4 {
            let incoming = frame(h, &mut a, &mut b, 0);
            assert_eq!(incoming.header, control(round * 4 + n));
            assert!(matches!(incoming.payload, Arrived::None));
            b.take(0);
        }
    }
    assert_eq!(a.poll_sent(0), None, "a frame without payload has no completion");
    assert!(matches!(b.poll_frame(0), Ok(None)));
}

fn payloads_of_all_sizes<H: LinkHarness>(h: &mut H) {
    let (mut a, mut b) = h.pair();
    for (n, bytes) in [1, 2, 7, 63, 64, 65, 1000, 4096, 100_001].into_iter().enumerate() {
        let payload = pattern(n as u64, bytes);
        let at = Outgoing::At { mem: h.lend(&a, &payload), bytes, window: None };
        let token = 70 + n as u32;
        send(h, &mut a, &mut b, 1, &data(n as u64, bytes), at, token);
        assert_eq!(frame(h, &mut a, &mut b, 1).header, data(n as u64, bytes));
        assert_eq!(take(h, &mut a, &mut b, 1, bytes), payload);
        assert_eq!(completion(h, &mut a, &mut b, 1), token);
        assert_eq!(a.poll_sent(1), None, "one completion a payload");
    }
}

fn channels_are_independent<H: LinkHarness>(h: &mut H) {
    let (mut a, mut b) = h.pair();
    let mut sent = 0;
    while a.has_room(0) && sent < 10_000 {
        send(h, &mut a, &mut b, 0, &control(sent), Outgoing::None, 0);
        sent += 1;
    }
    let payload = pattern(5, 300);
    let at = Outgoing::At { mem: h.lend(&a, &payload), bytes: 300, window: None };
    send(h, &mut a, &mut b, 1, &data(5, 300), at, 9);
    assert_eq!(take(h, &mut a, &mut b, 1, 300), payload, "past {sent} frames of channel 0");
    for n in 0..sent {
        assert_eq!(frame(h, &mut a, &mut b, 0).header, control(n));
        b.take(0);
    }
    assert_eq!(completion(h, &mut a, &mut b, 1), 9);
}

fn windows_are_written<H: LinkHarness>(h: &mut H) {
    let (mut a, mut b) = h.pair();
    if !a.caps().puts {
        return;
    }
    for bytes in [8, 5000] {
        let tensor = pattern(1, bytes);
        let here = h.lend(&a, &tensor);
        let at = Outgoing::At { mem: here, bytes, window: Some(here) };
        send(h, &mut a, &mut b, 0, &data(0, bytes), at, 1);
        let Arrived::Span { mem, window, handle } = frame(h, &mut a, &mut b, 0).payload else {
            panic!("a link with windows passes spans");
        };
        b.take(0);
        let window = window.expect("the window that was offered");
        assert!(b.enter(0, handle));
        for i in 0..bytes {
            // SAFETY: the span is locked; source and window are `bytes` long.
            unsafe { *window.as_ptr().add(i) = !*mem.as_ptr().add(i) };
        }
        b.exit(0, handle, true);
        assert_eq!(a.poll_sent(0), None, "a window is lent until the release");
        b.release(0, handle);
        assert_eq!(completion(h, &mut a, &mut b, 0), 1);
        let answer: Vec<u8> = pattern(1, bytes).iter().map(|x| !x).collect();
        // SAFETY: lent for `bytes` bytes, and released.
        let written = unsafe { std::slice::from_raw_parts(here.as_ptr(), bytes) };
        assert_eq!(written, answer);
        send(h, &mut b, &mut a, 0, &data(0, bytes), Outgoing::Put, 2);
        assert!(matches!(frame(h, &mut b, &mut a, 0).payload, Arrived::Put));
        a.take(0);
        assert_eq!(b.poll_sent(0), None, "what was put has no payload to complete");
    }
}

fn withdrawn_payloads_are_out_of_reach<H: LinkHarness>(h: &mut H) {
    let (mut a, mut b) = h.pair();
    let bytes = H::LENT;
    let lent = a.caps().inline_max < bytes;
    let payload = pattern(2, bytes);
    let mut sent = 0;
    // A link of a small board may have room for one only.
    while sent == 0 || (sent < 3 && a.has_room(0)) {
        let at = Outgoing::At { mem: h.lend(&a, &payload), bytes, window: None };
        send(h, &mut a, &mut b, 0, &data(sent, bytes), at, sent as u32);
        sent += 1;
    }
    let first = frame(h, &mut a, &mut b, 0);
    // A payload that was copied when it was sent is complete, and arrives all the same.
    if let (Arrived::Span { handle, .. }, true) = (first.payload, lent) {
        b.take(0);
        assert!(b.enter(0, handle));
        assert!(!a.withdraw(0), "not while the peer is reading");
        b.exit(0, handle, false);
        assert!(a.withdraw(0));
        assert!(!b.enter(0, handle), "withdrawn");
        b.release(0, handle);
        for n in 1..sent {
            let Arrived::Span { handle, .. } = frame(h, &mut a, &mut b, 0).payload else {
                panic!("frame {n} was a span");
            };
            b.take(0);
            assert!(!b.enter(0, handle), "withdrawn before it was read");
            b.release(0, handle);
        }
    } else {
        let mut copied = 0;
        while a.poll_sent(0).is_some() {
            copied += 1;
        }
        wait(h, &mut a, &mut b, "the withdrawal", |a, _| a.withdraw(0).then_some(()));
        send(h, &mut a, &mut b, 0, &control(8), Outgoing::None, 0);
        let whole = payloads_before(h, &mut a, &mut b, &control(8), &payload);
        assert!((copied..=sent).contains(&whole), "{copied} were complete, {whole} arrived");
    }
    assert_eq!(a.poll_sent(0), None, "no completion after a withdrawal");
    // The channel goes on.
    let at = Outgoing::At { mem: h.lend(&a, &payload), bytes, window: None };
    send(h, &mut a, &mut b, 0, &data(9, bytes), at, 9);
    assert_eq!(take(h, &mut a, &mut b, 0, bytes), payload);
    assert_eq!(completion(h, &mut a, &mut b, 0), 9);
}

/// Counts the payloads, all the same, that arrive before a frame without payload. A payload that
/// was withdrawn when only its first bytes had gone does not arrive.
fn payloads_before<H: LinkHarness>(
    h: &mut H,
    a: &mut H::Link,
    b: &mut H::Link,
    last: &Header,
    payload: &[u8],
) -> u64 {
    let mut whole = 0;
    let mut got = vec![0; payload.len()];
    wait(h, a, b, "the frame after what was withdrawn", |_, b| {
        let incoming = b.poll_frame(0).expect("the link is open")?;
        match incoming.payload {
            Arrived::Stream => {
                let into = Mem::<H>::from_ptr(got.as_mut_ptr());
                // SAFETY: `got` is as long as the payload.
                if !unsafe { b.receive(0, Some(into)) }.expect("intact") {
                    return None;
                }
            }
            Arrived::Span { mem, handle, .. } => {
                b.take(0);
                assert!(b.enter(0, handle), "what was copied is not withdrawn");
                // SAFETY: entered, and as long as the payload.
                let from = unsafe { std::slice::from_raw_parts(mem.as_ptr(), payload.len()) };
                got.copy_from_slice(from);
                b.exit(0, handle, false);
                b.release(0, handle);
            }
            _ => {
                assert_eq!(incoming.header, *last);
                b.take(0);
                return Some(());
            }
        }
        assert_eq!(got, payload);
        whole += 1;
        None
    });
    whole
}

fn a_closed_link_says_so_after_the_last_frame<H: LinkHarness>(h: &mut H) {
    let (mut a, mut b) = h.pair();
    send(h, &mut a, &mut b, 0, &control(1), Outgoing::None, 0);
    let _ = frame(h, &mut a, &mut b, 0);
    drop(a);
    for _ in 0..ROUNDS {
        match b.poll_frame(0) {
            Ok(Some(last)) => {
                assert_eq!(last.header, control(1));
                b.take(0);
            }
            Ok(None) => h.turn(&mut [&mut b]),
            Err(error) => {
                assert_eq!(error, LinkError::Closed);
                // SAFETY: no payload.
                let sent = unsafe { b.send(0, &control(2), Outgoing::None, 0) };
                assert_eq!(sent, Err(LinkError::Closed), "nobody would read it");
                return;
            }
        }
    }
    panic!("the end of the link was never noticed");
}

/// Both directions, all channels, sizes and pauses from a seed; part of [`link_suite`].
pub fn a_random_exchange<H: LinkHarness>(h: &mut H) {
    let (mut a, mut b) = h.pair();
    let channels = a.caps().channels.min(4);
    let mut seed = 0x1234_5678_9abc_def1_u64;
    let mut draw = move |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % n
    };
    for n in 0..2000 {
        let channel = draw(channels as u64) as usize;
        let bytes = 1 + draw(if n % 50 == 0 { 60_000 } else { 200 }) as usize;
        let payload = pattern(n, bytes);
        let (from, to) = if draw(2) == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        let at = Outgoing::At { mem: h.lend(from, &payload), bytes, window: None };
        send(h, from, to, channel, &data(n, bytes), at, n as u32);
        assert_eq!(take(h, from, to, channel, bytes), payload);
        assert_eq!(completion(h, from, to, channel), n as u32);
    }
}
