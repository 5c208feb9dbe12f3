//! Calls that fail: everybody learns it, everybody can go on.

mod world;

use unisono_core::machine::{Config, Status};
use unisono_core::schedule::{Aggregators, Owners};
use unisono_core::time::Instant;
use unisono_core::wire::frame::{Abort, Body, Phase};
use unisono_core::{DType, Kind, ReduceOp, Schedule};
use world::shapes::Rng;
use world::{Case, Join, Joins, Note, Rank, Turns, World, space};

const DEADLINE: Instant = Instant::from_nanos(100);

fn direct(n: u16) -> Schedule {
    Schedule::Direct(Owners::equal(n).unwrap())
}

/// What a rank may get wrong.
#[derive(Clone, Copy, Debug)]
enum Slip {
    Kind,
    DType,
    Op,
    Count,
    NoCount,
    Root,
    Chunk,
    Schedule,
}

const SLIPS: [Slip; 8] = [
    Slip::Kind,
    Slip::DType,
    Slip::Op,
    Slip::Count,
    Slip::NoCount,
    Slip::Root,
    Slip::Chunk,
    Slip::Schedule,
];

/// Changes a rank's call; false if the slip is not possible here.
fn slip(config: &mut Config, slip: Slip) -> bool {
    let n = config.layout.ranks;
    match slip {
        Slip::Kind => {
            let able = |&k: &Kind| k != config.layout.kind && config.schedule.supports(k, n);
            let Some(kind) = Kind::ALL.into_iter().rev().find(able) else { return false };
            config.layout.kind = kind;
            config.op = kind.reduces().then_some(ReduceOp::PreMulSum);
            (config.layout.root, config.eager) = (0, 0);
        }
        Slip::DType => config.dtype = DType::BF16,
        Slip::Op if config.op.is_some() => config.op = Some(ReduceOp::Max),
        Slip::Op => return false,
        Slip::Count => config.layout.count += 1,
        Slip::NoCount => config.layout.count = 0,
        Slip::Root if config.layout.kind.is_rooted() => {
            config.layout.root = (config.layout.root + 1) % n;
        }
        Slip::Root => return false,
        Slip::Chunk => config.layout.chunk += 1,
        Slip::Schedule => {
            let same = config.schedule.members(n) == n && config.layout.kind == Kind::AllReduce;
            if !same {
                return false;
            }
            let ring = config.schedule == Schedule::Ring;
            config.schedule = if ring { Schedule::Binomial } else { Schedule::Ring };
            config.schedule_print = config.schedule.fingerprint();
        }
    }
    config.slots = 31;
    true
}

/// One rank differs: everybody says so and nobody hangs. Who has no part in the call may not know.
fn mismatch(world: &mut World, case: &Case, odd: Rank, what: Slip) {
    let case = &Case { deadline: Some(DEADLINE), ..case.clone() };
    let _note = Note(case);
    world.begin(case);
    let mut config = case.config(odd, 1);
    config.in_place = false;
    if !slip(&mut config, what) {
        return;
    }
    world.prepare(odd, config);
    world.drain();
    let silent = (0..case.members()).all(|r| world.status(r) == Status::Running);
    if silent {
        // Everybody waits for somebody who waits for somebody else: no frame has been sent.
        assert!(matches!(what, Slip::Schedule | Slip::Root), "{what:?}");
        world.act(odd, |m| m.handle_timeout(DEADLINE));
        world.drain();
    }
    for rank in 0..case.members() {
        let why = world.abort(rank);
        let Abort::Mismatch { a, a_print, b, b_print } = why else {
            assert!(silent && rank == odd, "rank {rank}, {odd} makes {what:?}: {why:?}");
            continue;
        };
        assert_ne!(a_print, b_print);
        assert_eq!((world.print(a), world.print(b)), (a_print, b_print), "{a} and {b}");
    }
    world.next_call(2);
}

#[test]
fn calls_that_do_not_match_fail_everywhere() {
    let mut world = World::new();
    let mut cases = 0u64;
    for n in [2, 3, 5, 8] {
        for kind in Kind::ALL {
            for able in space::able(kind, n) {
                for count in [0, 1, u64::from(n) + 2] {
                    for what in SLIPS {
                        let root = if kind.is_rooted() { n - 1 } else { 0 };
                        let mut case = space::case(&able, kind, n, count, 1, 2, root);
                        case.seed ^= cases;
                        let odd = Rng(case.seed).below(u64::from(case.members())) as Rank;
                        if count > 0 || !matches!(what, Slip::NoCount) {
                            mismatch(&mut world, &case, odd, what);
                            cases += 1;
                        }
                    }
                }
            }
        }
    }
    println!("{cases} cases");
}

/// A case in which much is under way at once.
fn busy(seed: u64, schedule: Schedule, kind: Kind, n: u16) -> Case {
    let mut case = Case::new(schedule, kind, n, 3 * u64::from(n));
    case.window = 1 + (seed % 5) as u16;
    let mut case = case.draw(space::seed_of(&[seed, u64::from(n), kind as u64]));
    case.turns = Turns::Random;
    case
}

/// Breaks a call at a random point, then runs two more over what it has left behind.
fn break_it(world: &mut World, case: &Case, how: impl Fn(&mut World, Rank) -> Abort) {
    let _note = Note(case);
    world.begin(case);
    let members = u64::from(case.members());
    let n = members as Rank;
    let length = case.layout.chunks().max(1) * members * 6;
    let most = world.dice(length);
    world.go(most);
    // Some frames of the broken call come only during the next one.
    for _ in 0..world.dice(3) {
        let pair = (world.dice(members) as Rank, world.dice(members) as Rank);
        world.cut.push(pair);
    }
    let who = world.dice(members) as Rank;
    if world.status(who) == Status::Idle {
        return;
    }
    let why = how(world, who);
    if world.status(who) == Status::Done {
        return;
    }
    let first = world.status(who);
    assert!(matches!(first, Status::Failing(w) | Status::Failed(w) if w == why), "{first:?}");
    world.go(members * 20);
    for rank in 0..n {
        // A member whose channel is full or cut gives up telling.
        world.act(rank, |m| {
            if matches!(m.status(), Status::Failing(_)) {
                m.stop_telling();
            }
        });
        // One that nobody could tell notices a lost peer.
        world.act(rank, |m| m.handle_peer_lost(who));
        world.act(rank, |m| {
            if matches!(m.status(), Status::Failing(_)) {
                m.stop_telling();
            }
        });
    }
    world.next_call(2);
    world.next_call(3);
}

fn break_all(how: impl Fn(&mut World, Rank) -> Abort) {
    let mut world = World::new();
    let mut seed = 0;
    for n in [2, 3, 4, 7] {
        for kind in [Kind::AllReduce, Kind::ReduceScatter, Kind::Broadcast, Kind::Reduce] {
            for (number, schedule) in space::able(kind, n) {
                for _ in 0..6 {
                    seed += 1;
                    let case = busy(seed ^ number << 32, schedule.clone(), kind, n);
                    break_it(&mut world, &case, &how);
                }
            }
        }
    }
}

#[test]
fn a_cancelled_call_can_be_followed_by_another() {
    break_all(|world, who| {
        world.act(who, |m| m.cancel());
        Abort::Cancelled { rank: who }
    });
}

#[test]
fn a_lost_peer_can_come_back() {
    break_all(|world, who| {
        let lost = (who + 1) % world.case.members();
        world.act(who, |m| m.handle_peer_lost(lost));
        Abort::PeerLost { rank: lost }
    });
}

#[test]
fn a_device_may_fail() {
    break_all(|world, who| {
        world.act(who, |m| m.handle_device_error());
        Abort::DeviceFailed { rank: who }
    });
}

/// Everybody ends with what one member says.
fn all_say(world: &mut World, why: Abort) {
    world.drain();
    for rank in 0..world.case.members() {
        assert_eq!(world.abort(rank), why, "rank {rank}");
    }
}

#[test]
fn one_reason_is_told_to_everybody() {
    let mut world = World::new();
    let case = Case::new(Schedule::Ring, Kind::AllReduce, 5, 20);
    world.begin(&case);
    world.go(100);
    world.act(3, |m| m.cancel());
    all_say(&mut world, Abort::Cancelled { rank: 3 });
    world.next_call(2);

    world.begin(&case);
    world.go(100);
    world.act(2, |m| m.handle_peer_lost(4));
    // Rank 2 does not tell the lost one; the others, who have not lost it, do.
    all_say(&mut world, Abort::PeerLost { rank: 4 });

    world.begin(&case);
    world.go(100);
    world.act(0, |m| m.handle_device_error());
    all_say(&mut world, Abort::DeviceFailed { rank: 0 });
}

/// Cuts links, lets time pass on one member and returns what everybody is told.
fn stands_at(case: &Case, cut: &[(Rank, Rank)], late: Rank) -> (Rank, u64, Phase) {
    let mut world = World::new();
    let mut case = case.clone();
    case.deadline = Some(DEADLINE);
    world.set_up(&case);
    world.cut.extend_from_slice(cut);
    for rank in 0..case.members() {
        world.push(world::Event::Start(rank));
    }
    world.drain();
    let due = |world: &mut World| world.member(late).machine.poll_timeout();
    assert_eq!(due(&mut world), Some(Instant::ZERO), "the first look at the clock");
    world.act(late, |m| m.handle_timeout(Instant::from_nanos(99)));
    assert_eq!(due(&mut world), Some(DEADLINE));
    assert_eq!(world.status(late), Status::Running, "before the deadline");
    world.act(late, |m| m.handle_timeout(DEADLINE));
    world.mend();
    world.drain();
    assert_eq!(due(&mut world), None);
    let why = world.abort(late);
    let Abort::Deadline { rank, waiting_for, chunk, phase } = why else { panic!("{why:?}") };
    assert_eq!(rank, late);
    for other in 0..case.members() {
        // Some had their part already.
        let status = world.status(other);
        assert!(status == Status::Done || status == Status::Failed(why), "{status:?}");
    }
    (waiting_for, chunk, phase)
}

#[test]
fn a_deadline_names_where_the_call_stands() {
    let case = Case::new(direct(3), Kind::AllReduce, 3, 6);
    // The owner lacks a contribution; the others lack its result.
    assert_eq!(stands_at(&case, &[(2, 0)], 0), (2, 0, Phase::Contribution));
    assert_eq!(stands_at(&case, &[(2, 0)], 1), (0, 0, Phase::Result));
    // Nobody may send to the owner because its limit does not come through.
    assert_eq!(stands_at(&case, &[(0, 2)], 2), (0, 0, Phase::Contribution));
    // A later chunk is the lowest one that lacks something.
    let case = Case::new(direct(3), Kind::ReduceScatter, 3, 1);
    assert_eq!(stands_at(&case, &[(2, 1)], 1), (2, 1, Phase::Contribution));
    // A payload that its receiver does not give back: rank 0 never hears that 1 can take it.
    let case = Case::new(direct(2), Kind::Broadcast, 2, 1);
    assert_eq!(stands_at(&case, &[(1, 0)], 0), (1, 0, Phase::Result));
    // Only the agreement is missing.
    let case = Case::new(direct(4), Kind::Barrier, 4, 0);
    assert_eq!(stands_at(&case, &[(1, 3)], 3), (1, 0, Phase::Contribution));
}

/// An aggregator without a chunk has a part in the agreement, so it cannot miss a mismatch.
#[test]
fn an_idle_aggregator_notices_a_mismatch() {
    let star = Schedule::Star(Aggregators::new(3).unwrap());
    let case = Case::new(star, Kind::AllReduce, 2, 1);
    mismatch(&mut World::new(), &case, 4, Slip::DType);
    mismatch(&mut World::new(), &case, 0, Slip::Op);
}

/// Frames of other calls, and calls of another epoch, change nothing.
#[test]
fn stale_frames_change_nothing() {
    let mut worlds = [World::new(), World::new()];
    for seed in 0..150 {
        let kinds = [Kind::AllReduce, Kind::AllGather, Kind::Reduce];
        let n = 2 + (seed % 5) as u16;
        for (i, world) in worlds.iter_mut().enumerate() {
            let kind = kinds[(seed as usize + i) % 3];
            let able: Vec<_> = space::able(kind, n).collect();
            let (_, schedule) = &able[seed as usize % able.len()];
            let mut case = busy(seed ^ 77, schedule.clone(), kind, n);
            case.depth = 50;
            world.begin(&case);
        }
        let mut dice = Rng(seed);
        let mut running = true;
        while running {
            let i = dice.below(2) as usize;
            let other = worlds[i].step();
            running = other | worlds[1 - i].step();
            let (from, to) = (dice.below(n.into()) as Rank, dice.below(n.into()) as Rank);
            if worlds[i].member(from).op > 0 && dice.one_in(3) && other {
                let limit = dice.below(100);
                let mut header = worlds[i].header(from, Body::Credit { limit });
                match dice.below(3) {
                    0 => header.epoch += 1,
                    1 => header.op = 0,
                    _ => {
                        header.op = 0;
                        header.body = Body::Abort(Abort::Cancelled { rank: from });
                    }
                }
                worlds[1 - i].forge(to, header);
            }
        }
        worlds.iter_mut().for_each(World::check_done);
    }
}

/// Payloads that come as bytes wait in the link while the call that they belong to has not begun.
#[test]
fn a_late_member_finds_everything_in_its_links() {
    for joins in [Joins::All(Join::Bytes), Joins::All(Join::Put)] {
        let mut case = Case::new(direct(4), Kind::AllGather, 4, 3);
        (case.joins, case.eager) = (joins, 2);
        let mut world = World::new();
        world.set_up(&case);
        (0..3).for_each(|rank| world.push(world::Event::Start(rank)));
        world.drain();
        world.push(world::Event::Start(3));
        world.drain();
        world.check_done();
    }
}

/// With windows of one, rank 0 waits for a part of the chunk that rank 1 waits for from rank 0 in
/// another call: no frame crosses, until one has waited for a while and asks.
#[test]
fn who_waits_asks_whether_the_calls_match() {
    let mut case = Case::new(direct(2), Kind::AllReduce, 2, 2);
    (case.window, case.eager) = (1, 1);
    let mut world = World::new();
    world.begin(&case);
    let mut config = case.config(1, 1);
    (config.layout.kind, config.op) = (Kind::AllGather, None);
    config.layout.count = 1;
    world.prepare(1, config);
    world.drain();
    assert!((0..2).all(|rank| world.status(rank) == Status::Running), "no frame crosses");
    for millis in [5, 24, 25] {
        let before = world.member(1).machine.poll_timeout();
        world.act(1, |m| m.handle_timeout(Instant::from_nanos(millis * 1_000_000)));
        world.drain();
        let asked = before.is_some_and(|at| at == Instant::from_nanos(25_000_000)) && millis == 25;
        for rank in 0..2 {
            let told = matches!(world.status(rank), Status::Failed(Abort::Mismatch { .. }));
            assert_eq!(told, asked, "rank {rank} after {millis} ms");
        }
    }
    world.next_call(2);
}
