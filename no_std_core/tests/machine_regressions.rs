//! One small world for each mistake that was once made.

mod world;

use unisono_core::machine::{Action, Machine, Payload, Room};
use unisono_core::route::Rank;
use unisono_core::schedule::{Aggregators, Owners};
use unisono_core::wire::frame::{Body, Header};
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

/// Runs a case with the fewest slots, a device that takes two sources, in many orders.
fn in_a_pinch(schedule: &Schedule, n: u16, root: u16, kind: Kind) {
    let mut world = World::new();
    for joins in [Joins::All(Join::Bytes), Joins::All(Join::Span), Joins::Mixed] {
        for seed in 0..40 {
            let mut case = Case::new(schedule.clone(), kind, n, 4);
            case.layout.root = root;
            (case.joins, case.sources_max, case.dests_max) = (joins, 2, 1);
            (case.turns, case.seed, case.in_place) = (Turns::Random, seed, seed % 2 == 0);
            world.run(&case);
        }
    }
}

/// Contributions that wait for their partner must not keep the partner's slot from it.
#[test]
fn an_owner_needs_few_slots() {
    for n in [3, 4, 7, 8, 15, 16] {
        in_a_pinch(&direct(n), n, 0, Kind::AllReduce);
        in_a_pinch(&Schedule::OneShot, n, 0, Kind::AllReduce);
    }
}

/// The last rank of a binomial tree waits for one subtree of each level before it can fold any.
#[test]
fn a_root_needs_few_slots() {
    for n in [2, 4, 6, 8, 13, 16] {
        in_a_pinch(&Schedule::Binomial, n, n - 1, Kind::Reduce);
        in_a_pinch(&Schedule::HalvingDoubling, n, 0, Kind::AllReduce);
    }
}

/// The finishing pass writes results into the windows, however many passes there were before.
#[test]
fn windows_outlast_partial_folds() {
    for (sources_max, dests_max, puts) in [(32, 32, 6), (2, 32, 6), (2, 4, 3), (32, 1, 0)] {
        let mut case = Case::new(direct(7), Kind::AllReduce, 7, 5);
        case.joins = Joins::All(Join::Put);
        (case.sources_max, case.dests_max) = (sources_max, dests_max);
        let mut world = World::new();
        world.run(&case);
        assert_eq!(world.puts, 5 * puts, "{sources_max} sources, {dests_max} destinations");
    }
}

/// Room for everything.
struct Roomy;

impl Room for Roomy {
    fn send(&mut self, _: Rank) -> bool {
        true
    }

    fn device(&mut self) -> bool {
        true
    }
}

/// Rank 1 waits for chunk 1 of rank 0: a device that computes in rank 0's thread must not fold
/// chunk 0 first, although rank 1's part of it is here already.
#[test]
fn frames_go_out_before_folds() {
    let mut case = Case::new(direct(2), Kind::AllReduce, 2, 2);
    case.eager = 2;
    let mut machines = [0, 1].map(|rank| {
        let mut machine = Machine::<u64, 4, 16, 2>::new();
        machine.start(&case.config(rank, 1), u64::MAX).unwrap();
        machine
    });
    let Some(Action::Send { data, .. }) = machines[1].poll_action(&mut Roomy) else {
        panic!("rank 1 has something to send");
    };
    assert_eq!(data.chunk, 0);
    let print = machines[1].fingerprint();
    let header = Header { epoch: 7, op: 1, from: 1, print, body: Body::Data(data) };
    let payload = Payload::At { mem: 0, window: None, handle: 0 };
    assert!(machines[0].handle_frame(&header, Some(payload), None));
    let mut first = || machines[0].poll_action(&mut Roomy);
    assert!(matches!(first(), Some(Action::Send { data, .. }) if data.chunk == 1));
    assert!(matches!(first(), Some(Action::Fold { .. })));
}
