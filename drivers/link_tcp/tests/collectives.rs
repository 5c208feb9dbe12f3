//! Whole calls of engines in threads over TCP: the bits of the reference, with several calls in
//! flight, spinning and sleeping.

mod common;

use common::{Buffers, GUARD, link, sleep_on, streams};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::thread;
use std::time::Instant;
use unisono_core::fold::leaf_merges;
use unisono_core::machine::Config;
use unisono_core::schedule::Owners;
use unisono_core::{
    DType, Finish, Form, Kind, Layout, ReduceOp, Scalar, Schedule, Source, numeric,
};
use unisono_device_scalar::ScalarDevice;
use unisono_driver::HostPtr;
use unisono_link_tcp::{End, TcpLink};
use unisono_runtime::{Buffers as Memory, Call, Engine};

const CHANNELS: usize = 4;
const WINDOW: u16 = 8;
const CHUNK: u64 = 5_000;
type Member = Engine<ScalarDevice, TcpLink<HostPtr>, CHANNELS, 8, 8, 4>;

/// Any bits, so NaNs and infinities, too; sums have to be rounded.
fn input(rank: u16, call: usize, count: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15 ^ u64::from(rank) << 32 ^ (call as u64) << 20;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u32
    };
    let float = |bits: u32| {
        if bits.is_multiple_of(50) { bits } else { (bits as f32 / 3e8 - 7.0).to_bits() }
    };
    (0..count).flat_map(|_| float(next()).to_le_bytes()).collect()
}

fn reference(ranks: u16, call: usize, count: usize) -> Vec<u8> {
    let inputs: Vec<_> = (0..ranks).map(|rank| input(rank, call, count)).collect();
    let sources = inputs.iter().zip(leaf_merges(ranks.into()));
    let weight = Scalar::one(DType::F32);
    let sources: Vec<_> = sources
        .map(|(mem, merges)| Source { mem: &mem[..], form: Form::Leaf, weight, merges })
        .collect();
    let mut out = vec![0; count * 4];
    let finish = Finish::Final { ranks: ranks.into() };
    numeric::fold(DType::F32, Some(ReduceOp::Sum), finish, &sources, &mut out).expect("a fold");
    out
}

fn config(schedule: &Schedule, ranks: u16, count: usize) -> Config {
    let count = count as u64;
    let layout = Layout { kind: Kind::AllReduce, ranks, count, chunk: CHUNK, root: 0 };
    Config {
        epoch: 1,
        op_id: 0,
        rank: 0,
        schedule: schedule.clone(),
        schedule_print: schedule.fingerprint(),
        layout,
        dtype: DType::F32,
        op: Some(ReduceOp::Sum),
        weight: Scalar::one(DType::F32),
        window: WINDOW,
        eager: 0,
        slots: 0,
        by_bytes: 0,
        puts: 0,
        input_private: false,
        output_private: false,
        in_place: false,
        sources_max: 0,
        dests_max: 0,
        deadline: None,
    }
}

/// Makes all calls with up to [`CHANNELS`] in flight, and checks each result.
fn make_calls(mut member: Member, rank: u16, ranks: u16, counts: &[usize], sleeps: bool) {
    let schedules = [
        Schedule::Direct(Owners::equal(ranks).expect("a few ranks")),
        Schedule::HalvingDoubling,
        Schedule::Binomial,
        Schedule::OneShot,
    ];
    let since = Instant::now();
    let mut flying = std::collections::VecDeque::new();
    let mut todo = counts.iter().enumerate();
    loop {
        while member.has_channel()
            && let Some((call, &count)) = todo.next()
        {
            let mut config = config(&schedules[call % schedules.len()], ranks, count);
            member.fit(&mut config).expect("it can run");
            let mut from = input(rank, call, count);
            let mut to = vec![0u8; count * 4];
            let bytes = config.slot_bytes() as usize * usize::from(config.slots);
            let mut scratch = vec![0u64; (bytes * usize::from(WINDOW)).div_ceil(8)];
            let buffers = Memory {
                input: HostPtr::new(from.as_mut_ptr()),
                output: HostPtr::new(to.as_mut_ptr()),
                scratch: HostPtr::new(scratch.as_mut_ptr().cast()),
            };
            let mut begun = Call { config, buffers, source_ready: u64::MAX };
            // SAFETY: the buffers are kept until the result.
            let op = unsafe { member.begin(&mut begun) }.expect("a channel is free");
            flying.push_back((op, call, from, to, scratch));
        }
        let Some((op, call, _, to, _)) = flying.front() else { return };
        let call = *call;
        if let Some(result) = member.result(*op) {
            assert_eq!(result, Ok(()), "rank {rank} of {ranks}, call {call}");
            let want = reference(ranks, call, counts[call]);
            assert!(*to == want, "rank {rank} of {ranks}, call {call}: not the reference's bits");
            flying.pop_front();
        } else if !member.poll() && sleeps {
            let links: Vec<_> = member.links().iter().flatten().collect();
            assert!(sleep_on(&links, GUARD), "rank {rank} of {ranks}, call {call}");
        }
        assert!(since.elapsed() < GUARD, "rank {rank} of {ranks}, call {call}");
    }
}

/// `streams[a][b]`: from a to b.
fn connect(ranks: usize, buffers: Buffers) -> Vec<Vec<Vec<TcpStream>>> {
    let empty = || (0..ranks).map(|_| Vec::new()).collect();
    let mut all: Vec<Vec<Vec<TcpStream>>> = (0..ranks).map(|_| empty()).collect();
    let pairs = (0..ranks).flat_map(|a| (a + 1..ranks).map(move |b| (a, b)));
    for (a, b) in pairs.flat_map(|pair| [pair; CHANNELS]) {
        let (near, far) = streams(IpAddr::V4(Ipv4Addr::LOCALHOST), buffers);
        all[a][b].push(near);
        all[b][a].push(far);
    }
    all
}

fn reduce(ranks: u16, buffers: Buffers, counts: &[usize], sleeps: bool) {
    let members = connect(ranks.into(), buffers).into_iter().zip(0..);
    let members: Vec<_> = members
        .map(|(streams, rank)| {
            let end = |peer: u16| if rank < peer { End::First } else { End::Second };
            let links = streams.into_iter().zip(0..);
            let links = links.map(|(s, peer)| (!s.is_empty()).then(|| link(s, end(peer))));
            (rank, Member::new(rank, 1, ScalarDevice::default(), links.collect()))
        })
        .collect();
    thread::scope(|scope| {
        for (rank, member) in members {
            scope.spawn(move || make_calls(member, rank, ranks, counts, sleeps));
        }
    });
}

/// Every schedule with the empty tensor, small ones, and some of many chunks.
const COUNTS: [usize; 16] =
    [0, 1, 2, 7, 1, 1000, 5_001, 64, 100_000, 60_001, 3, 20_000, 12, 40_000, 200_001, 2];

#[test]
fn two_members_get_the_bits_of_the_reference() {
    reduce(2, Buffers::System, &COUNTS, false);
}

#[test]
fn three_members_that_sleep_get_the_bits_of_the_reference() {
    reduce(3, Buffers::System, &COUNTS, true);
}

#[test]
fn four_members_that_sleep_get_the_bits_of_the_reference() {
    reduce(4, Buffers::System, &COUNTS, true);
}

#[test]
fn tiny_buffers_change_no_bit() {
    reduce(3, Buffers::Tiny, &COUNTS[..12], true);
}
