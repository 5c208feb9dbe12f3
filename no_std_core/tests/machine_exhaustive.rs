//! Every schedule, every collective it can do, every group of up to 16 ranks, every remainder.

mod world;

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::thread;
use unisono_core::Kind;
use world::{World, space};

/// Windows: one chunk at a time, two, and more than most calls have.
const WINDOWS: [u16; 3] = [1, 2, 5];

/// Ranks of the largest group.
const LARGEST: u16 = 16;

/// Calls with chunks of one element: all groups, all counts, all windows.
fn grid(kind: Kind) {
    // Large groups take most of the time, so they come first, and whoever is free takes the next.
    let (left, total) = (AtomicU16::new(LARGEST), Mutex::new((0, 0)));
    let work = || {
        let mut world = World::new();
        let next = || left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).ok();
        while let Some(n @ 1..) = next() {
            let (cases, steps) = groups_of(n, kind, &mut world);
            let mut total = total.lock().unwrap();
            *total = (total.0 + cases, total.1 + steps);
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (cases, steps) = total.into_inner().unwrap();
    println!("{kind}: {cases} cases, {steps} steps");
}

/// Those of `n` ranks; how many calls, and how many steps they took.
fn groups_of(n: u16, kind: Kind, world: &mut World) -> (u64, u64) {
    let (mut cases, mut steps) = (0, 0);
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
    (cases, steps)
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
    for n in 1..=LARGEST {
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
    for n in 1..=LARGEST {
        for kind in [Kind::Reduce, Kind::Broadcast] {
            for able in space::able(kind, n) {
                for root in 0..n {
                    world.run(&space::case(&able, kind, n, 3, 1, 2, root));
                }
            }
        }
    }
}
