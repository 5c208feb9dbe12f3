//! Messages between host and board: round trips, bounds, and refusal of what makes no sense.

use proptest::prelude::*;
use unisono_core::schedule::{Aggregators, Nodes, Owners};
use unisono_core::wire::DecodeError;
use unisono_core::wire::board::{
    self, CONTENT_MAX, Call, FromBoard, Identity, Join, MESSAGE_MAX, Message, Refusal, Role,
    Status, ToBoard,
};
use unisono_core::wire::frame::Abort;
use unisono_core::{DType, Instant, Kind, ReduceOp, Scalar, Schedule};

fn schedules(ranks: u16) -> Vec<Schedule> {
    let weights: Vec<u32> = (1..=u32::from(ranks) + 1).collect();
    let owners = [Owners::equal(ranks), Owners::weighted(ranks, &weights)];
    let direct = owners.into_iter().flatten().map(Schedule::Direct);
    let nodes = Nodes::even(ranks, 3).map(Schedule::Hierarchical);
    let star = Aggregators::new(3).map(Schedule::Star);
    let plain = [
        Schedule::Ring,
        Schedule::OneShot,
        Schedule::Binomial,
        Schedule::DoubleTree,
        Schedule::HalvingDoubling,
    ];
    direct.chain(nodes).chain(star).chain(plain).collect()
}

/// A call with the longest numbers.
fn call(schedule: Schedule) -> Call {
    Call {
        op_id: u64::MAX,
        role: Role::Rank { input: u32::MAX, output: u32::MAX, in_place: true },
        schedule,
        kind: Kind::Broadcast,
        ranks: u16::MAX,
        count: u64::MAX,
        chunk: u64::MAX,
        root: u16::MAX,
        dtype: DType::U64,
        op: Some(ReduceOp::BitXor),
        weight: Scalar(u64::MAX),
        window: u16::MAX,
        eager: u64::MAX,
        slots: u8::MAX,
        timeout_ms: u32::MAX,
    }
}

fn survives<T: Message + PartialEq + std::fmt::Debug>(message: &T, content: &[u8]) {
    let mut out = [0; MESSAGE_MAX + CONTENT_MAX];
    let len = board::encode(message, content, &mut out).expect("fits by MESSAGE_MAX");
    let (back, rest) = board::decode::<T>(&out[..len]).expect("own message");
    assert_eq!((&back, rest), (message, content));
    for short in 0..len {
        assert!(board::decode::<T>(&out[..short]).is_err(), "{short} of {len} bytes");
    }
}

#[test]
fn every_message_fits_and_survives() {
    for ranks in [1, 2, 5, 64, 127] {
        for schedule in schedules(ranks) {
            survives(&ToBoard::Call(call(schedule)), &[]);
        }
    }
    let join = Join { epoch: 1, rank: 2, members: 3, next_op: 4 };
    for message in [
        ToBoard::Greet { session: u32::MAX, abi: board::ABI },
        ToBoard::Describe,
        ToBoard::Join(join),
        ToBoard::Cancel { op_id: 1 },
        ToBoard::Status,
        ToBoard::Leave,
        ToBoard::Read { at: 9, bytes: 256 },
        ToBoard::Peer { rank: 3, at: "10.0.2.2:65535".parse().expect("an address") },
    ] {
        survives(&message, &[]);
    }
    survives(&ToBoard::Write { at: u32::MAX }, &[7; CONTENT_MAX]);
    let identity = Identity {
        name: "x".repeat(board::NAME_MAX).as_str().try_into().expect("as long as that"),
        dtypes: u16::MAX,
        ops: u16::MAX,
        fpu: true,
        calls: u8::MAX,
        window: u16::MAX,
        members: u16::MAX,
        moves: u16::MAX,
        scratch: u32::MAX,
        payload: u32::MAX,
        memory: u32::MAX,
        sources: u16::MAX,
        rate: u32::MAX,
        copies: u32::MAX,
    };
    let status = Status { calls: 1, next_op: 2, uptime_ms: 3, log_lost: 4 };
    for message in [
        FromBoard::Hello { session: 1, abi: 2, build: u64::MAX },
        FromBoard::Identity(identity),
        FromBoard::Member(Some(3)),
        FromBoard::Refused { op_id: Some(1), why: Refusal::Scratch(u64::MAX) },
        FromBoard::Done { op_id: 1, result: Err(Abort::PeerLost { rank: 1 }) },
        FromBoard::Status(status),
        FromBoard::Written { upto: 1 },
    ] {
        survives(&message, &[]);
    }
    survives(&FromBoard::Content { at: 1 }, &[1, 2, 3]);
    survives(&FromBoard::Log, &[1; CONTENT_MAX]);
}

#[test]
fn content_where_none_belongs_is_refused() {
    let mut out = [0; MESSAGE_MAX];
    let len = board::encode(&ToBoard::Status, &[1], &mut out).expect("fits");
    assert_eq!(board::decode::<ToBoard>(&out[..len]), Err(DecodeError::Malformed));
}

#[test]
fn a_call_becomes_the_configuration_that_it_names() {
    let schedule = Aggregators::new(1).map(Schedule::Star).expect("one aggregator");
    let mut call = call(schedule.clone());
    call.timeout_ms = 20;
    let now = Instant::from_nanos(5);
    let config = call.config(7, 3, now);
    assert_eq!((config.epoch, config.rank, config.op_id), (7, 3, u64::MAX));
    assert_eq!(config.schedule_print, schedule.fingerprint());
    assert!(config.in_place);
    assert_eq!(config.deadline, Some(Instant::from_nanos(20_000_005)));
    call.timeout_ms = 0;
    call.role = Role::Aggregator;
    let config = call.config(7, 3, now);
    assert!(!config.in_place && config.deadline.is_none());
}

proptest! {
    #[test]
    fn damaged_messages_are_refused(ranks in 1..20u16, which in 0..8usize, bit in 0..2000usize) {
        let all = schedules(ranks);
        let mut out = [0; MESSAGE_MAX];
        let message = ToBoard::Call(call(all[which % all.len()].clone()));
        let len = board::encode(&message, &[], &mut out).expect("fits");
        out[bit / 8 % len] ^= 1 << (bit % 8);
        prop_assert!(board::decode::<ToBoard>(&out[..len]).is_err());
    }

    /// Under a checksum that matches, whatever the body is.
    #[test]
    fn any_body_is_a_message_or_an_error(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = vec![0xa9, 1, body.len() as u8];
        bytes.extend(&body);
        let crc = unisono_core::wire::crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        if let Ok((ToBoard::Call(call), _)) = board::decode::<ToBoard>(&bytes) {
            // What was let in can be asked for its routes.
            let members = call.schedule.members(call.ranks);
            let config = call.config(0, members.saturating_sub(1), Instant::ZERO);
            std::hint::black_box(config.check(4, 8).is_ok());
        }
        let _ = board::decode::<FromBoard>(&bytes);
    }
}
