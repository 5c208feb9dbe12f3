//! Every collective that a board takes part in, bit for bit.

use super::World;
use super::data::{call, check, inputs, job};
use unisono_core::{DType, Kind, Order, ReduceOp, Schedule};
use unisono_offload_dpu::AnyBoard;

/// How large calls are.
pub struct Sizes {
    /// Elements, one after the other.
    pub counts: [u64; 3],
    pub chunk: u64,
    pub window: u16,
    /// Each kind is called with every so many-th type and operator.
    pub step: usize,
}

/// Every type and operator that the board states, and `None` for collectives that do not reduce.
fn types(board: &impl AnyBoard, kind: Kind) -> Vec<(DType, Option<ReduceOp>)> {
    let identity = board.identity();
    let dtypes = || (0..).zip(DType::ALL).filter(|(i, _)| identity.dtypes >> i & 1 == 1);
    let ops = || (0..).zip(ReduceOp::ALL).filter(|(i, _)| identity.ops >> i & 1 == 1);
    if !kind.reduces() {
        return dtypes().map(|(_, dtype)| (dtype, None)).collect();
    }
    let pairs = dtypes().flat_map(|(_, dtype)| ops().map(move |(_, op)| (dtype, Some(op))));
    pairs.filter(|(dtype, op)| op.is_some_and(|op| op.supports(*dtype))).collect()
}

/// Every kind that the schedule has, with types, by some counts, in place and not.
pub fn all_of<B: AnyBoard, const C: usize>(
    world: &mut World<B, C>,
    ranks: u16,
    schedule: &Schedule,
    sizes: &Sizes,
) -> usize {
    let mut calls = 0;
    for kind in Kind::ALL.into_iter().filter(|&k| schedule.supports(k, ranks)) {
        for (dtype, op) in types(&world.board, kind).into_iter().step_by(sizes.step) {
            let canonical = |op| Order::Canonical.permits(schedule, kind, ranks, op, dtype);
            if !op.is_none_or(canonical) {
                continue;
            }
            let count = sizes.counts[calls % sizes.counts.len()];
            let root = if kind.is_rooted() { calls as u16 % ranks } else { 0 };
            let mut call = call(kind, ranks, count);
            (call.schedule, call.dtype, call.op, call.root) = (schedule.clone(), dtype, op, root);
            (call.chunk, call.window) = (sizes.chunk, sizes.window);
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
