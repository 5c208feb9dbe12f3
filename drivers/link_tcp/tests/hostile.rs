//! Streams cut at every place, and peers that send what they like: nothing panics, nothing is
//! written outside of a payload's place, and what is no frame ends the channel.

mod common;

use common::{Buffers, GUARD, control, data, encoded, link, pattern, sleep_on, streams};
use proptest::prelude::*;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::Instant;
use unisono_core::wire::frame::Header;
use unisono_driver::{Arrived, HostPtr, Link, LinkError};
use unisono_link_tcp::{End, TcpLink};

/// Bytes between two marks, as the crate's head says.
const SEGMENT: usize = 256 << 10;
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Stands where nothing may be written.
const UNTOUCHED: u8 = 0xee;

/// What a peer sends.
#[derive(Clone, Debug)]
enum Sent {
    Control(u64),
    Data { n: u64, bytes: usize },
    Cut { n: u64, bytes: usize, segments: usize },
}

/// How it lies in the stream, written from the description of the format.
fn wire(sent: &Sent) -> Vec<u8> {
    let (n, bytes, cut) = match *sent {
        Sent::Control(n) => return encoded(&control(n)),
        Sent::Data { n, bytes } => (n, bytes, usize::MAX),
        Sent::Cut { n, bytes, segments } => (n, bytes, segments),
    };
    let mut out = encoded(&data(n, bytes));
    let payload = pattern(n, bytes);
    let count = payload.chunks(SEGMENT).len();
    for (index, segment) in payload.chunks(SEGMENT).enumerate() {
        out.extend_from_slice(segment);
        if index + 1 == cut.min(count) {
            out.push(if cut == usize::MAX { 0xa5 } else { 0xc3 });
            break;
        }
        out.push(0x5a);
    }
    out
}

/// Where payloads go: `written` bytes of it may hold something of frames that did not end.
struct Place {
    bytes: Vec<u8>,
    written: usize,
}

impl Place {
    fn new(len: usize) -> Self {
        Self { bytes: vec![UNTOUCHED; len], written: 0 }
    }
}

/// Takes what there is until the link has nothing more for now.
fn take_all(
    link: &mut TcpLink<HostPtr>,
    place: &mut Place,
) -> Result<Vec<(Header, Vec<u8>)>, LinkError> {
    let mut got = Vec::new();
    while let Some(head) = link.poll_frame(0)? {
        let len = head.header.payload_len() as usize;
        match head.payload {
            Arrived::Stream if len <= place.bytes.len() => {
                let into = HostPtr::new(place.bytes.as_mut_ptr());
                // SAFETY: the place is long enough.
                let received = unsafe { link.receive(0, Some(into)) };
                place.written = place.written.max(len);
                let beyond = &place.bytes[place.written..];
                assert!(beyond.iter().all(|b| *b == UNTOUCHED), "beyond {len} bytes");
                if !received? {
                    // It is not all there, or has been withdrawn: then the next frame is next.
                    if link.waits().next().is_some() {
                        break;
                    }
                    continue;
                }
                got.push((head.header, place.bytes[..len].to_vec()));
                place.bytes[..place.written].fill(UNTOUCHED);
                place.written = 0;
            }
            Arrived::Stream => {
                // An engine throws away what it has no place for.
                // SAFETY: nothing is written.
                if !unsafe { link.receive(0, None) }? {
                    break;
                }
            }
            _ => {
                link.take(0);
                got.push((head.header, Vec::new()));
            }
        }
    }
    Ok(got)
}

/// What arrives when `parts` are written one after the other, each when the one before was read.
fn arrived(
    near: &mut TcpStream,
    far: &mut TcpLink<HostPtr>,
    parts: &[&[u8]],
    frames: usize,
) -> Vec<(Header, Vec<u8>)> {
    let mut place = Place::new(3 * SEGMENT + 64);
    let mut got = Vec::new();
    let mut turn = |far: &mut TcpLink<HostPtr>| {
        far.poll();
        got.extend(take_all(far, &mut place).expect("frames"));
        got.len()
    };
    turn(far);
    near.set_nonblocking(true).expect("a stream");
    for part in parts {
        let mut left = *part;
        while !left.is_empty() {
            match near.write(left) {
                Ok(len) => left = &left[len..],
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
            assert!(sleep_on(&[far], GUARD), "what was written arrives");
            turn(far);
        }
    }
    let since = Instant::now();
    while turn(far) < frames {
        assert!(since.elapsed() < GUARD, "frames are missing");
    }
    got
}

fn expected(list: &[Sent]) -> Vec<(Header, Vec<u8>)> {
    let of = |sent: &Sent| match *sent {
        Sent::Control(n) => Some((control(n), Vec::new())),
        Sent::Data { n, bytes } => Some((data(n, bytes), pattern(n, bytes))),
        Sent::Cut { .. } => None,
    };
    list.iter().filter_map(of).collect()
}

#[test]
fn a_stream_may_be_cut_at_every_byte() {
    let list = [
        Sent::Control(1),
        Sent::Data { n: 2, bytes: 8 },
        Sent::Cut { n: 3, bytes: 90, segments: 1 },
        Sent::Data { n: 4, bytes: 70 },
        Sent::Control(1 << 40),
    ];
    let bytes: Vec<u8> = list.iter().flat_map(wire).collect();
    let (mut near, far) = streams(LOCALHOST, Buffers::System);
    let mut far = link(vec![far], End::Second);
    for at in 1..bytes.len() {
        let (first, second) = bytes.split_at(at);
        let frames = expected(&list);
        let got = arrived(&mut near, &mut far, &[first, second], frames.len());
        assert_eq!(got, frames, "cut at {at}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(arrived(&mut near, &mut far, &single, 4), expected(&list), "byte by byte");
}

fn any_sent() -> impl Strategy<Value = Sent> {
    let bytes = prop_oneof![
        4 => 1usize..400,
        2 => 7_000usize..20_000,
        1 => SEGMENT - 2..SEGMENT + 3,
        1 => 2 * SEGMENT - 2..2 * SEGMENT + 3,
        1 => Just(3 * SEGMENT),
    ];
    (any::<u32>(), bytes, 0..3, 1usize..3).prop_map(|(n, bytes, kind, segments)| {
        let n = n.into();
        match kind {
            0 => Sent::Control(n),
            1 => Sent::Data { n, bytes },
            _ => Sent::Cut { n, bytes, segments: segments.min(bytes.div_ceil(SEGMENT)) },
        }
    })
}

/// What is done to bytes on their way.
#[derive(Clone, Debug)]
enum Damage {
    Flip { at: prop::sample::Index, bit: u8 },
    Insert { at: prop::sample::Index, bytes: Vec<u8> },
    End { at: prop::sample::Index },
}

fn any_damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), 0u8..8).prop_map(|(at, bit)| Damage::Flip { at, bit }),
        (at(), prop::collection::vec(any::<u8>(), 1..300))
            .prop_map(|(at, bytes)| Damage::Insert { at, bytes }),
        at().prop_map(|at| Damage::End { at }),
    ]
}

/// There is no file of failures: a failure prints what it needs.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(cases(200))]
    #[test]
    fn frames_of_all_kinds_in_pieces_of_all_sizes(
        mut list in prop::collection::vec(any_sent(), 1..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        // Then everything before it has come.
        list.push(Sent::Control(77));
        let bytes: Vec<u8> = list.iter().flat_map(wire).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let parts: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
        let (mut near, far) = streams(LOCALHOST, Buffers::System);
        let frames = expected(&list);
        let got = arrived(&mut near, &mut link(vec![far], End::Second), &parts, frames.len());
        prop_assert!(got == frames, "{list:?}");
    }
}

proptest! {
    #![proptest_config(cases(2_000))]
    #[test]
    fn bytes_that_are_no_frames(
        list in prop::collection::vec((any::<u32>(), 0usize..600), 1..6),
        damage in prop::collection::vec(any_damage(), 1..4),
    ) {
        let frames = list.iter().map(|&(n, bytes)| Sent::Data { n: n.into(), bytes });
        let mut bytes: Vec<u8> = frames.flat_map(|sent| wire(&sent)).collect();
        for damage in damage {
            match damage {
                Damage::Flip { at, bit } if !bytes.is_empty() => {
                    let at = at.index(bytes.len());
                    bytes[at] ^= 1 << bit;
                }
                Damage::Insert { at, bytes: more } => {
                    let at = at.index(bytes.len() + 1);
                    bytes.splice(at..at, more);
                }
                Damage::End { at } => bytes.truncate(at.index(bytes.len() + 1)),
                Damage::Flip { .. } => {}
            }
        }
        let (near, far) = streams(LOCALHOST, Buffers::System);
        let (_near2, far2) = streams(LOCALHOST, Buffers::System);
        let mut far = link(vec![far, far2], End::Second);
        // A link that has given up closes its stream, so not all may be taken.
        let _ = (&near).write_all(&bytes);
        near.shutdown(std::net::Shutdown::Write).expect("a stream");
        let mut place = Place::new(1000);
        let since = Instant::now();
        let error = loop {
            far.poll();
            if let Err(error) = take_all(&mut far, &mut place) {
                break error;
            }
            prop_assert!(since.elapsed() < GUARD, "the end was not noticed");
        };
        prop_assert!(matches!(far.poll_frame(0), Err(again) if again == error), "it stays so");
        if error == LinkError::Garbage {
            prop_assert!(matches!(far.poll_frame(1), Ok(None)), "the other channel lives");
        }
    }
}
