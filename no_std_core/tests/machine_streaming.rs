//! The source still grows, the sink is of use early.

mod world;

use unisono_core::Kind;
use world::{Event, Note, World, space};

/// Whatever all sources have reached is final everywhere, without anything more being said.
#[test]
fn progress_is_where_the_slowest_source_is() {
    let mut world = World::new();
    world.dry = true;
    for n in 1..=7u16 {
        for (number, schedule) in space::able(Kind::AllReduce, n) {
            for seed in 0..12 {
                let able = (number, schedule.clone());
                let window = 1 + (seed % 5) as u16;
                let mut case = space::case(&able, Kind::AllReduce, n, 20, 1, window, 0);
                (case.grows, case.seed) = (true, case.seed ^ seed);
                step_by_step(&mut world, &case);
            }
        }
    }
}

fn step_by_step(world: &mut World, case: &world::Case) {
    let _note = Note(case);
    world.begin(case);
    world.drain();
    loop {
        let sources = &world.members[..usize::from(case.layout.ranks)];
        let slowest = sources.iter().map(|m| m.ready).min().unwrap();
        for member in sources {
            assert_eq!(member.progress, slowest, "not all that could be done is done");
        }
        if slowest == case.layout.count {
            break;
        }
        let rank = world.dice(u64::from(case.layout.ranks)) as u16;
        world.push(Event::Grow(rank));
        world.drain();
    }
    world.check_done();
}

/// Every collective with a source that grows in random steps while everything else goes on.
#[test]
fn a_growing_source_changes_no_result() {
    let mut world = World::new();
    for n in [1, 2, 3, 6, 8] {
        for kind in Kind::ALL {
            for able in space::able(kind, n) {
                for (count, chunk) in [(7, 1), (11, 3), (5, 8)] {
                    let root = if kind.is_rooted() { n / 2 } else { 0 };
                    let mut case = space::case(&able, kind, n, count, chunk, 3, root);
                    case.grows = true;
                    world.run(&case);
                }
            }
        }
    }
}
