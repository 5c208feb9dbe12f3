//! Exhaustive small worlds: every schedule, every collective, every root, up to 16 ranks.

mod symbolic;

use std::collections::HashMap;
use std::rc::Rc;
use symbolic::{Dice, Exprs, Outcome, count, layout, route, routes, run};
use unisono_core::schedule::{Aggregators, Flow, Nodes, Order, Owners, Schedule, Tally, Traffic};
use unisono_core::{DType, Kind, Layout, Move, Rank, ReduceOp};

const RANKS: u16 = 16;

fn direct(n: u16) -> Vec<Schedule> {
    let mut all = vec![Owners::equal(n).unwrap()];
    let skewed: Vec<u32> = (0..u32::from(n)).map(|r| (r * 7 + 2) % 3).collect();
    all.extend(Owners::weighted(n, &skewed));
    // With two aggregators, of which one does half of the work.
    let mut mixed = vec![1; usize::from(n)];
    mixed.extend([1, u32::from(n) + 1]);
    all.extend(Owners::weighted(n, &mixed));
    all.into_iter().map(Schedule::Direct).collect()
}

fn star() -> Vec<Schedule> {
    (1..=3).map(|a| Schedule::Star(Aggregators::new(a).unwrap())).collect()
}

fn nodes(n: u16) -> Vec<Nodes> {
    let mut tables: Vec<Vec<u16>> = Vec::new();
    let mut add = |node: &dyn Fn(u16) -> u16| tables.push((0..n).map(node).collect());
    for size in [1, 2, 3, 4, 5, 8, 16] {
        add(&|r| r / size);
    }
    add(&|r| r % 2);
    add(&|r| r % 3);
    add(&|r| u16::from(r == 0));
    add(&|r| u16::from(r + 1 == n));
    add(&|r| (r as f64).sqrt() as u16);
    add(&|r| (r * r + 3 * r) % 5);
    add(&|r| if r < 4 { 9 } else { r / 2 });
    tables.iter().map(|t| Nodes::new(t).unwrap()).collect()
}

fn roots(kind: Kind, n: u16) -> std::ops::Range<Rank> {
    0..if kind.is_rooted() { n } else { 1 }
}

/// What a chunk did, and what every member moved for it.
struct Seen {
    steps: u32,
    flows: Vec<Flow>,
}

/// Checks every chunk of a layout on its own, and the whole against the formulas.
fn check(schedule: &Schedule) {
    for_each_layout(schedule, |kind, n, root| {
        let pieces = 3 * u64::from(n) + 1;
        let reference = layout(kind, n, root, pieces, 1);
        let mut exprs = Exprs::new();
        // Equal routes for equal blocks do the same: one run is enough.
        let mut known = HashMap::new();
        let seen: Vec<Rc<Seen>> = (0..reference.chunks())
            .map(|chunk| {
                let routes = routes(schedule, &reference, chunk);
                let flows = count(&reference, &routes);
                let block = format!("{:?}", reference.block(chunk));
                let mut run = || check_chunk(schedule, &reference, chunk, &mut exprs).steps;
                let seen = known.entry((block, routes));
                Rc::clone(seen.or_insert_with(|| Rc::new(Seen { steps: run(), flows })))
            })
            .collect();
        for count in 0..=pieces {
            for chunk in [1, 3] {
                check_cost(schedule, &layout(kind, n, root, count, chunk), &seen);
            }
        }
    });
}

fn for_each_layout(schedule: &Schedule, mut body: impl FnMut(Kind, u16, Rank)) {
    let mut seen = 0;
    for n in 1..=RANKS {
        for kind in Kind::ALL.into_iter().filter(|&k| schedule.supports(k, n)) {
            for root in roots(kind, n) {
                body(kind, n, root);
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "{schedule:?} supports nothing");
}

fn check_chunk(schedule: &Schedule, layout: &Layout, chunk: u64, exprs: &mut Exprs) -> Outcome {
    let Layout { kind, ranks, root, .. } = *layout;
    let context = || format!("{schedule:?} {kind} N={ranks} root={root} chunk={chunk}");
    let routes = routes(schedule, layout, chunk);
    let mut dice = Dice(chunk + 1);
    let lowest = run(layout, chunk, &routes, exprs, |_| 0);
    let highest = run(layout, chunk, &routes, exprs, |ready| ready.len() - 1);
    let random = run(layout, chunk, &routes, exprs, |_| dice.roll());
    let outcome = lowest.clone().unwrap_or_else(|e| panic!("{}: {e}\n{routes:?}", context()));
    assert_eq!(lowest, highest, "{}", context());
    assert_eq!(lowest, random, "{}", context());

    if kind.reduces() && schedule.is_canonical(kind, ranks) {
        let canonical = exprs.canonical(0, u32::from(ranks));
        assert!(outcome.results.iter().flatten().all(|&e| e == canonical), "{}", context());
    }
    assert!(outcome.fan_in <= schedule.fan_in(kind, ranks), "{}: {outcome:?}", context());
    // A binary counter over N leaves: one accumulator a level.
    let levels = usize::from(ranks).next_power_of_two().ilog2() as usize;
    assert!(outcome.depth <= levels.max(1) + 1, "{}: {outcome:?}", context());
    let longest = routes.iter().map(Vec::len).max().unwrap_or(0);
    assert!(longest <= usize::from(schedule.route_len(ranks)), "{}: {longest}", context());
    for (rank, flow) in count(layout, &routes).into_iter().enumerate() {
        assert_eq!(flow, schedule.flow(layout, chunk, rank as Rank), "{} {rank}", context());
    }
    if !kind.reduces() {
        check_copies(&routes, &context());
    }
    outcome
}

/// Without a reduction the only fold is `own, finish` at the end of a route.
fn check_copies(routes: &[Vec<Move>], context: &str) {
    for moves in routes {
        let end = moves.len().saturating_sub(1);
        for (at, m) in moves.iter().enumerate() {
            match m {
                Move::Recv { .. } | Move::Fold { last: false } => panic!("{context}: {moves:?}"),
                Move::Fold { last: true } => {
                    assert_eq!((at, moves[at - 1]), (end, Move::Own { level: 0 }), "{context}");
                }
                _ => {}
            }
        }
    }
}

/// Bytes counted over all routes of all chunks, against the formulas.
fn check_cost(schedule: &Schedule, layout: &Layout, seen: &[Rc<Seen>]) {
    let seen = &seen[..layout.chunks() as usize];
    if let Some(last) = seen.len().checked_sub(1) {
        // A route depends on the number of the chunk, not on how many there are.
        let flows = count(layout, &routes(schedule, layout, last as u64));
        assert_eq!(flows, seen[last].flows, "{schedule:?} {layout:?}");
    }
    // Leaf and final: 2 bytes, partial: 4.
    let dtype = DType::BF16;
    let counted = counted(schedule, layout, seen, dtype);
    for (rank, &traffic) in counted.iter().enumerate() {
        let formula = schedule.traffic(layout, dtype, rank as Rank);
        assert_eq!(formula, traffic, "{schedule:?} {layout:?} rank {rank}");
    }
    let cost = schedule.cost(layout, dtype);
    assert_eq!(cost.steps, seen.iter().map(|s| s.steps).max().unwrap_or(0));
    assert_eq!(cost.sent_max, counted.iter().map(|t| t.sent).max().unwrap());
    assert_eq!(cost.received_max, counted.iter().map(|t| t.received).max().unwrap());
    assert_eq!(cost.folded_max, counted.iter().map(|t| t.folded).max().unwrap());
    assert_eq!(cost.sent_total, counted.iter().map(|t| t.sent).sum::<u128>());
    assert_eq!(cost.sent_total, counted.iter().map(|t| t.received).sum::<u128>());
}

fn counted(schedule: &Schedule, layout: &Layout, seen: &[Rc<Seen>], dtype: DType) -> Vec<Traffic> {
    let members = usize::from(schedule.members(layout.ranks));
    let mut all = vec![Traffic::default(); members];
    for (chunk, seen) in seen.iter().enumerate() {
        let len = u128::from(layout.len(chunk as u64));
        for (all, flow) in all.iter_mut().zip(&seen.flows) {
            all.sent += len * bytes(flow.sent, dtype);
            all.received += len * bytes(flow.received, dtype);
            all.folded += len * bytes(Tally { last: 0, ..flow.received }, dtype);
        }
    }
    all
}

fn bytes(tally: Tally, dtype: DType) -> u128 {
    u128::from(tally.leaf + tally.last) * dtype.size() as u128
        + u128::from(tally.partial) * dtype.acc().size() as u128
}

#[test]
fn ring_is_right() {
    check(&Schedule::Ring);
}

#[test]
fn direct_is_right() {
    (1..=RANKS).flat_map(direct).for_each(|s| check(&s));
}

#[test]
fn one_shot_is_right() {
    check(&Schedule::OneShot);
}

#[test]
fn binomial_is_right() {
    check(&Schedule::Binomial);
}

#[test]
fn double_tree_is_right() {
    check(&Schedule::DoubleTree);
}

#[test]
fn halving_doubling_is_right() {
    check(&Schedule::HalvingDoubling);
}

#[test]
fn star_is_right() {
    star().iter().for_each(check);
}

#[test]
fn hierarchical_is_right() {
    (1..=RANKS).flat_map(nodes).map(Schedule::Hierarchical).for_each(|s| check(&s));
}

#[test]
fn hub_is_right() {
    (1..=RANKS).flat_map(nodes).map(Schedule::Hub).for_each(|s| check(&s));
}

/// All ways to put `n` ranks on nodes.
fn partitions(n: u16) -> Vec<Vec<u16>> {
    let mut all = vec![vec![]];
    for _ in 0..n {
        let longer = |t: Vec<u16>| {
            let nodes = t.iter().max().map_or(0, |m| m + 1);
            (0..=nodes).map(move |node| [t.clone(), vec![node]].concat())
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

#[test]
fn hierarchies_know_exactly_when_they_are_canonical() {
    for schedule in [Schedule::Hierarchical, Schedule::Hub] {
        knows_when_it_is_canonical(schedule);
    }
}

fn knows_when_it_is_canonical(hierarchy: fn(Nodes) -> Schedule) {
    for n in 1..=8 {
        let mut exprs = Exprs::new();
        let canonical = exprs.canonical(0, u32::from(n));
        let layout = layout(Kind::AllReduce, n, 0, u64::from(n), 1);
        let mut hits = 0;
        for table in partitions(n) {
            let schedule = hierarchy(Nodes::new(&table).unwrap());
            let folds = |chunk| check_chunk(&schedule, &layout, chunk, &mut exprs).results[0];
            let really = (0..layout.chunks()).map(folds).all(|e| e == Some(canonical));
            assert_eq!(schedule.is_canonical(Kind::AllReduce, n), really, "{table:?}");
            hits += u32::from(really);
        }
        assert!(hits > 0, "one node is always canonical");
    }
}

#[test]
fn other_orders_are_not_canonical_above_two_ranks() {
    for schedule in [Schedule::Ring, Schedule::DoubleTree] {
        for n in 2..=RANKS {
            let mut exprs = Exprs::new();
            let canonical = exprs.canonical(0, u32::from(n));
            let layout = layout(Kind::AllReduce, n, 0, u64::from(n), 1);
            let really = (0..layout.chunks())
                .map(|chunk| check_chunk(&schedule, &layout, chunk, &mut exprs).results[0])
                .all(|e| e == Some(canonical));
            assert_eq!(really, n == 2);
            assert_eq!(schedule.is_canonical(Kind::AllReduce, n), really);
        }
        let permits =
            |order: Order, op| order.permits(&schedule, Kind::AllReduce, 3, op, DType::F32);
        assert!(permits(Order::Any, ReduceOp::Sum));
        assert!(permits(Order::Canonical, ReduceOp::Max));
        assert!(!permits(Order::Canonical, ReduceOp::Sum));
        assert!(Order::Canonical.permits(&schedule, Kind::Broadcast, 3, ReduceOp::Sum, DType::F32));
    }
}

/// The last pieces of a huge call, and how the bytes grow with the last piece but one.
#[test]
fn counts_past_32_bits_are_arithmetic() {
    let all = |n| {
        let mut all = vec![Schedule::Ring, Schedule::OneShot, Schedule::Binomial];
        all.extend([Schedule::DoubleTree, Schedule::HalvingDoubling]);
        all.extend([direct(n), star()].concat());
        all.extend(nodes(n).into_iter().map(Schedule::Hierarchical));
        all.extend(nodes(n).into_iter().map(Schedule::Hub));
        all
    };
    for n in [1, 2, 3, 5, 16] {
        for schedule in all(n) {
            for kind in Kind::ALL.into_iter().filter(|&k| schedule.supports(k, n)) {
                // Below 2^49, so that all-to-all's N * N blocks stay below 2^64 chunks.
                for (count, chunk) in [((1 << 33) + 7, 1 << 20), ((1 << 49) - 1, 48), (1 << 33, 1)]
                {
                    check_huge(&schedule, &layout(kind, n, n - 1, count, chunk));
                }
            }
        }
    }
}

fn check_huge(schedule: &Schedule, long: &Layout) {
    if long.kind == Kind::Barrier {
        assert_eq!(schedule.cost(long, DType::F32).sent_total, 0);
        return;
    }
    let blocks = long.chunks() / long.pieces();
    let (before, last) = (long.chunks() - 2 * blocks, long.chunks() - blocks);
    let mut exprs = Exprs::new();
    for chunk in [before, last, long.chunks() - 1] {
        check_chunk(schedule, long, chunk, &mut exprs);
    }
    let rest = long.len(last);
    let mut grown = vec![0; usize::from(schedule.members(long.ranks))];
    for chunk in before..long.chunks() {
        let elements = if chunk < last { long.chunk - rest } else { rest };
        for (rank, flow) in count(long, &routes(schedule, long, chunk)).iter().enumerate() {
            grown[rank] += u128::from(elements) * bytes(flow.sent, DType::F16);
        }
    }
    let short = Layout { count: long.count - long.chunk, ..*long };
    for (rank, grown) in grown.into_iter().enumerate() {
        let sent = |l| schedule.traffic(l, DType::F16, rank as Rank).sent;
        assert_eq!(sent(long) - sent(&short), grown, "{schedule:?} {long:?} rank {rank}");
    }
}

#[test]
fn nonsense_has_no_moves_and_no_cost() {
    let owners = Owners::equal(4).unwrap();
    let four = layout(Kind::AllReduce, 4, 0, 8, 1);
    assert_eq!(route(&Schedule::Direct(owners.clone()), &four, 0, 1).len(), 2);
    let five = Layout { ranks: 5, ..four };
    let bad = [
        (Schedule::Direct(owners), five, 1),
        (Schedule::Hierarchical(Nodes::even(4, 2).unwrap()), five, 1),
        (Schedule::Hub(Nodes::even(4, 2).unwrap()), five, 1),
        (Schedule::Hub(Nodes::even(4, 2).unwrap()), four, 5),
        (Schedule::Hub(Nodes::even(128, 2).unwrap()), Layout { ranks: 128, ..four }, 0),
        (Schedule::Ring, four, 4),
        (Schedule::Ring, Layout { ranks: 0, ..four }, 0),
        (Schedule::Ring, Layout { ranks: 129, ..four }, 0),
        (Schedule::Ring, Layout { ranks: u16::MAX, ..four }, 0),
        (Schedule::Ring, Layout { kind: Kind::AllToAll, ..four }, 0),
        (Schedule::Binomial, Layout { kind: Kind::Reduce, root: 4, ..four }, 0),
        (Schedule::Ring, Layout { kind: Kind::Broadcast, root: u16::MAX, ..four }, 0),
        (Schedule::Ring, Layout { chunk: 0, ..four }, 0),
        (Schedule::Star(Aggregators::new(127).unwrap()), Layout { ranks: 2, ..four }, 0),
        (Schedule::DoubleTree, Layout { kind: Kind::Barrier, ..four }, 0),
        (Schedule::OneShot, Layout { kind: Kind::Barrier, ..four }, 0),
        (Schedule::Binomial, Layout { kind: Kind::Barrier, ranks: 1, ..four }, 0),
    ];
    for (schedule, layout, rank) in bad {
        assert_eq!(route(&schedule, &layout, 0, rank), [], "{schedule:?} {layout:?}");
        assert_eq!(schedule.flow(&layout, 0, rank).sent, Tally::default());
        assert_eq!(schedule.traffic(&layout, DType::F32, rank), Traffic::default());
        if rank < layout.ranks {
            assert_eq!(schedule.cost(&layout, DType::F32).sent_total, 0, "{schedule:?}");
        }
    }
}

#[test]
fn the_largest_groups_fit() {
    let mut exprs = Exprs::new();
    let n = 128;
    let mut all = vec![Schedule::Ring, Schedule::OneShot, Schedule::Binomial];
    all.extend([Schedule::DoubleTree, Schedule::HalvingDoubling]);
    all.push(Schedule::Direct(Owners::equal(n).unwrap()));
    let sizes = [1, 8, 100, 128];
    all.extend(sizes.map(|size| Schedule::Hierarchical(Nodes::even(n, size).unwrap())));
    for schedule in &all {
        for kind in Kind::ALL.into_iter().filter(|&k| schedule.supports(k, n)) {
            let layout = layout(kind, n, 77, 256, 2);
            for chunk in [0, 5, 127].into_iter().take_while(|&c| c < layout.chunks()) {
                check_chunk(schedule, &layout, chunk, &mut exprs);
            }
        }
    }
    let star = Schedule::Star(Aggregators::new(1).unwrap());
    assert!(star.supports(Kind::AllReduce, 127) && !star.supports(Kind::AllReduce, 128));
    check_chunk(&star, &layout(Kind::AllReduce, 127, 0, 9, 1), 4, &mut exprs);
    for size in [1, 8, 127] {
        let hub = Schedule::Hub(Nodes::even(127, size).unwrap());
        assert!(hub.supports(Kind::AllReduce, 127));
        check_chunk(&hub, &layout(Kind::AllReduce, 127, 0, 9, 1), 4, &mut exprs);
    }
}
