//! Every schedule, every collective it can do, every group of up to 16 ranks, every remainder.

mod world;

use unisono_core::Kind;
use world::{World, space};

/// Windows: one chunk at a time, two, and more than most calls have.
const WINDOWS: [u16; 3] = [1, 2, 5];

/// Calls with chunks of one element: all groups, all counts, all windows.
fn grid(kind: Kind) {
    let mut world = World::new();
    let (mut cases, mut steps) = (0, 0);
    for n in 1..=16 {
        for able in space::able(kind, n) {
            for count in 0..=3 * u64::from(n) + 1 {
                for window in WINDOWS {
                    let root = if kind.is_rooted() { (count % u64::from(n)) as u16 } else { 0 };
                    world.run(&space::case(&able, kind, n, count, 1, window, root));
                    cases += 1;
                    steps += world.steps;
                    world.steps = 0;
                }
            }
        }
    }
    println!("{kind}: {cases} cases, {steps} steps");
}

#[test]
fn all_reduce() {
    grid(Kind::AllReduce);
}

#[test]
fn reduce() {
    grid(Kind::Reduce);
}

#[test]
fn broadcast() {
    grid(Kind::Broadcast);
}

#[test]
fn reduce_scatter() {
    grid(Kind::ReduceScatter);
}

#[test]
fn all_gather() {
    grid(Kind::AllGather);
}

#[test]
fn all_to_all() {
    grid(Kind::AllToAll);
}

#[test]
fn barrier() {
    grid(Kind::Barrier);
}

#[test]
fn longer_chunks() {
    let mut world = World::new();
    for n in 1..=16 {
        for kind in Kind::ALL {
            for able in space::able(kind, n) {
                for (chunk, count) in [(2, 5), (3, 3), (3, 10), (64, 7), (2, 2 * u64::from(n))] {
                    let turn = able.0 + chunk + count + u64::from(n);
                    let window = WINDOWS[(turn % 3) as usize];
                    let root = if kind.is_rooted() { (turn % u64::from(n)) as u16 } else { 0 };
                    world.run(&space::case(&able, kind, n, count, chunk, window, root));
                }
            }
        }
    }
}

#[test]
fn every_root() {
    let mut world = World::new();
    for n in 1..=16 {
        for kind in [Kind::Reduce, Kind::Broadcast] {
            for able in space::able(kind, n) {
                for root in 0..n {
                    world.run(&space::case(&able, kind, n, 3, 1, 2, root));
                }
            }
        }
    }
}
