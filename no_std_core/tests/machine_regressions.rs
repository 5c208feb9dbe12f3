//! One small world for each mistake that was once made.

mod world;

use unisono_core::schedule::{Aggregators, Owners};
use unisono_core::{Kind, Schedule};
use world::{Case, Join, Joins, Turns, World};

fn direct(n: u16) -> Schedule {
    Schedule::Direct(Owners::equal(n).unwrap())
}

/// A rank alone, in place, has nothing to copy, but its result is not there before its input is.
#[test]
fn a_result_in_place_waits_for_its_source() {
    let mut case = Case::new(direct(1), Kind::AllGather, 1, 4);
    (case.in_place, case.grows, case.turns) = (true, true, Turns::Random);
    for seed in 0..20 {
        case.seed = seed;
        World::new().run(&case);
    }
}

/// An aggregator has no output, so there is no progress in it.
#[test]
fn an_aggregator_makes_no_progress() {
    let star = Schedule::Star(Aggregators::new(1).unwrap());
    World::new().run(&Case::new(star, Kind::AllReduce, 2, 3));
}

/// What an aggregator only hands on has no place in an output: it goes through a slot.
#[test]
fn an_aggregator_hands_results_on() {
    let star = Schedule::Star(Aggregators::new(1).unwrap());
    for kind in [Kind::Broadcast, Kind::AllGather] {
        for join in [Join::Span, Join::Put, Join::Bytes] {
            let mut case = Case::new(star.clone(), kind, 3, 5);
            case.joins = Joins::All(join);
            World::new().run(&case);
        }
    }
}
