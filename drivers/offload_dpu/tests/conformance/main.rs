//! Boots boards under QEMU and holds every collective that makes sense with them against the
//! scalar reference, bit for bit.

#[path = "../world/mod.rs"]
mod world;

use unisono_core::schedule::{Nodes, Owners};
use unisono_core::{DType, Kind, Order, ReduceOp, Schedule};
use unisono_link_window::Shape;
use unisono_offload_dpu::{Board, Machine};
use world::data::{call, check, expected, inputs, job};
use world::{World, options};

/// Elements: none, fewer than ranks, a few chunks with a rest.
const COUNTS: [u64; 3] = [0, 1, 1500];
const MEMORY: u32 = 1 << 18;

fn start(machine: &'static Machine, peers: u16) -> Board {
    let mut options = options(machine, peers);
    options.memory = MEMORY;
    Board::start(&options).expect("a board")
}

/// Every type and operator that the board states, and `None` for collectives that do not reduce.
fn types(board: &Board, kind: Kind) -> Vec<(DType, Option<ReduceOp>)> {
    let identity = board.identity();
    let dtypes = || (0..).zip(DType::ALL).filter(|(i, _)| identity.dtypes >> i & 1 == 1);
    let ops = || (0..).zip(ReduceOp::ALL).filter(|(i, _)| identity.ops >> i & 1 == 1);
    if !kind.reduces() {
        return dtypes().map(|(_, dtype)| (dtype, None)).collect();
    }
    let pairs = dtypes().flat_map(|(_, dtype)| ops().map(move |(_, op)| (dtype, Some(op))));
    pairs.filter(|(dtype, op)| op.is_some_and(|op| op.supports(*dtype))).collect()
}

/// Every kind that the schedule has, with every type, by some counts, in place and not.
fn all_of(world: &mut World, ranks: u16, schedule: &Schedule) -> usize {
    let mut calls = 0;
    for kind in Kind::ALL.into_iter().filter(|&k| schedule.supports(k, ranks)) {
        for (dtype, op) in types(&world.board, kind) {
            let canonical = |op| Order::Canonical.permits(schedule, kind, ranks, op, dtype);
            if !op.is_none_or(canonical) {
                continue;
            }
            let count = COUNTS[calls % COUNTS.len()];
            let root = if kind.is_rooted() { calls as u16 % ranks } else { 0 };
            let mut call = call(kind, ranks, count);
            (call.schedule, call.dtype, call.op, call.root) = (schedule.clone(), dtype, op, root);
            let in_place = calls % 2 == 1 && kind != Kind::AllToAll;
            let job = job(call, in_place);
            let inputs = inputs(&job.call);
            let outputs = world.succeed(&job, &inputs);
            check(&job, &outputs, &inputs);
            calls += 1;
        }
    }
    calls
}

fn as_aggregator(machine: &'static Machine) {
    let mut board = start(machine, 5);
    for (epoch, ranks) in (0..).zip([2, 3, 5]) {
        let mut world = World::new(board, ranks, ranks, epoch);
        let star = call(Kind::AllReduce, ranks, 0).schedule;
        let calls = all_of(&mut world, ranks, &star);
        // The board owns as many chunks as all ranks together.
        let mut weights = vec![1; ranks.into()];
        weights.push(ranks.into());
        let owners = Owners::weighted(ranks, &weights).expect("a table");
        let more = all_of(&mut world, ranks, &Schedule::Direct(owners));
        println!("{}: aggregator for {ranks} ranks: {calls} + {more} calls", machine.name);
        board = world.board;
    }
}

fn as_rank(machine: &'static Machine) {
    let mut board = start(machine, 4);
    let ranks = 4;
    let schedules = [
        Owners::equal(ranks).map(Schedule::Direct),
        Some(Schedule::OneShot),
        Some(Schedule::Binomial),
        Some(Schedule::HalvingDoubling),
        Some(Schedule::Ring),
        Some(Schedule::DoubleTree),
        Nodes::even(ranks, 2).map(Schedule::Hierarchical),
    ];
    for (epoch, rank) in (0..).zip([0, 2, 3]) {
        let mut world = World::new(board, ranks, rank, epoch);
        // Each rank runs some of the schedules, and all run all of them.
        for (i, schedule) in schedules.iter().flatten().enumerate() {
            if epoch > 0 && i as u32 % 3 != epoch {
                continue;
            }
            let calls = all_of(&mut world, ranks, schedule);
            println!("{}: rank {rank} of {ranks}, {schedule}: {calls} calls", machine.name);
        }
        board = world.board;
    }
}

/// A tensor of 64 MiB through an aggregator that has slots of 64 KiB.
fn large(machine: &'static Machine, count: u64) {
    let mut options = options(machine, 2);
    options.shape = Shape { channels: 2, units: 32, slots: 8, slot_bytes: 4096 };
    let board = Board::start(&options).expect("a board");
    let scratch = board.identity().scratch;
    assert!(scratch <= 64 << 10, "{scratch} bytes of slots");
    let mut world = World::new(board, 2, 2, 0);
    let mut call = call(Kind::AllReduce, 2, count);
    (call.chunk, call.window) = (1024, 5);
    let job = job(call, true);
    let inputs = inputs(&job.call);
    let outputs = world.succeed(&job, &inputs);
    let want = expected(&job, &inputs);
    assert!(outputs == want, "bits of {count} elements");
}

#[test]
fn aarch64_aggregates() {
    as_aggregator(&Machine::QEMU_AARCH64);
}

#[test]
fn aarch64_is_a_rank() {
    as_rank(&Machine::QEMU_AARCH64);
}

#[test]
fn aarch64_aggregates_64_mib_with_64_kib_of_slots() {
    large(&Machine::QEMU_AARCH64, 16 << 20);
}

#[test]
fn riscv64_aggregates() {
    as_aggregator(&Machine::QEMU_RISCV64);
}

#[test]
fn riscv64_is_a_rank() {
    as_rank(&Machine::QEMU_RISCV64);
}

/// Soft floating point is slow, so the tensor is smaller than that of the other board.
#[test]
fn riscv64_aggregates_8_mib_with_64_kib_of_slots() {
    large(&Machine::QEMU_RISCV64, 2 << 20);
}
