//! A peer in the session that sends what it likes: nothing panics, nothing is written outside of a
//! payload's place, and what is no frame closes the channel.

use proptest::prelude::*;
use unisono_core::reliable::{Config, Reliable, Side};
use unisono_core::wire::frame::{self, Body, Data, Fingerprint, HEADER_MAX, Header, Phase};
use unisono_core::{DType, Form, Kind, Scalar};
use unisono_driver::{Arrived, HostPtr, Link, LinkError, PacketLink};
use unisono_link_packet::{Channel, HostBytes, ReliableLink};
use unisono_testkit::packet::{Cable, TestClock, cable};

const MTU: usize = 200;
type Packets =
    ReliableLink<Cable, TestClock, HostBytes<HostPtr>, [Channel<HostPtr, 4, MTU, 2>; 2], 4, MTU, 2>;

/// Longest payload that is announced here, and what is not to be written.
const PAYLOAD: usize = 600;
const GUARD: u8 = 0xee;

/// What the peer sends as one message of the reliable machine.
#[derive(Clone, Debug)]
enum Message {
    Any(Vec<u8>),
    /// A frame's header, then so many bytes; perhaps more or fewer than the header says.
    Frame {
        payload: u32,
        bytes: usize,
        bit: Option<usize>,
    },
    /// Further bytes of a payload.
    More(usize),
    /// Takes the rest of a frame back.
    Cut,
}

fn messages() -> impl Strategy<Value = Message> {
    let bit = prop::option::weighted(0.2, 0..8 * HEADER_MAX);
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 1..160).prop_map(Message::Any),
        6 => (0..PAYLOAD as u32, 0usize..110, bit)
            .prop_map(|(payload, bytes, bit)| Message::Frame { payload, bytes, bit }),
        6 => (1usize..164).prop_map(Message::More),
        1 => Just(Message::Cut),
    ]
}

fn encoded(message: &Message) -> Vec<u8> {
    match message {
        Message::Any(bytes) => bytes.clone(),
        Message::More(len) => vec![7; *len],
        Message::Cut => Vec::new(),
        Message::Frame { payload, bytes, bit } => {
            let (kind, dtype) = (Kind::AllReduce, DType::U8);
            let print = Fingerprint { kind, dtype, op: None, root: 0, count: 9, plan: 4 };
            let data = Data {
                chunk: 1,
                phase: Phase::Result,
                form: Form::Final,
                weight: Scalar(0),
                limit: 3,
                bytes: *payload,
            };
            let header = Header { epoch: 0, op: 2, from: 0, print, body: Body::Data(data) };
            let mut out = vec![0; HEADER_MAX];
            let len = frame::encode_head(&header, &mut out).expect("it fits");
            out.truncate(len);
            if let Some(bit) = bit.filter(|bit| *bit < 8 * len) {
                out[bit / 8] ^= 1 << (bit % 8);
            }
            out.resize(len + bytes, 7);
            out
        }
    }
}

/// Takes whatever there is; the error that ends it, if one does.
fn take_all(link: &mut Packets) -> Option<LinkError> {
    loop {
        let head = match link.poll_frame(0) {
            Ok(Some(head)) => head,
            Ok(None) => return None,
            Err(error) => return Some(error),
        };
        match head.payload {
            Arrived::Stream => {
                let len = head.header.payload_len() as usize;
                if len > PAYLOAD {
                    // An engine throws away what it has no place for.
                    // SAFETY: nothing is written.
                    match unsafe { link.receive(0, None) } {
                        Ok(true) => continue,
                        Ok(false) => return None,
                        Err(error) => return Some(error),
                    }
                }
                let mut place = vec![GUARD; PAYLOAD + 64];
                let into = HostPtr::new(place.as_mut_ptr());
                // SAFETY: the place is longer than the payload.
                let received = unsafe { link.receive(0, Some(into)) };
                assert!(place[len..].iter().all(|b| *b == GUARD), "written beyond {len} bytes");
                match received {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(error) => return Some(error),
                }
            }
            _ => link.take(0),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn frames_that_are_none(list in prop::collection::vec(messages(), 1..12)) {
        let (mut near, far) = cable(MTU);
        let clock = TestClock::default();
        let channels = [const { Channel::new() }; 2];
        let config = Config::new(6, Side::High);
        let mut link: Packets =
            ReliableLink::new(far, clock, HostBytes::new(), channels, config).expect("fits");
        let mut peer = Reliable::<4, MTU>::new(Config::new(6, Side::Low));
        let now = unisono_core::Instant::ZERO;
        let mut packet = [0; MTU];
        for message in &list {
            // A link that has given the channel up takes no more.
            if peer.send(&encoded(message)).is_err() {
                break;
            }
            for _ in 0..3 {
                while let Some(len) = peer.poll_transmit(now, &mut packet) {
                    near.send(&packet[..len]).expect("a cable");
                }
                link.poll();
                if let Some(error) = take_all(&mut link) {
                    prop_assert_eq!(error, LinkError::Garbage);
                    prop_assert!(matches!(link.poll_frame(0), Err(LinkError::Garbage)));
                    prop_assert!(matches!(link.poll_frame(1), Ok(None)), "the other channel lives");
                    return Ok(());
                }
                while let Some(len) = near.receive(&mut packet).expect("a cable") {
                    peer.handle_packet(now, &packet[..len]);
                }
            }
        }
    }

    #[test]
    fn datagrams_that_are_none(list in prop::collection::vec(
        prop::collection::vec(any::<u8>(), 0..MTU), 0..40,
    )) {
        let (mut near, far) = cable(MTU);
        let channels = [const { Channel::new() }; 2];
        let config = Config::new(6, Side::High);
        let mut link: Packets =
            ReliableLink::new(far, TestClock::default(), HostBytes::new(), channels, config)
                .expect("fits");
        for mut datagram in list {
            // Some get as far as a channel's machine.
            if let Some(session) = datagram.get_mut(4..8) {
                session.copy_from_slice(&6u32.to_le_bytes());
            }
            near.send(&datagram).expect("a cable");
            link.poll();
            prop_assert!(matches!(link.poll_frame(0), Ok(None)));
        }
    }
}

#[test]
fn packets_longer_than_the_port_takes_are_refused() {
    let (_near, far) = cable(MTU - 1);
    let channels = [const { Channel::new() }; 2];
    let config = Config::new(6, Side::High);
    let link: Result<Packets, _> =
        ReliableLink::new(far, TestClock::default(), HostBytes::new(), channels, config);
    let error = link.expect_err("too long").to_string();
    assert!(error.contains("packets of 200 bytes") && error.contains("takes 199"), "{error}");
}
