//! What the boards of a group can do.

use serde::{Deserialize, Serialize};
use unisono_core::{DType, ReduceOp, Schedule};

/// Chunks that a board's slots should hold: fewer, and it folds only while nothing comes in.
const CHUNKS_ON_BOARD: u64 = 4;

/// What the boards of a group can do, the least of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Boards that are aggregators; the others are ranks.
    pub aggregators: u16,
    /// Is a board one of the ranks, and so in every call?
    pub ranks: bool,
    /// Bytes of the largest chunk that a link to a board carries.
    pub payload: u64,
    /// Bytes of a board's slots, for one call.
    pub scratch: u64,
    /// Bit `i`: `DType::ALL[i]` can be reduced.
    pub dtypes: u16,
    /// Bit `i`: `ReduceOp::ALL[i]` can be.
    pub ops: u16,
}

impl Limits {
    /// Those of CPUs without data, so many.
    pub const fn none(aggregators: u16) -> Self {
        let all = u16::MAX;
        let (payload, scratch) = (u64::MAX, u64::MAX);
        Self { aggregators, ranks: false, payload, scratch, dtypes: all, ops: all }
    }

    /// What other boards can do as well.
    pub fn and(&self, other: &Self) -> Self {
        Self {
            aggregators: self.aggregators + other.aggregators,
            ranks: self.ranks || other.ranks,
            payload: self.payload.min(other.payload),
            scratch: self.scratch.min(other.scratch),
            dtypes: self.dtypes & other.dtypes,
            ops: self.ops & other.ops,
        }
    }

    /// Can the boards reduce this?
    pub(super) fn reduces(&self, dtype: DType, op: Option<ReduceOp>) -> bool {
        let has = |bits: u16, at: Option<usize>| at.is_some_and(|at| bits >> at & 1 == 1);
        let op = op.is_none_or(|op| has(self.ops, ReduceOp::ALL.iter().position(|o| *o == op)));
        op && has(self.dtypes, DType::ALL.iter().position(|d| *d == dtype))
    }

    /// Is a board in a call over `ranks` ranks with this schedule?
    pub(super) fn take_part(&self, schedule: &Schedule, ranks: u16) -> bool {
        self.ranks || schedule.members(ranks) > ranks
    }

    /// Why a chunk of so many elements does not reach a board, if it does not.
    pub(super) fn too_large(
        &self,
        schedule: &Schedule,
        (dtype, op): (DType, Option<ReduceOp>),
        elements: u64,
    ) -> Option<String> {
        use Schedule::{Direct, OneShot, Star};
        // These send the tensors' own elements, others sums of them, which may be wider.
        let plain = op.is_none() || matches!(schedule, Direct(_) | OneShot | Star(_));
        let size = if plain { dtype.size() } else { dtype.acc().size() } as u64;
        let bytes = elements.saturating_mul(size);
        (bytes > self.payload).then(|| {
            format!(
                ": a chunk of {elements} elements has {bytes} bytes, and the links of a board of \
                 the group carry at most {}",
                self.payload
            )
        })
    }

    /// Elements of a chunk of which some fit the slots.
    pub(super) fn chunk(&self, ranks: u16, dtype: DType) -> u64 {
        // A fold in canonical order has as many values waiting as its tree is deep, and two more.
        let slots = u64::from(ranks.max(1).next_power_of_two().ilog2() + 2);
        let bytes = self.payload.min(self.scratch / (CHUNKS_ON_BOARD * slots));
        // Slots start on cache lines.
        (bytes / 64 * 64 / dtype.acc().size() as u64).max(1)
    }
}
