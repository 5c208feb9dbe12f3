//! Whole calls over links as small as a board has them, polled in any order.

use std::time::Duration;
use unisono_core::machine::Config;
use unisono_core::reliable::{self, Side};
use unisono_core::{DType, Kind, Layout, ReduceOp, Scalar, Schedule};
use unisono_device_scalar::ScalarDevice;
use unisono_driver::{Either, HostPtr};
use unisono_link_packet::{Channel, HostBytes, ReliableLink, session};
use unisono_link_span::{SpanLink, fabric};
use unisono_runtime::{Buffers, Call, Engine};
use unisono_testkit::packet::{Cable, Chance, Faults, Faulty, TestClock, cable};

const MTU: usize = 252;
const RANKS: u16 = 3;

type Packets = ReliableLink<
    Faulty<Cable>,
    TestClock,
    HostBytes<HostPtr>,
    [Channel<HostPtr, 4, MTU, 2>; 1],
    4,
    MTU,
    2,
>;
type Member = Engine<ScalarDevice, Either<SpanLink<HostPtr>, Packets>, 1, 16, 16, 4>;

fn end(port: Cable, me: u16, peer: u16, clock: &TestClock, seed: u64) -> Packets {
    let mut config = reliable::Config::new(session(1, me, peer), Side::of(me, peer));
    config.silence = Duration::from_secs(60);
    config.tries = 100;
    let faults = Faults { loss: 20, twice: 20, late: 50, damage: 0 };
    let port = Faulty::new(port, faults, seed);
    let channels = [const { Channel::new() }; 1];
    ReliableLink::new(port, clock.clone(), HostBytes::new(), channels, config).expect("fits")
}

/// Rank 0 is a board behind packets, the others are threads of one program.
fn members(clock: &TestClock, seed: u64) -> Vec<Member> {
    let mut packets: Vec<Vec<Option<Packets>>> =
        (0..RANKS).map(|_| (0..RANKS).map(|_| None).collect()).collect();
    for peer in 1..RANKS {
        let (a, b) = cable(MTU);
        packets[0][usize::from(peer)] = Some(end(a, 0, peer, clock, seed + 2));
        packets[usize::from(peer)][0] = Some(end(b, peer, 0, clock, seed + 3));
    }
    let spans = fabric(RANKS.into(), 1, 16);
    let both = (0..RANKS).zip(packets).zip(spans);
    both.map(|((rank, packets), (spans, _))| {
        let links = packets.into_iter().zip(spans);
        let links = links.map(|(p, s)| p.map(Either::B).or(s.map(Either::A)));
        Engine::new(rank, 1, ScalarDevice::default(), links.collect())
    })
    .collect()
}

fn config(schedule: &Schedule, rank: u16, count: u64, in_place: bool) -> Config {
    let layout = Layout { kind: Kind::AllReduce, ranks: RANKS, count, chunk: 64, root: 0 };
    Config {
        epoch: 1,
        op_id: 0,
        rank,
        schedule: schedule.clone(),
        schedule_print: schedule.fingerprint(),
        layout,
        dtype: DType::I64,
        op: Some(ReduceOp::Sum),
        weight: Scalar::one(DType::I64),
        window: if rank == 0 { 2 } else { 16 },
        eager: 0,
        slots: 0,
        by_bytes: 0,
        puts: 0,
        input_private: false,
        output_private: false,
        in_place,
        sources_max: 0,
        dests_max: 0,
        deadline: None,
    }
}

fn reduce(schedule: &Schedule, count: usize, in_place: bool, seed: u64) {
    let clock = TestClock::default();
    let mut members = members(&clock, seed);
    let mut inputs: Vec<Vec<i64>> =
        (0..3).map(|r| (0..count as i64).map(|i| i * 3 + (r << 40)).collect()).collect();
    let want: Vec<i64> = (0..count).map(|i| inputs.iter().map(|x| x[i]).sum()).collect();
    let mut outputs = vec![vec![0i64; count]; 3];
    let mut scratch = vec![vec![0u64; 16 * 8 * 80]; 3];
    let mut chance = Chance::new(seed);
    for (rank, member) in members.iter_mut().enumerate() {
        let input = HostPtr::new(inputs[rank].as_mut_ptr().cast());
        let output = if in_place { input } else { HostPtr::new(outputs[rank].as_mut_ptr().cast()) };
        let scratch = HostPtr::new(scratch[rank].as_mut_ptr().cast());
        let mut config = config(schedule, rank as u16, count as u64, in_place);
        member.fit(&mut config).expect("it can run");
        let buffers = Buffers { input, output, scratch };
        let mut call = Call { config, buffers, source_ready: u64::MAX };
        // SAFETY: the buffers live to the end, and nobody else uses them.
        unsafe { member.begin(&mut call) }.expect("nothing is in flight");
    }
    let mut done = 0;
    for _ in 0..200_000 {
        let rank = chance.below(RANKS.into()) as usize;
        clock.pass(Duration::from_micros(chance.below(200)));
        members[rank].poll();
        if let Some(result) = members[rank].result(0) {
            assert_eq!(result, Ok(()));
            done += 1;
        }
        if done == 3 {
            let got = if in_place { &inputs } else { &outputs };
            assert!(got.iter().all(|got| *got == want), "seed {seed}");
            return;
        }
    }
    panic!("{schedule} of {count}, in place {in_place}, seed {seed}: {done} of 3 are done");
}

#[test]
fn a_ring_through_a_small_board_comes_to_its_end() {
    for seed in 0..200 {
        reduce(&Schedule::Ring, 150, seed % 2 == 1, seed);
        reduce(&Schedule::Ring, 64 * 30, seed % 2 == 0, seed);
    }
}
