//! Which schedule, chunk size and window a call gets: a pure function of what all members know.

use crate::error::Error;
use unisono_core::schedule::Owners;
use unisono_core::{DType, Kind, Order, ReduceOp, Schedule};
use unisono_link_span::INLINE;

/// Most chunks in flight.
pub(crate) const WINDOW_MAX: usize = 16;

/// Largest group in which every rank sends a small tensor to every other one: the frames grow with
/// the square of the group.
const ONE_SHOT_RANKS: u16 = 8;

/// Smallest and largest chunk that the planner makes for tensors that peers can read in place. A
/// chunk is one hand-over (two cache lines each way), so a small one costs more than its fold; a
/// large one costs nothing but balance.
const CHUNK_MIN: u64 = 1 << 10;
const CHUNK_MAX: u64 = 1 << 20;

/// Smallest chunk where devices are not all the same: a GPU takes some 10 to 100 us to be told of
/// one, whatever its size.
const CHUNK_MIN_GPU: u64 = 1 << 16;

/// Which schedule to use.
#[expect(clippy::large_enum_variant, reason = "one a group, and a schedule is 300 bytes at most")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The planner's choice, by size.
    #[default]
    Auto,
    /// Always this one.
    Fixed(Schedule),
}

/// What a group's plans are made from; the same on every member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Ranks with data.
    pub ranks: u16,
    /// Which schedule.
    pub choice: Choice,
    /// Which orders of the fold are allowed.
    pub order: Order,
    /// Elements of a chunk; `None`: by size.
    pub chunk: Option<u64>,
    /// Chunks in flight; `None`: as many as there is room for.
    pub window: Option<u16>,
    /// Who owns which share of an all-reduce, if the planner may choose; `None`: all the same.
    pub owners: Option<Owners>,
}

/// How one call is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The algorithm.
    pub schedule: Schedule,
    /// [`Schedule::fingerprint`] of it.
    pub print: u64,
    /// Elements of a chunk.
    pub chunk: u64,
    /// Chunks in flight.
    pub window: u16,
}

impl PlanOptions {
    /// Options with everything left to the planner.
    #[must_use]
    pub const fn new(ranks: u16) -> Self {
        let order = Order::Canonical;
        Self { ranks, choice: Choice::Auto, order, chunk: None, window: None, owners: None }
    }

    /// The plan for a call.
    ///
    /// # Errors
    /// [`Error::NoPlan`] if the schedule that was asked for cannot do it, or not in this order.
    pub fn plan(
        &self,
        kind: Kind,
        dtype: DType,
        op: Option<ReduceOp>,
        count: u64,
    ) -> Result<Plan, Error> {
        let schedule = match &self.choice {
            Choice::Auto => self.choose(kind, dtype, count),
            Choice::Fixed(schedule) => Some(schedule.clone()),
        };
        let refused = |why: String| Error::NoPlan { kind, ranks: self.ranks, why };
        let schedule = schedule.ok_or_else(|| refused(String::new()))?;
        let name = schedule.name();
        if !schedule.supports(kind, self.ranks) {
            return Err(refused(format!(": {name} has no routes for it")));
        }
        if let Some(op) = op
            && !self.order.permits(&schedule, kind, self.ranks, op, dtype)
        {
            return Err(refused(format!(
                ": {name} does not keep the canonical order, so {op} of {dtype} would depend on \
                 the schedule; choose another one or allow any order"
            )));
        }
        let chunk = self.chunk.unwrap_or_else(|| self.chunk_for(&schedule, dtype, count)).max(1);
        let window = self.window.unwrap_or(WINDOW_MAX as u16).clamp(1, WINDOW_MAX as u16);
        Ok(Plan { print: schedule.fingerprint(), schedule, chunk, window })
    }

    fn choose(&self, kind: Kind, dtype: DType, count: u64) -> Option<Schedule> {
        let bytes = count.saturating_mul(dtype.size() as u64);
        // Where devices differ, the fastest one is sooner ready with it than the slowest.
        let alike = self.owners.is_none() && self.ranks <= ONE_SHOT_RANKS;
        if kind == Kind::AllReduce && bytes <= INLINE as u64 && alike {
            return Some(Schedule::OneShot);
        }
        self.owners.clone().or_else(|| Owners::equal(self.ranks)).map(Schedule::Direct)
    }

    /// One chunk for each share of an owner while that is neither tiny nor huge.
    fn chunk_for(&self, schedule: &Schedule, dtype: DType, count: u64) -> u64 {
        let size = dtype.size() as u64;
        if *schedule == Schedule::OneShot {
            return count;
        }
        // Chunks start on cache lines if the tensor does.
        let shares = match schedule {
            Schedule::Direct(owners) => owners.table().len() as u64,
            _ => u64::from(self.ranks),
        };
        let share = count.div_ceil(shares.max(1)).next_multiple_of(64 / size);
        let least = if self.owners.is_some() { CHUNK_MIN_GPU } else { CHUNK_MIN };
        share.clamp(least / size, CHUNK_MAX / size)
    }
}
