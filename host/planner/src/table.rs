//! Which schedule is the fastest, for every collective and size.

use crate::model::Model;
use crate::replay::{Question, replay};
use unisono_core::plan::{self, lower_bound};
use unisono_core::{DType, Kind, Layout, Schedule};

/// How calls are cut, whatever the schedule: the same on all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of the smallest and the largest chunk.
    pub chunk: [u64; 2],
    /// Chunks in flight.
    pub window: u16,
    /// Largest tensor whose chunks are sent unasked.
    pub eager: u64,
}

/// A schedule for calls of a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// From so many bytes on.
    pub from: u64,
    /// The schedule.
    pub schedule: Schedule,
    /// Bytes of a chunk.
    pub chunk: u64,
    /// Predicted nanoseconds of a call of `from` bytes.
    pub ns: u64,
}

impl Row {
    /// Predicted nanoseconds of a call of so many bytes, for which this row is.
    #[must_use]
    pub fn ns_of(&self, bytes: u64) -> f64 {
        self.ns as f64 * (bytes as f64 / self.from.max(1) as f64).max(1.0)
    }

    /// Bytes of a chunk of a call that this row is for: as many chunks as its smallest call has,
    /// so that owners keep their shares.
    #[must_use]
    pub fn chunk_of(&self, bytes: u64) -> u64 {
        let doubled = bytes >= self.from.saturating_mul(2);
        let pieces = self.from.div_ceil(self.chunk.max(1)).max(1);
        // Chunks start on cache lines if the tensor does.
        if doubled { self.chunk } else { bytes.div_ceil(pieces).next_multiple_of(64) }
    }
}

/// The fastest schedules of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// By collective; with the canonical order, and with any.
    rows: Vec<(Kind, bool, Vec<Row>)>,
    /// Its fingerprint: there are hundreds of rows.
    print: u64,
}

/// One schedule for one size, and what it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The schedule.
    pub schedule: Schedule,
    /// Bytes of a chunk.
    pub chunk: u64,
    /// Predicted nanoseconds.
    pub ns: f64,
    /// Transfers one after the other.
    pub steps: u32,
    /// Bytes that the busiest member sends or receives.
    pub busiest: u128,
    /// Does it fold in the canonical order?
    pub canonical: bool,
}

/// All schedules for one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// The fastest first; equals in the order of [`candidates`].
    pub candidates: Vec<Candidate>,
    /// Nanoseconds below which no algorithm gets on these members.
    pub bound: f64,
    /// What decides that.
    pub limit: Limit,
}

/// What no algorithm gets around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The time of one message.
    Message,
    /// The data of the slowest member alone.
    Slowest,
    /// All transfers over the rates of all members together.
    Rates,
    /// All folds over the fold rates of all members together.
    Folds,
}

impl Limit {
    /// In words; M is the tensor, N the ranks.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Message => "one message",
            Self::Slowest => "what the slowest member's own data takes",
            Self::Rates => "all transfers over the rates of all members",
            Self::Folds => "all folds over the fold rates of all members",
        }
    }
}

/// Tables are made for this type: others of its size cost the same, and smaller ones nearly so.
const DTYPE: DType = DType::F32;

/// Largest size with a row of its own.
const LARGEST: u64 = 64 << 20;

/// Every schedule that is worth comparing in this group; see [`plan::candidates`].
#[must_use]
pub fn candidates(model: &Model) -> Vec<Schedule> {
    let nodes = model.nodes();
    plan::candidates(model.ranks(), &model.links(), nodes.as_ref()).into_iter().collect()
}

/// Predicts a call of `bytes` by all of these schedules.
#[must_use]
pub fn forecast(
    model: &Model,
    all: &[Schedule],
    cut: &Cut,
    kind: Kind,
    dtype: DType,
    bytes: u64,
) -> Forecast {
    let count = bytes / dtype.size() as u64;
    let mut found: Vec<Candidate> = all
        .iter()
        .filter(|schedule| schedule.supports(kind, model.ranks()))
        .filter_map(|schedule| fastest_cut(model, schedule, cut, kind, dtype, count))
        .collect();
    let layout = Layout { kind, ranks: model.ranks(), count, chunk: count.max(1), root: 0 };
    let (bound, limit) = bound(&layout, dtype, model);
    // Stable: of equals the first.
    found.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    // What was measured in caches may be faster than links and folds are.
    let bound = found.first().map_or(bound, |best| bound.min(best.ns));
    Forecast { candidates: found, bound, limit }
}

/// The lower bound, and what decides it: that without which it would be lower.
fn bound(layout: &Layout, dtype: DType, model: &Model) -> (f64, Limit) {
    let links = model.links();
    let of = |change: &dyn Fn(&mut plan::LinkModel)| {
        let mut links = links.clone();
        links.iter_mut().for_each(change);
        lower_bound(layout, dtype, &links)
    };
    let bound = lower_bound(layout, dtype, &links);
    let alpha = of(&|link| (link.ns_per_byte, link.fold_ns_per_byte) = (f64::MIN_POSITIVE, 0.0));
    let folds = of(&|link| link.ns_per_byte = f64::MIN_POSITIVE);
    // With a helper that nothing holds up, only the slowest member's own data is left.
    let (ns_per_byte, alpha_ns, fold_ns_per_byte) = (f64::MIN_POSITIVE, f64::MAX, 0.0);
    let helper = plan::LinkModel { alpha_ns, ns_per_byte, fold_ns_per_byte };
    let own = lower_bound(layout, dtype, &[&links[..], &[helper]].concat());
    let limit = match bound {
        bound if alpha * 2.0 > bound => Limit::Message,
        bound if folds >= bound => Limit::Folds,
        bound if own >= bound => Limit::Slowest,
        _ => Limit::Rates,
    };
    (bound, limit)
}

/// The schedule with the chunk size that suits it best; `None` if it cannot do this.
#[must_use]
pub fn fastest_cut(
    model: &Model,
    schedule: &Schedule,
    cut: &Cut,
    kind: Kind,
    dtype: DType,
    count: u64,
) -> Option<Candidate> {
    let (ranks, size) = (model.ranks(), dtype.size() as u64);
    let eager = if count.saturating_mul(size) > cut.eager { 0 } else { u64::from(cut.window) };
    let whole = Layout { kind, ranks, count, chunk: count.max(1), root: 0 };
    let least = lower_bound(&whole, dtype, &model.links());
    let factor = model.factor(schedule, kind, count.saturating_mul(size));
    let mut best: Option<Candidate> = None;
    // Where nothing travels, smaller chunks only cost their frames.
    let travels = kind == Kind::AllReduce && !model.lends();
    for chunk in cut.chunks(schedule, ranks, travels, count, size) {
        let layout = Layout { kind, ranks, count, chunk, root: 0 };
        let question = Question { schedule, layout, dtype, window: cut.window, eager };
        // What is extrapolated may be off by less than a hundredth.
        let ns = replay(model, &question)?.max(least) * factor;
        if best.as_ref().is_none_or(|best| ns < best.ns) {
            let cost = schedule.cost(&layout, dtype);
            best = Some(Candidate {
                schedule: schedule.clone(),
                chunk: chunk * size,
                ns,
                steps: cost.steps,
                busiest: cost.sent_max.max(cost.received_max),
                canonical: schedule.is_canonical(kind, ranks),
            });
        }
    }
    best
}

impl Cut {
    /// Elements of a chunk: one for each share of an owner while that is neither tiny nor huge.
    #[must_use]
    pub fn chunk(&self, schedule: &Schedule, ranks: u16, count: u64, size: u64) -> u64 {
        if *schedule == Schedule::OneShot {
            return count.max(1);
        }
        let shares = match schedule {
            Schedule::Direct(owners) => owners.table().len() as u64,
            _ => u64::from(ranks),
        };
        // Chunks start on cache lines if the tensor does.
        let share = count.div_ceil(shares.max(1)).next_multiple_of(64 / size);
        let [least, most] = self.chunk;
        share.clamp((least.min(most) / size).max(1), (most / size).max(1))
    }

    /// Elements of the chunks that are compared: as above, and, where bytes travel, smaller ones,
    /// which keep more members busy at a time.
    fn chunks(
        &self,
        schedule: &Schedule,
        ranks: u16,
        travels: bool,
        count: u64,
        size: u64,
    ) -> impl Iterator<Item = u64> {
        let largest = self.chunk(schedule, ranks, count, size);
        let least = (self.chunk[0] / size).max(1);
        let cuts = *schedule != Schedule::OneShot && travels;
        let smaller = [4, 16].map(|part| (largest / part).next_multiple_of(64 / size));
        let smaller = smaller.into_iter().filter(move |chunk| cuts && *chunk >= least);
        std::iter::once(largest).chain(smaller)
    }
}

impl Table {
    /// Compares all schedules for all collectives and sizes.
    #[must_use]
    pub fn new(model: &Model, cut: &Cut) -> Self {
        Self::of(model, cut, &candidates(model))
    }

    /// Compares these schedules; with a single one, its chunks.
    #[must_use]
    pub fn of(model: &Model, cut: &Cut, all: &[Schedule]) -> Self {
        let mut rows = Vec::new();
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Barrier) {
            let orders: &[bool] = if kind.reduces() { &[false, true] } else { &[true] };
            let mut of: Vec<(Kind, bool, Vec<Row>)> =
                orders.iter().map(|any| (kind, *any, Vec::new())).collect();
            let factor = if kind == Kind::AllReduce { 2 } else { 4 };
            let sizes = std::iter::successors(Some(8), |size| Some(size * factor));
            for from in sizes.take_while(|size| *size <= LARGEST) {
                for (_, any, rows) in &mut of {
                    let best = fastest(model, all, cut, (kind, *any), from);
                    if let Some(Candidate { schedule, chunk, ns, .. }) = best {
                        push(rows, Row { from, schedule, chunk, ns: ns as u64 });
                    }
                }
            }
            rows.append(&mut of);
        }
        Self { print: print(&rows), rows }
    }

    /// The row for a call; `any`: every order of the fold will do.
    #[must_use]
    pub fn find(&self, kind: Kind, any: bool, bytes: u64) -> Option<&Row> {
        let is = |row: &&(Kind, bool, Vec<Row>)| row.0 == kind && (row.1 == any || !kind.reduces());
        let (_, _, rows) = self.rows.iter().find(is)?;
        let after = rows.partition_point(|row| row.from <= bytes);
        rows.get(after.saturating_sub(1))
    }

    /// 64 bits that tables share only if they choose the same.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.print
    }

    /// All rows of a collective.
    #[must_use]
    pub fn rows(&self, kind: Kind, any: bool) -> &[Row] {
        let is = |row: &&(Kind, bool, Vec<Row>)| row.0 == kind && (row.1 == any || !kind.reduces());
        self.rows.iter().find(is).map_or(&[], |(_, _, rows)| rows)
    }
}

/// The fastest of all schedules, or of those that fold in the canonical order: the first of what
/// [`forecast`] finds. Schedules that are slower by formula, which is never more than what is
/// played, are not played.
fn fastest(
    model: &Model,
    all: &[Schedule],
    cut: &Cut,
    (kind, any): (Kind, bool),
    bytes: u64,
) -> Option<Candidate> {
    let (ranks, count) = (model.ranks(), bytes / DTYPE.size() as u64);
    let links = model.links();
    let formula = |schedule: &Schedule| {
        let chunk = cut.chunk(schedule, ranks, count, DTYPE.size() as u64);
        // The smallest chunk that may be compared.
        let layout = Layout { kind, ranks, count, chunk: (chunk / 16).max(1), root: 0 };
        let factor = model.factor(schedule, kind, bytes);
        plan::predict(schedule, &layout, DTYPE, &links).map(|p| p.ns * SURE * factor)
    };
    let permitted = all.iter().filter(|s| any || s.is_canonical(kind, ranks));
    let mut sorted: Vec<_> = permitted.filter_map(|s| Some((formula(s)?, s))).collect();
    // Stable: of equals the first.
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut best: Option<(Candidate, usize)> = None;
    for (least, schedule) in sorted {
        if best.as_ref().is_some_and(|(best, _)| least > best.ns) {
            break;
        }
        let place = all.iter().position(|s| s == schedule).unwrap_or(all.len());
        let Some(next) = fastest_cut(model, schedule, cut, kind, DTYPE, count) else { continue };
        let wins = |(best, at): &(Candidate, usize)| {
            next.ns < best.ns || (next.ns == best.ns && place < *at)
        };
        if best.as_ref().is_none_or(wins) {
            best = Some((next, place));
        }
    }
    best.map(|(best, _)| best)
}

/// What is played may be below the formula by its rounding, and by what is extrapolated.
const SURE: f64 = 0.97;

/// With so many chunks it does not matter that some owners have one more.
const MANY: u64 = 64;

/// FNV-1a of what rows choose.
fn print(rows: &[(Kind, bool, Vec<Row>)]) -> u64 {
    let of = |row: &Row| [row.from, row.schedule.fingerprint(), row.chunk];
    let all = rows.iter().flat_map(|(kind, any, rows)| {
        [*kind as u64, u64::from(*any)].into_iter().chain(rows.iter().flat_map(of))
    });
    all.flat_map(u64::to_le_bytes).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Adds a row unless the one before says the same.
fn push(rows: &mut Vec<Row>, next: Row) {
    let says = |row: &Row| row.schedule == next.schedule && row.chunk == next.chunk;
    let same = rows.last().is_some_and(says) && next.from / next.chunk.max(1) >= MANY;
    if !same {
        rows.push(next);
    }
}
