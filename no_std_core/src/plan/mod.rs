//! The planner: which schedule is fastest on this group, why, and how near to the best possible.
//!
//! Everything here is a pure function of data that the group has agreed on: the same question gets
//! the same answer on every rank. Floating point is used with `+ - * /` and comparisons only, which
//! IEEE 754 defines to the last bit on every machine.
//!
//! # The model
//!
//! A member `r` of the group sends and receives at the same time, each at `1 / beta_r` bytes/ns,
//! folds at `1 / gamma_r` bytes/ns, and `alpha_r` ns pass until what it sent has arrived. Chunks
//! overlap, so with the schedule's formulas for steps and bytes ([`Schedule::traffic`]):
//!
//! ```text
//! busy   = max over r of max(sent_r * beta_r, received_r * beta_r, folded_r * gamma_r)
//! path   = steps * bytes of one chunk * max over r of beta_r
//! time   = steps * max over r of alpha_r  +  max(busy, path)
//! ```
//!
//! `path` is one chunk alone on its longest way: what a message of one chunk takes, and too small
//! to matter for a message of many.
//!
//! # The lower bound
//!
//! No algorithm is faster than: the bytes that a member must send or receive whatever happens (its
//! own data once, the result once), the transfers that each element takes at least (`N-1` to bring
//! N values together, `N-1` to spread one) over the bandwidth of all members, and one `alpha`:
//!
//! | collective | rank r moves at least | all ranks send at least |
//! |---|---|---|
//! | all-reduce | `M` | `2(N-1) M` |
//! | reduce, broadcast | `M` | `(N-1) M` |
//! | reduce-scatter, all-gather, all-to-all | `(N-1) M` | `N(N-1) M` |
//!
//! Folding takes `N-1` received values per element of the result over the reduce rate of all.
//!
//! Source: Hockney's alpha-beta model (Parallel Computing 20, 1994) with the gamma of Thakur,
//! Rabenseifner and Gropp (IJHPCA 19(1), 2005); the bounds are those of Patarasuk and Yuan (2009)
//! with unequal bandwidths.

mod shares;

pub use shares::{Shares, shares};

use crate::dtype::{DType, ReduceOp};
use crate::layout::{Kind, Layout};
use crate::schedule::{Aggregators, Nodes, Order, Owners, Schedule};
use heapless::Vec;

/// What [`candidates`] returns: about 2.7 KiB.
pub type Candidates = Vec<Schedule, 10, u8>;

/// How fast one member is; what `probe` measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkModel {
    /// Nanoseconds from sending an empty message to its arrival.
    pub alpha_ns: f64,
    /// Nanoseconds per byte, each way.
    pub ns_per_byte: f64,
    /// Nanoseconds per received byte that is folded; 0: never the slowest place.
    pub fold_ns_per_byte: f64,
}

impl LinkModel {
    /// Are the numbers finite, none negative, and the bandwidth not infinite?
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let ok = |x: f64| x.is_finite() && x >= 0.0;
        ok(self.alpha_ns)
            && ok(self.fold_ns_per_byte)
            && ok(self.ns_per_byte)
            && self.ns_per_byte > 0.0
    }
}

/// One call of a collective, as far as planning goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// What is moved, and how it is cut.
    pub layout: Layout,
    /// Type of the elements.
    pub dtype: DType,
    /// How they are combined (ignored if nothing is).
    pub op: ReduceOp,
    /// Which orders of the fold will do.
    pub order: Order,
}

/// How long a call takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Nanoseconds by the model.
    pub ns: f64,
    /// Nanoseconds below which no algorithm gets on these members.
    pub lower_bound_ns: f64,
}

impl Prediction {
    /// The fraction of the best possible that is reached, in 0..=1 (1 if nothing moves).
    #[must_use]
    pub fn fraction(&self) -> f64 {
        if self.ns > 0.0 { self.lower_bound_ns / self.ns } else { 1.0 }
    }
}

/// A candidate and its prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// Index into the candidates.
    pub index: usize,
    /// Its time.
    pub prediction: Prediction,
}

/// What the planner decided, and the reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The fastest candidate.
    pub best: Ranked,
    /// The second fastest one.
    pub runner_up: Option<Ranked>,
}

/// Predicts a call. `model` has one entry per member, ranks first; surplus entries (aggregators
/// that this schedule does not use) count for the lower bound only.
///
/// `None` if the schedule does not support the call, or the model is too short or
/// [not valid](LinkModel::is_valid). Time: at most 128 squared terms.
#[must_use]
pub fn predict(
    schedule: &Schedule,
    layout: &Layout,
    dtype: DType,
    model: &[LinkModel],
) -> Option<Prediction> {
    let members = model.get(..usize::from(schedule.members(layout.ranks)))?;
    let rooted = layout.kind.is_rooted();
    if !schedule.supports(layout.kind, layout.ranks)
        || layout.chunk == 0
        || (rooted && layout.root >= layout.ranks)
        || !model.iter().all(LinkModel::is_valid)
    {
        return None;
    }
    let (mut alpha, mut beta, mut busy) = (0f64, 0f64, 0f64);
    for (rank, link) in members.iter().enumerate() {
        let traffic = schedule.traffic(layout, dtype, rank as u16);
        let moved = traffic.sent.max(traffic.received) as f64;
        busy = busy.max(moved * link.ns_per_byte);
        busy = busy.max(traffic.folded as f64 * link.fold_ns_per_byte);
        alpha = alpha.max(link.alpha_ns);
        beta = beta.max(link.ns_per_byte);
    }
    let steps = f64::from(schedule.steps(layout));
    let chunk = layout.chunk.min(layout.count) as f64 * dtype.size() as f64;
    let ns = steps * alpha + busy.max(steps * chunk * beta);
    Some(Prediction { ns, lower_bound_ns: lower_bound(layout, dtype, model) })
}

/// Nanoseconds that any algorithm takes on these members, see the [module](self).
#[must_use]
pub fn lower_bound(layout: &Layout, dtype: DType, model: &[LinkModel]) -> f64 {
    let peers = f64::from(layout.ranks) - 1.0;
    let data = model.get(..usize::from(layout.ranks)).unwrap_or(&[]);
    if layout.ranks <= 1 || layout.count == 0 {
        return 0.0;
    }
    let m = layout.count as f64 * dtype.size() as f64;
    // Bytes through each rank, bytes through all of them, and bytes folded by all of them.
    let (each, all, folded) = match layout.kind {
        Kind::AllReduce => (m, 2.0 * peers * m, peers * m),
        Kind::Reduce => (m, peers * m, peers * m),
        Kind::Broadcast => (m, peers * m, 0.0),
        Kind::ReduceScatter => (peers * m, (peers + 1.0) * peers * m, (peers + 1.0) * peers * m),
        Kind::AllGather | Kind::AllToAll => (peers * m, (peers + 1.0) * peers * m, 0.0),
        Kind::Barrier => return 0.0,
    };
    let slowest = data.iter().map(|link| link.ns_per_byte).fold(0.0, f64::max);
    let bandwidth: f64 = model.iter().map(|link| 1.0 / link.ns_per_byte).sum();
    let folds: f64 = model.iter().map(|link| 1.0 / link.fold_ns_per_byte).sum();
    // The message that arrives last left some member: at least the smallest alpha passes.
    let alpha = model.iter().map(|link| link.alpha_ns).fold(f64::INFINITY, f64::min);
    alpha + (each * slowest).max(all / bandwidth).max(folded / folds)
}

/// Everything worth comparing for a group: every schedule, the direct one with equal and with the
/// [best shares](shares()), and the hierarchical one, with and without a hub, if `nodes` says where
/// ranks live. Members of the model beyond `ranks` are aggregators; the first may be a hub.
///
/// Empty for a group that cannot be (no rank, too many members, a model that does not fit).
#[must_use]
pub fn candidates(ranks: u16, model: &[LinkModel], nodes: Option<&Nodes>) -> Candidates {
    let mut all = Candidates::new();
    let Some(shares) = shares(ranks, model) else { return all };
    // The first of equals is chosen, so the simplest come first.
    let equal = Owners::equal(ranks).map(Schedule::Direct);
    let best = shares.owners().map(Schedule::Direct).filter(|best| equal.as_ref() != Some(best));
    let aggregators = model.len() - usize::from(ranks);
    let star = Aggregators::new(aggregators as u16).map(Schedule::Star);
    let nodes = nodes.filter(|n| n.ranks() == ranks);
    let hub = nodes.filter(|_| aggregators > 0).cloned().map(Schedule::Hub);
    let nodes = nodes.cloned().map(Schedule::Hierarchical);
    use Schedule::{Binomial, DoubleTree, HalvingDoubling, OneShot, Ring};
    let simple = [OneShot, HalvingDoubling, Binomial, Ring, DoubleTree];
    let simple = simple.into_iter().chain(star).chain(nodes).chain(hub);
    for schedule in equal.into_iter().chain(best).chain(simple) {
        // There is a place for each of them.
        let _ = all.push(schedule);
    }
    all
}

/// Picks the fastest candidate; of equal ones the first.
///
/// Left out are candidates that do not support the call, that the model cannot predict, and those
/// whose order of the fold the call does not accept ([`Order::permits`]). `None` if none is left.
/// Pure and deterministic: every rank that asks the same gets the same.
#[must_use]
pub fn choose(candidates: &[Schedule], call: &Call, model: &[LinkModel]) -> Option<Choice> {
    let Call { layout, dtype, op, order } = *call;
    let mut best: Option<Ranked> = None;
    let mut runner_up: Option<Ranked> = None;
    for (index, candidate) in candidates.iter().enumerate() {
        if !order.permits(candidate, layout.kind, layout.ranks, op, dtype) {
            continue;
        }
        let Some(prediction) = predict(candidate, &layout, dtype, model) else { continue };
        let ranked = Ranked { index, prediction };
        let beats = |other: &Option<Ranked>| other.is_none_or(|o| prediction.ns < o.prediction.ns);
        if beats(&best) {
            runner_up = best.replace(ranked);
        } else if beats(&runner_up) {
            runner_up = Some(ranked);
        }
    }
    best.map(|best| Choice { best, runner_up })
}
