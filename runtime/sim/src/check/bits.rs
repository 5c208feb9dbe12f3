//! The bits of every result, computed without machine, device and link.
//!
//! Canonical folds and exact ones are one [`numeric::fold`] over all ranks; other schedules are
//! evaluated route by route. Either way nothing about windows, passes or timing enters.

use crate::hub::Hub;
use crate::scenario::CallPlan;
use std::collections::BTreeMap;
use unisono_core::fold::leaf_merges;
use unisono_core::{Finish, Form, Kind, Move, Rank, Route, Scalar, Source, numeric};

/// What the outputs of a call have to be, by rank; worked out when it is first asked for.
#[derive(Debug, Default)]
pub struct Expected(Option<Vec<Vec<u8>>>);

impl Expected {
    /// The output of a rank (empty for an aggregator).
    pub fn output(&mut self, plan: &CallPlan, rank: usize) -> &[u8] {
        let all = self.0.get_or_insert_with(|| outputs(plan));
        all.get(rank).map_or(&[], |output| output)
    }
}

/// Compares an output, or the start of one, with what it has to be.
pub fn check(hub: &Hub, call: usize, member: usize, got: &[u8], want: &[u8]) {
    if got != want {
        let at = got.iter().zip(want).position(|(g, w)| g != w).unwrap_or(0);
        let (len, expected) = (got.len(), want.len());
        hub.complain(format!(
            "call {call} of {member} has other bits than it must have, from byte {at} on \
             ({len} bytes, {expected} expected)"
        ));
    }
}

fn outputs(plan: &CallPlan) -> Vec<Vec<u8>> {
    let layout = &plan.layout;
    let inputs: Vec<Vec<u8>> = (0..layout.ranks).map(|rank| plan.input(rank)).collect();
    let block = layout.count as usize * plan.dtype.size();
    let all = |bytes: &Vec<u8>| vec![bytes.clone(); inputs.len()];
    match layout.kind {
        Kind::Barrier => vec![Vec::new(); inputs.len()],
        Kind::Broadcast => all(&inputs[usize::from(layout.root)]),
        Kind::AllGather => all(&inputs.concat()),
        Kind::AllToAll => {
            let of = |rank: usize| inputs.iter().map(move |i| &i[rank * block..][..block]);
            (0..inputs.len()).map(|rank| of(rank).collect::<Vec<_>>().concat()).collect()
        }
        Kind::AllReduce => all(&reduced(plan, &inputs)),
        Kind::Reduce => {
            let root = usize::from(layout.root);
            let of = |r: usize| if r == root { reduced(plan, &inputs) } else { Vec::new() };
            (0..inputs.len()).map(of).collect()
        }
        Kind::ReduceScatter => {
            let sum = reduced(plan, &inputs);
            (0..inputs.len()).map(|rank| sum[rank * block..][..block].to_vec()).collect()
        }
    }
}

/// All elements of all inputs, reduced.
fn reduced(plan: &CallPlan, inputs: &[Vec<u8>]) -> Vec<u8> {
    let ranks = u32::from(plan.layout.ranks);
    let exact = plan.op.is_some_and(|op| op.is_exact(plan.dtype));
    if !exact && !plan.schedule.is_canonical(plan.layout.kind, plan.layout.ranks) {
        return by_routes(plan, inputs);
    }
    let source = |((bytes, &weight), merges)| {
        let bytes: &Vec<u8> = bytes;
        Source { mem: &bytes[..], form: Form::Leaf, weight, merges }
    };
    let sources: Vec<Source<&[u8]>> =
        inputs.iter().zip(&plan.weights).zip(leaf_merges(ranks)).map(source).collect();
    let mut out = vec![0; inputs[0].len()];
    numeric::fold(plan.dtype, plan.op, Finish::Final { ranks }, &sources, &mut out)
        .expect("the fold of all ranks is well formed");
    out
}

#[derive(Clone)]
struct Value {
    bytes: Vec<u8>,
    form: Form,
    weight: Scalar,
}

#[derive(Default)]
struct Runner {
    at: usize,
    value: Option<Value>,
    sources: Vec<(u8, Value)>,
}

/// The same by running the schedule's routes, chunk by chunk.
fn by_routes(plan: &CallPlan, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0; inputs[0].len()];
    let size = plan.dtype.size() as u64;
    for chunk in 0..plan.layout.chunks() {
        let at = plan.layout.input(chunk, 0).unwrap_or(0) * size;
        let range = at as usize..(at + plan.layout.len(chunk) * size) as usize;
        let result = one_chunk(plan, chunk, inputs, range.clone());
        out[range].copy_from_slice(&result);
    }
    out
}

fn one_chunk(
    plan: &CallPlan,
    chunk: u64,
    inputs: &[Vec<u8>],
    range: core::ops::Range<usize>,
) -> Vec<u8> {
    let routes: Vec<Vec<Move>> = (0..plan.members() as Rank)
        .map(|rank| {
            let mut moves = heapless::Vec::<Move, 64>::new();
            let mut route = Route::new(&mut moves);
            plan.schedule.route(&plan.layout, chunk, rank, &mut route);
            assert!(!route.overflowed());
            moves.to_vec()
        })
        .collect();
    let value = |rank: usize| {
        let bytes = inputs.get(rank)?[range.clone()].to_vec();
        Some(Value { bytes, form: Form::Leaf, weight: plan.weights[rank] })
    };
    let mut runners: Vec<Runner> =
        (0..routes.len()).map(|r| Runner { value: value(r), ..Runner::default() }).collect();
    let mut wires: BTreeMap<(usize, usize, bool), Value> = BTreeMap::new();
    let mut result = None;
    loop {
        let mut moved = false;
        for (rank, route) in routes.iter().enumerate() {
            while let Some(next) = route.get(runners[rank].at) {
                if !step(plan, rank, *next, &mut runners[rank], &mut wires, &mut result) {
                    break;
                }
                runners[rank].at += 1;
                moved = true;
            }
        }
        if !moved {
            return result.expect("a chunk has a result");
        }
    }
}

/// Makes one move if it can be made.
fn step(
    plan: &CallPlan,
    rank: usize,
    next: Move,
    runner: &mut Runner,
    wires: &mut BTreeMap<(usize, usize, bool), Value>,
    result: &mut Option<Vec<u8>>,
) -> bool {
    match next {
        Move::Send { to } => {
            let value = runner.value.clone().expect("a route sends what it has");
            wires.insert((rank, usize::from(to), value.form == Form::Final), value);
        }
        Move::Recv { from, level } => {
            let Some(value) = wires.remove(&(usize::from(from), rank, false)) else { return false };
            runner.sources.push((level, value));
        }
        Move::Own { level } => {
            let value = runner.value.clone().expect("a route folds what it has");
            runner.sources.push((level, value));
        }
        Move::Fold { last } => {
            let value = fold(plan, &core::mem::take(&mut runner.sources), last);
            if last {
                *result = Some(value.bytes.clone());
            }
            runner.value = Some(value);
        }
        Move::Store { from } => {
            let Some(value) = wires.remove(&(usize::from(from), rank, true)) else { return false };
            runner.value = Some(value);
        }
    }
    true
}

/// Folds a segment's sources by their levels, as a binary counter.
fn fold(plan: &CallPlan, sources: &[(u8, Value)], last: bool) -> Value {
    let mut levels: Vec<u8> = Vec::new();
    let mut program: Vec<Source<&[u8]>> = Vec::new();
    for (i, (level, value)) in sources.iter().enumerate() {
        let (mut level, mut merges) = (*level, 0);
        while levels.last().is_some_and(|top| *top <= level) {
            level = level.max(levels.pop().unwrap_or(0)) + 1;
            merges += 1;
        }
        if i + 1 == sources.len() {
            merges += levels.len() as u8;
        }
        levels.push(level);
        let Value { bytes, form, weight } = value;
        program.push(Source { mem: bytes, form: *form, weight: *weight, merges });
    }
    let ranks = u32::from(plan.layout.ranks);
    let finish = if last { Finish::Final { ranks } } else { Finish::Partial };
    let (_, first) = &sources[0];
    let elems = first.bytes.len() / numeric::form_size(plan.dtype, first.form);
    let mut bytes = vec![0; elems * numeric::dest_size(plan.dtype, plan.op, finish, &program)];
    numeric::fold(plan.dtype, plan.op, finish, &program, &mut bytes)
        .expect("a route's fold is well formed");
    let form = if last { Form::Final } else { Form::Partial };
    Value { bytes, form, weight: Scalar::one(plan.dtype) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::{Hub, Think};
    use crate::net::{Net, Weather};
    use crate::rng::Rng;
    use crate::scenario::Contents;
    use unisono_core::schedule::{Nodes, Owners};
    use unisono_core::{DType, Layout, ReduceOp, Schedule};

    fn plan(schedule: Schedule, op: ReduceOp) -> CallPlan {
        CallPlan {
            schedule,
            layout: Layout { kind: Kind::AllReduce, ranks: 7, count: 50, chunk: 8, root: 0 },
            dtype: DType::F32,
            op: Some(op),
            weights: (0..7).map(|r| Scalar::from_f64(f64::from(r) / 3.0)).collect(),
            window: 1,
            eager: 0,
            in_place: false,
            contents: Contents::Numbers,
            seed: 5,
            starts: Vec::new(),
        }
    }

    /// Two ways to the same bits, which share no code but the fold itself.
    #[test]
    fn routes_of_canonical_schedules_give_the_canonical_bits() {
        let mut all = vec![Schedule::Binomial, Schedule::HalvingDoubling, Schedule::OneShot];
        all.extend(Owners::equal(7).map(Schedule::Direct));
        all.extend(Nodes::even(7, 4).map(Schedule::Hierarchical));
        all.extend(Nodes::even(7, 4).map(Schedule::Hub));
        for schedule in all {
            assert!(schedule.is_canonical(Kind::AllReduce, 7), "{schedule}");
            for op in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::PreMulSum] {
                let plan = plan(schedule.clone(), op);
                let inputs: Vec<Vec<u8>> = (0..7).map(|rank| plan.input(rank)).collect();
                assert!(reduced(&plan, &inputs) == by_routes(&plan, &inputs), "{schedule} {op}");
            }
        }
        let ring = plan(Schedule::Ring, ReduceOp::Sum);
        let inputs: Vec<Vec<u8>> = (0..7).map(|rank| ring.input(rank)).collect();
        let direct = plan(Schedule::Binomial, ReduceOp::Sum);
        assert!(reduced(&ring, &inputs) != reduced(&direct, &inputs), "the order must matter");
    }

    #[test]
    fn one_wrong_bit_is_noticed() {
        let net = Net::new(Vec::new(), Weather::CALM, Vec::new(), 0);
        let hub = Hub::new(Rng::new(1), net, vec![Think { least: 0, most: 0 }], false);
        check(&hub, 0, 0, &[1, 2, 3], &[1, 2, 3]);
        assert!(hub.complaints.borrow().is_empty());
        check(&hub, 0, 0, &[1, 2, 3], &[1, 2, 7]);
        check(&hub, 0, 0, &[1, 2], &[1, 2, 3]);
        assert_eq!(hub.complaints.borrow().len(), 2);
    }
}
