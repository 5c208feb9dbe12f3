//! Which schedule, chunk size and window a call gets: a pure function of what all members know.

mod limits;

use crate::call::Call;
use crate::error::Error;
use std::sync::Arc;
use unisono_core::schedule::{Aggregators, Owners};
use unisono_core::{DType, Kind, Order, ReduceOp, Schedule};
use unisono_link_span::{INLINE, SMALL};
use unisono_planner::{Cut, Pick, Row, Selection, Table};

pub use limits::Limits;

/// Most chunks in flight.
pub(crate) const WINDOW_MAX: usize = 16;

/// Largest group in which every rank sends a small tensor to every other one: the frames grow with
/// the square of the group.
const ONE_SHOT_RANKS: u16 = 8;

/// Smallest and largest chunk that the planner makes for tensors that peers can read in place. A
/// chunk is one hand-over (two cache lines each way), so a small one costs more than its fold; a
/// large one costs nothing but balance.
const CHUNK_MIN: u64 = 1 << 10;
const CHUNK_MAX: u64 = 1 << 19;

/// Largest tensor that members send whole to each other over byte streams.
const ONE_SHOT_BYTES: u64 = 8 << 10;

/// Smallest chunk where bytes travel between members that share cores: there a message costs its
/// sender's and its receiver's time, one after the other, and one owner takes the fewest messages.
const CHUNK_MIN_CROWDED: u64 = 64 << 10;

/// Largest one if owners have several: what a member has sent is still in the cache of a core when
/// its receiver gets to run there.
const CHUNK_MAX_CROWDED: u64 = 96 << 10;

/// Largest tensor, and group, for which receivers of byte streams have room before they are asked.
const EAGER_BYTES: u64 = 256 << 10;
const EAGER_RANKS: u16 = 24;

/// Chunks that peers who share memory send unasked if owners have several each: a member may have
/// fewer in flight than the others (see [`PlanOptions::window_of_copied`]), but not fewer.
const EAGER_MEMORY: u64 = 4;

/// Bytes in flight of a tensor that peers do not reach: copies of it are read by a peer, written
/// over and read again, all of which should find them in the cache of a core.
const COPIED_BYTES: u64 = 2 << 20;

/// Largest chunk where bytes travel: a chunk's fold begins once all of it is there.
const CHUNK_MAX_STREAM: u64 = 256 << 10;

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
    /// What boards of the group can do; `None`: there are none.
    pub boards: Option<Limits>,
    /// Some members reach each other by byte streams only, as over a network.
    pub streams: bool,
    /// Somewhere more members share a machine than it has cores.
    pub crowded: bool,
    /// Devices are not all the same.
    pub mixed: bool,
    /// Schedules that somebody has chosen by size.
    pub selection: Option<Selection>,
    /// The fastest schedules by measured links, if they were measured.
    pub table: Option<Arc<Table>>,
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
    /// Chunks that are sent before their receiver has asked for them.
    pub(crate) eager: u64,
}

impl PlanOptions {
    /// Options with everything left to the planner.
    #[must_use]
    pub const fn new(ranks: u16) -> Self {
        let order = Order::Canonical;
        let choice = Choice::Auto;
        let (chunk, window, owners, boards) = (None, None, None, None);
        let (streams, crowded, mixed, selection, table) = (false, false, false, None, None);
        Self {
            ranks,
            choice,
            order,
            chunk,
            window,
            owners,
            boards,
            streams,
            crowded,
            mixed,
            selection,
            table,
        }
    }

    /// The plan for a call.
    pub(crate) fn plan_of(&self, call: &Call) -> Result<Plan, Error> {
        self.plan(call.kind, call.dtype, call.op, call.count)
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
        let bytes = count.saturating_mul(dtype.size() as u64);
        let (schedule, chunk) = self.picked(kind, dtype, op, bytes)?;
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
        let boards = self.boards.as_ref().filter(|b| b.take_part(&schedule, self.ranks));
        if kind.reduces() && boards.is_some_and(|boards| !boards.reduces(dtype, op)) {
            return Err(refused(format!(
                ": a board of the group does not reduce {dtype} like that"
            )));
        }
        let large = boards
            .zip(self.chunk)
            .and_then(|(boards, chunk)| boards.too_large(&schedule, (dtype, op), chunk.min(count)));
        if let Some(why) = large {
            return Err(refused(why));
        }
        let chunk = self.chunk.unwrap_or_else(|| {
            let size = dtype.size() as u64;
            let chunk = match chunk {
                Some(bytes) if schedule != Schedule::OneShot => bytes / size,
                _ => self.cut().chunk(&schedule, self.ranks, count, size),
            };
            // Chunks of the ring decide bits, which must not depend on who shares cores.
            let crowded = self.streams && self.crowded && matches!(schedule, Schedule::Direct(_));
            let chunk = match chunk.saturating_mul(size) {
                CHUNK_MAX_STREAM.. if crowded => CHUNK_MAX_CROWDED / size,
                _ if crowded => chunk.max(CHUNK_MIN_CROWDED / size),
                _ => chunk,
            };
            boards.map_or(chunk, |boards| chunk.min(boards.chunk(self.ranks, dtype)))
        });
        let window = self.window.unwrap_or(WINDOW_MAX as u16).clamp(1, WINDOW_MAX as u16);
        // Bytes that a link has to carry wait for the room that their receiver has; room for all
        // of a small tensor is cheaper than asking for it.
        let bytes = count.saturating_mul(dtype.acc().size() as u64);
        // A call without bytes, too, asks where all have to.
        let most = self.cut().eager;
        let eager = match u64::from(window) {
            _ if most == 0 || bytes > most => 0,
            window if !self.streams && count > chunk.saturating_mul(self.ranks.into()) => {
                window.min(EAGER_MEMORY)
            }
            window => window,
        };
        Ok(Plan { print: schedule.fingerprint(), schedule, chunk: chunk.max(1), window, eager })
    }

    /// Chunks in flight on a member whose tensor peers do not reach though they share memory.
    pub(crate) fn window_of_copied(&self, plan: &Plan, dtype: DType) -> u16 {
        let bytes = plan.chunk.saturating_mul(dtype.size() as u64).max(1);
        let fits = (COPIED_BYTES / bytes).max(plan.eager).max(1);
        if self.streams { plan.window } else { fits.min(plan.window.into()) as u16 }
    }

    /// The schedule, and the bytes of a chunk if they were chosen with it: what the caller says,
    /// what a selection says, what measured links say, what the size says.
    fn picked(
        &self,
        kind: Kind,
        dtype: DType,
        op: Option<ReduceOp>,
        bytes: u64,
    ) -> Result<(Option<Schedule>, Option<u64>), Error> {
        if let Choice::Fixed(schedule) = &self.choice {
            // Then the table is about this schedule.
            let row = self.measured(kind, dtype, op, bytes);
            return Ok((Some(schedule.clone()), row.map(|row| row.chunk_of(bytes))));
        }
        if let Some(pick) = self.selection.as_ref().and_then(|s| s.find(kind, bytes)) {
            let refused = |why| Error::NoPlan { kind, ranks: self.ranks, why: format!(": {why}") };
            if let Some(schedule) = pick.schedule(self.ranks).map_err(refused)? {
                return Ok((Some(schedule), pick.chunk));
            }
        }
        if let Some(row) = self.row(kind, dtype, op, bytes) {
            return Ok((Some(row.schedule.clone()), Some(row.chunk_of(bytes))));
        }
        Ok((self.choose(kind, dtype, op, bytes), None))
    }

    /// What measured links say of a call.
    fn measured(&self, kind: Kind, dtype: DType, op: Option<ReduceOp>, bytes: u64) -> Option<&Row> {
        let any = self.order == Order::Any || op.is_none_or(|op| op.is_exact(dtype));
        self.table.as_ref().and_then(|table| table.find(kind, any, bytes))
    }

    /// What measured links say of a call that this group can make like that.
    fn row(&self, kind: Kind, dtype: DType, op: Option<ReduceOp>, bytes: u64) -> Option<&Row> {
        let reduces = |schedule: &Schedule| match &self.boards {
            Some(boards) if kind.reduces() && boards.take_part(schedule, self.ranks) => {
                boards.reduces(dtype, op)
            }
            _ => true,
        };
        // Whoever copies nothing waits for all peers before it may write, which nobody measures.
        let fits = |schedule: &Schedule| {
            self.streams || *schedule != Schedule::OneShot || bytes <= self.one_shot_bytes()
        };
        let row = self.measured(kind, dtype, op, bytes);
        row.filter(|row| reduces(&row.schedule) && fits(&row.schedule))
    }

    /// Nanoseconds that a call should take, if it is planned from measured links.
    pub(crate) fn forecast(&self, call: &Call) -> Option<f64> {
        let Call { kind, dtype, op, count, .. } = *call;
        let bytes = count.saturating_mul(dtype.size() as u64);
        let picked = |selection: &Selection| {
            selection.find(kind, bytes).is_some_and(|pick| pick != Pick::AUTO)
        };
        if self.choice != Choice::Auto || self.selection.as_ref().is_some_and(picked) {
            return None;
        }
        self.row(kind, dtype, op, bytes).map(|row| row.ns_of(bytes))
    }

    fn choose(
        &self,
        kind: Kind,
        dtype: DType,
        op: Option<ReduceOp>,
        bytes: u64,
    ) -> Option<Schedule> {
        if let Some(boards) = self.boards.as_ref().filter(|b| b.reduces(dtype, op))
            && kind.reduces()
            && self.ranks > 1
            && let Some(aggregators) = Aggregators::new(boards.aggregators)
        {
            return Some(Schedule::Star(aggregators));
        }
        // Where devices differ, the fastest one is sooner ready with it than the slowest.
        let alike = self.owners.is_none() && self.ranks <= ONE_SHOT_RANKS;
        let alike = alike && !(self.streams && self.crowded);
        if kind == Kind::AllReduce && bytes <= self.one_shot_bytes() && alike {
            return Some(Schedule::OneShot);
        }
        self.owners.clone().or_else(|| Owners::equal(self.ranks)).map(Schedule::Direct)
    }

    /// The largest tensor that members send whole to each other: in memory, what is copied on the
    /// way; a message over a network costs as much as so many bytes more of it.
    fn one_shot_bytes(&self) -> u64 {
        let peers = u64::from(self.ranks.max(2) - 1);
        let copied = (SMALL as u64 / peers).max(INLINE as u64);
        if self.streams { ONE_SHOT_BYTES } else { copied }
    }

    /// How calls of this group are cut.
    #[must_use]
    pub fn cut(&self) -> Cut {
        let least = if self.mixed { CHUNK_MIN_GPU } else { CHUNK_MIN };
        let most = if self.streams { CHUNK_MAX_STREAM } else { CHUNK_MAX };
        let eager = match self.streams {
            _ if self.boards.is_some() => 0,
            true if self.ranks > EAGER_RANKS => 0,
            true => EAGER_BYTES,
            false => u64::MAX,
        };
        Cut { chunk: [least, most], window: WINDOW_MAX as u16, eager }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::plan::LinkModel;
    use unisono_planner::Model;

    /// Schedule and chunk, in elements, of an all-reduce of so many f32.
    fn planned(options: &PlanOptions, count: u64) -> (String, u64) {
        let op = Some(ReduceOp::Sum);
        let plan = options.plan(Kind::AllReduce, DType::F32, op, count).expect("a plan");
        (plan.schedule.name().to_owned(), plan.chunk)
    }

    #[test]
    fn members_that_share_cores_send_small_tensors_to_one_owner() {
        let alone = PlanOptions { streams: true, ..PlanOptions::new(4) };
        assert_eq!(planned(&alone, 2).0, "one-shot", "a step less where each has a core");
        let crowded = PlanOptions { crowded: true, ..alone };
        for count in [2, 256, 8 << 10] {
            let (schedule, chunk) = planned(&crowded, count);
            assert_eq!(schedule, "direct");
            assert!(chunk >= count, "{count} elements in one chunk");
        }
        assert_eq!(planned(&crowded, 64 << 10), ("direct".to_owned(), 16 << 10), "256 KiB");
        assert_eq!(planned(&crowded, 1 << 20), ("direct".to_owned(), 24 << 10), "4 MiB");
        let memory = PlanOptions { streams: false, ..crowded };
        assert_eq!(planned(&memory, 2).0, "one-shot", "memory takes nobody's time");
    }
    #[test]
    fn only_plans_by_measured_links_have_a_forecast() {
        let link = LinkModel { alpha_ns: 1e3, ns_per_byte: 1.0, fold_ns_per_byte: 0.0 };
        let rules = PlanOptions { streams: true, ..PlanOptions::new(4) };
        let table = Table::new(&Model::ports(4, &[link; 4]), &rules.cut());
        let measured = PlanOptions { table: Some(Arc::new(table)), ..rules.clone() };
        let sum = |count| {
            let op = Some(ReduceOp::Sum);
            Call { op, ..Call::new(Kind::AllReduce, DType::F32, count) }
        };
        assert_eq!(rules.forecast(&sum(1 << 20)), None);
        // Each rank sends one and a half times what it has, at a byte a nanosecond.
        let times = [18, 20].map(|power| measured.forecast(&sum(1 << power)).expect("a row"));
        assert!((6.2e6..9e6).contains(&times[1]), "{times:?}");
        assert!((3.0..5.0).contains(&(times[1] / times[0])), "{times:?}");
        let fixed = Choice::Fixed(Schedule::Ring);
        let fixed = PlanOptions { choice: fixed, ..measured.clone() };
        assert_eq!(fixed.forecast(&sum(1 << 20)), None);
        let selection = "all-reduce:-2M=binomial".parse().ok();
        let picked = PlanOptions { selection, ..measured };
        let by_hand = [18, 20].map(|power| picked.forecast(&sum(1 << power)).is_none());
        assert_eq!(by_hand, [true, false], "1 MiB by hand, 4 MiB not");
    }
}
