//! Frames and control messages: round trips, bounds, and refusal of everything damaged.

use proptest::prelude::*;
use unisono_core::wire::control::{
    self, CONTROL_MAX, Capabilities, Control, Hello, Reason, message_len,
};
use unisono_core::wire::frame::{
    self, Abort, Body, Data, Fingerprint, HEADER_MAX, Header, OVERHEAD_MAX, Phase,
};
use unisono_core::wire::{DecodeError, EncodeError, PREFIX, TRAILER, VERSION, crc32c_append};
use unisono_core::{DType, Form, Kind, ReduceOp, Scalar};

fn prints() -> impl Strategy<Value = Fingerprint> {
    (
        prop::sample::select(&Kind::ALL[..]),
        prop::sample::select(&DType::ALL[..]),
        prop::option::of(prop::sample::select(&ReduceOp::ALL[..])),
        any::<(u16, u64, u64)>(),
    )
        .prop_map(|(kind, dtype, op, (root, count, plan))| Fingerprint {
            kind,
            dtype,
            op,
            root,
            count,
            plan,
        })
}

fn phases() -> impl Strategy<Value = Phase> {
    prop_oneof![Just(Phase::Contribution), Just(Phase::Result)]
}

fn aborts() -> impl Strategy<Value = Abort> {
    prop_oneof![
        (any::<(u16, u16)>(), prints(), prints())
            .prop_map(|((a, b), a_print, b_print)| Abort::Mismatch { a, a_print, b, b_print }),
        (any::<(u16, u16, u64)>(), phases()).prop_map(|((rank, waiting_for, chunk), phase)| {
            Abort::Deadline { rank, waiting_for, chunk, phase }
        }),
        any::<u16>().prop_map(|rank| Abort::Cancelled { rank }),
        any::<u16>().prop_map(|rank| Abort::PeerLost { rank }),
        any::<u16>().prop_map(|rank| Abort::DeviceFailed { rank }),
        any::<u16>().prop_map(|rank| Abort::Protocol { rank }),
    ]
}

fn bodies() -> impl Strategy<Value = Body> {
    let forms = prop::sample::select(&[Form::Leaf, Form::Partial, Form::Final][..]);
    prop_oneof![
        (any::<(u64, u64, u64)>(), 0u32..300, phases(), forms).prop_map(
            |((chunk, weight, limit), bytes, phase, form)| {
                let weight = Scalar(weight);
                Body::Data(Data { chunk, phase, form, weight, limit, bytes })
            }
        ),
        any::<u64>().prop_map(|limit| Body::Credit { limit }),
        any::<u8>().prop_map(|round| Body::Agree { round }),
        aborts().prop_map(Body::Abort),
    ]
}

fn headers() -> impl Strategy<Value = Header> {
    (any::<(u32, u64, u16)>(), prints(), bodies())
        .prop_map(|((epoch, op, from), print, body)| Header { epoch, op, from, print, body })
}

fn controls() -> impl Strategy<Value = Control> {
    let reasons = prop::sample::select(
        &[Reason::Version, Reason::Epoch, Reason::Ranks, Reason::SameRank, Reason::Plan][..],
    );
    prop_oneof![
        (any::<(u16, u32, u16, u16, u64)>(), any::<(u16, u8, u16, u32)>()).prop_map(
            |((version, epoch, rank, ranks, plan), (dtypes, sources, slots, slot_bytes))| {
                let capabilities = Capabilities { dtypes, sources, slots, slot_bytes };
                Control::Hello(Hello { version, epoch, rank, ranks, plan, capabilities })
            }
        ),
        (any::<(u16, u32)>(), reasons).prop_map(|((rank, epoch), reason)| Control::Refuse {
            rank,
            epoch,
            reason
        }),
    ]
}

fn payload(len: u32) -> Vec<u8> {
    (0..len).map(|i| (i * 7) as u8).collect()
}

fn encoded(header: &Header) -> Vec<u8> {
    let payload = payload(header.payload_len());
    let mut out = vec![0; payload.len() + OVERHEAD_MAX];
    let len = frame::encode(header, &payload, &mut out).expect("fits by OVERHEAD_MAX");
    out.truncate(len);
    out
}

proptest! {
    #[test]
    fn frames_survive_the_round_trip(header in headers()) {
        let bytes = encoded(&header);
        let (back, data) = frame::decode(&bytes).expect("own frame");
        prop_assert_eq!(back, header);
        prop_assert_eq!(data, payload(header.payload_len()));
    }

    #[test]
    fn a_stream_reader_gets_the_same(header in headers(), more in any::<[u8; 4]>()) {
        let mut bytes = encoded(&header);
        let whole = bytes.len();
        bytes.extend(more);
        let head = frame::head_len(*bytes.first_chunk::<PREFIX>().expect("long enough"))?;
        for short in 0..head {
            prop_assert_eq!(frame::decode_head(&bytes[..short]), Err(DecodeError::Truncated));
        }
        let (back, len) = frame::decode_head(&bytes)?;
        prop_assert_eq!((back, len), (header, head));
        prop_assert_eq!(whole, head + header.payload_len() as usize + TRAILER);
        // The link's way of checking: head and payload part by part.
        let (content, trailer) = bytes[..whole].split_at(whole - TRAILER);
        let crc = crc32c_append(crc32c_append(0, &content[..head]), &content[head..]);
        prop_assert_eq!(trailer, crc.to_le_bytes());
    }

    #[test]
    fn damaged_frames_are_refused(header in headers()) {
        let mut bytes = encoded(&header);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(frame::decode(&bytes).is_err(), "bit {} flipped", bit);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for len in 0..bytes.len() {
            prop_assert!(frame::decode(&bytes[..len]).is_err(), "cut to {}", len);
        }
    }

    #[test]
    fn short_output_is_refused_at_every_length(header in headers()) {
        let (want, data) = (encoded(&header), payload(header.payload_len()));
        let mut out = vec![0; want.len()];
        for len in 0..want.len() {
            prop_assert_eq!(frame::encode(&header, &data, &mut out[..len]), Err(EncodeError::Room));
        }
        prop_assert_eq!(frame::encode(&header, &data, &mut out), Ok(want.len()));
        prop_assert_eq!(out, want);
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(frame::decode(&bytes).is_err());
        prop_assert!(control::decode(&bytes).is_err());
        let _any = frame::decode_head(&bytes);
        // With the right prefix the decoder gets further.
        if bytes.len() >= PREFIX {
            bytes[..2].copy_from_slice(&[0xa7, VERSION]);
            if let Ok((header, len)) = frame::decode_head(&bytes) {
                prop_assert!(len <= HEADER_MAX, "{:?} takes {} bytes", header, len);
            }
        }
    }

    #[test]
    fn control_messages_survive_and_damage_is_refused(message in controls()) {
        let mut out = [0; CONTROL_MAX];
        let len = control::encode(&message, &mut out).expect("fits by CONTROL_MAX");
        let bytes = &mut out[..len];
        prop_assert_eq!(control::decode(bytes), Ok(message));
        prop_assert_eq!(message_len([bytes[0], bytes[1], bytes[2]]), Ok(len));
        for bit in 0..len * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(control::decode(bytes).is_err(), "bit {} flipped", bit);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for cut in 0..len {
            prop_assert!(control::decode(&bytes[..cut]).is_err(), "cut to {}", cut);
        }
    }
}

fn longest(body: Body) -> Header {
    Header { epoch: u32::MAX, op: u64::MAX, from: u16::MAX, print: longest_print(), body }
}

fn longest_print() -> Fingerprint {
    Fingerprint {
        kind: Kind::Barrier,
        dtype: DType::U64,
        op: Some(ReduceOp::BitXor),
        root: u16::MAX,
        count: u64::MAX,
        plan: u64::MAX,
    }
}

#[test]
fn header_max_is_exact() {
    let far = u64::MAX;
    let (a, b, print) = (u16::MAX, u16::MAX, longest_print());
    let phase = Phase::Result;
    let bodies = [
        Body::Data(Data {
            chunk: far,
            phase,
            form: Form::Final,
            weight: Scalar(far),
            limit: far,
            bytes: u32::MAX,
        }),
        Body::Credit { limit: far },
        Body::Agree { round: u8::MAX },
        Body::Abort(Abort::Mismatch { a, a_print: print, b, b_print: print }),
        Body::Abort(Abort::Deadline { rank: a, waiting_for: b, chunk: far, phase }),
        Body::Abort(Abort::Cancelled { rank: a }),
        Body::Abort(Abort::PeerLost { rank: a }),
        Body::Abort(Abort::DeviceFailed { rank: a }),
        Body::Abort(Abort::Protocol { rank: a }),
    ];
    let lens = bodies.map(|body| frame::encode_head(&longest(body), &mut [0; 255]));
    assert_eq!(lens.iter().flatten().max(), Some(&HEADER_MAX), "{lens:?}");
    assert!(lens.iter().all(Result::is_ok), "{lens:?}");
}

#[test]
fn control_max_is_exact() {
    let hello = Hello {
        version: u16::MAX,
        epoch: u32::MAX,
        rank: u16::MAX,
        ranks: u16::MAX,
        plan: u64::MAX,
        capabilities: Capabilities {
            dtypes: u16::MAX,
            sources: u8::MAX,
            slots: u16::MAX,
            slot_bytes: u32::MAX,
        },
    };
    let refuse = Control::Refuse { rank: u16::MAX, epoch: u32::MAX, reason: Reason::Plan };
    let lens = [Control::Hello(hello), refuse].map(|m| control::encode(&m, &mut [0; 255]));
    assert_eq!(lens.iter().flatten().max(), Some(&CONTROL_MAX), "{lens:?}");
    assert!(lens.iter().all(Result::is_ok), "{lens:?}");
}

#[test]
fn errors_say_what_is_wrong() {
    let header = longest(Body::Agree { round: 1 });
    let good = encoded(&header);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        frame::decode(&bytes).map(|_| ())
    };
    assert_eq!(with(0, 0xa8), Err(DecodeError::BadMagic));
    assert_eq!(with(1, 9), Err(DecodeError::Version { theirs: 9 }));
    assert_eq!(with(2, 255), Err(DecodeError::Truncated));
    assert_eq!(with(4, good[4] ^ 1), Err(DecodeError::BadCrc));
    assert_eq!(frame::encode(&header, &[1], &mut [0; 300]), Err(EncodeError::Payload));
    // A byte in the header's length that the header does not use.
    let mut long = good[..good.len() - TRAILER].to_vec();
    long[2] += 1;
    long.push(0);
    let crc = crc32c_append(0, &long);
    long.extend(crc.to_le_bytes());
    assert_eq!(frame::decode(&long), Err(DecodeError::Malformed));
    // A payload that the header does not announce, under a checksum that matches.
    let mut long = good[..good.len() - TRAILER].to_vec();
    long.push(0);
    let crc = crc32c_append(0, &long);
    long.extend(crc.to_le_bytes());
    assert_eq!(frame::decode(&long), Err(DecodeError::Malformed));
}

#[test]
fn members_that_differ_do_not_start() {
    let capabilities = Capabilities { dtypes: 0b10, sources: 2, slots: 4, slot_bytes: 1 << 16 };
    let a = Hello { version: Hello::PROTOCOL, epoch: 3, rank: 0, ranks: 4, plan: 9, capabilities };
    let b = Hello { rank: 1, ..a };
    assert_eq!(a.check(&b), Ok(()));
    assert_eq!(a.check(&a), Err(Reason::SameRank));
    assert_eq!(a.check(&Hello { version: 0, ..b }), Err(Reason::Version));
    assert_eq!(a.check(&Hello { epoch: 4, ..b }), Err(Reason::Epoch));
    assert_eq!(a.check(&Hello { ranks: 5, ..b }), Err(Reason::Ranks));
    assert_eq!(a.check(&Hello { plan: 8, ..b }), Err(Reason::Plan));
    assert!(capabilities.reduces(DType::F32) && !capabilities.reduces(DType::F64));
}
