//! Boots boards under QEMU and holds every collective that makes sense with them against the
//! scalar reference, bit for bit.

#[path = "../world/mod.rs"]
mod world;

use unisono_core::schedule::{Nodes, Owners};
use unisono_core::{Kind, Schedule};
use unisono_link_window::Shape;
use unisono_offload_dpu::{Board, Machine};
use world::all::{Sizes, all_of};
use world::data::{call, expected, inputs, job};
use world::{WindowWorld, options};

/// Elements: none, fewer than ranks, a few chunks with a rest.
const SIZES: Sizes = Sizes { counts: [0, 1, 1500], chunk: 256, window: 3, step: 1 };
const MEMORY: u32 = 1 << 18;

fn start(machine: &'static Machine, peers: u16) -> Board {
    let mut options = options(machine, peers);
    options.memory = MEMORY;
    Board::start(&options).expect("a board")
}

fn as_aggregator(machine: &'static Machine) {
    let mut board = start(machine, 5);
    for (epoch, ranks) in (0..).zip([2, 3, 5]) {
        let mut world = WindowWorld::new(board, ranks, ranks, epoch);
        let star = call(Kind::AllReduce, ranks, 0).schedule;
        let calls = all_of(&mut world, ranks, &star, &SIZES);
        // The board owns as many chunks as all ranks together.
        let mut weights = vec![1; ranks.into()];
        weights.push(ranks.into());
        let owners = Owners::weighted(ranks, &weights).expect("a table");
        let more = all_of(&mut world, ranks, &Schedule::Direct(owners), &SIZES);
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
        let mut world = WindowWorld::new(board, ranks, rank, epoch);
        // Each rank runs some of the schedules, and all run all of them.
        for (i, schedule) in schedules.iter().flatten().enumerate() {
            if epoch > 0 && i as u32 % 3 != epoch {
                continue;
            }
            let calls = all_of(&mut world, ranks, schedule, &SIZES);
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
    let mut world = WindowWorld::new(board, 2, 2, 0);
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

#[test]
fn linux_aggregates() {
    as_aggregator(&Machine::LINUX_AARCH64);
}

#[test]
fn linux_is_a_rank() {
    as_rank(&Machine::LINUX_AARCH64);
}
