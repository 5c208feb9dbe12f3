//! Star: everything goes through aggregators that have no data of their own (SmartNIC, DPU).
//!
//! The aggregators are the members `N..N+A`; chunk `c` goes through `N + c % A`. Per element:
//!
//! * reduction: every rank sends one leaf, the aggregator receives `N` and folds them at once;
//! * result: the aggregator sends it to those who need it: `N` (all-reduce), or one (reduce: the
//!   root, reduce-scatter: the block's rank);
//! * all-gather, broadcast: the owner sends one, the aggregator sends it to the `N-1` others.
//!
//! | collective | steps | elements sent by a rank | by an aggregator with share t |
//! |---|---|---|---|
//! | all-reduce | 2 | `M` | `t N M` |
//! | reduce-scatter | 2 | `N M` | `t N M` (receives `t N N M`) |
//! | all-gather | 2 | `M` | `t N (N-1) M` |
//! | reduce | 2 | `M` | `t M` (receives `t N M`) |
//! | broadcast | 2 | the root `M` | `t (N-1) M` |
//!
//! The aggregator folds in rank order, all at once: canonical. It finishes the value itself, so
//! what it sends is of the tensor's type.
//!
//! Source: Sapio et al., "Scaling distributed machine learning with in-network aggregation"
//! (SwitchML), NSDI 2021; Graham et al., SHARP, COM-HPC 2016.

use super::{Flow, gather_leaves, others, owner, spreads};
use crate::layout::{Kind, Layout};
use crate::route::{Rank, Route};

/// How many aggregators a star has; at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregators(u8);

impl Aggregators {
    /// `count` aggregators; `None` for 0 or more than 127 (one rank must have data).
    #[must_use]
    pub const fn new(count: u16) -> Option<Self> {
        if count == 0 || count as usize >= super::MEMBERS_MAX {
            None
        } else {
            Some(Self(count as u8))
        }
    }

    /// How many there are.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.0 as u16
    }

    /// The aggregator that a chunk goes through, in a group of `ranks` data ranks.
    #[must_use]
    pub const fn of(self, ranks: u16, chunk: u64) -> Rank {
        let turn = if self.0 == 0 { 0 } else { chunk % self.0 as u64 };
        ranks.saturating_add(turn as Rank)
    }
}

/// The moves; at most `2N + 1`. Needs N ≥ 2.
pub(super) fn route(
    aggregators: Aggregators,
    layout: &Layout,
    chunk: u64,
    rank: Rank,
    route: &mut Route<'_>,
) {
    let n = layout.ranks;
    let via = aggregators.of(n, chunk);
    let owner = owner(layout, chunk);
    let needs = layout.kind == Kind::AllReduce
        || (spreads(layout.kind) && rank != owner)
        || (layout.kind.reduces() && rank == owner);
    if rank == via {
        if layout.kind.reduces() {
            gather_leaves(n, rank, route);
            route.finish();
        } else {
            route.store(owner);
        }
        match layout.kind {
            Kind::AllReduce => (0..n).for_each(|to| route.send(to)),
            kind if spreads(kind) => others(n, owner).for_each(|to| route.send(to)),
            _ => route.send(owner),
        }
    } else if rank < n {
        if layout.kind.reduces() || rank == owner {
            route.send(via);
        }
        if needs {
            route.store(via);
        } else if !layout.kind.reduces() {
            route.own(0);
            route.finish();
        }
    }
}

/// What the rank moves for one element of the chunk.
pub(super) fn flow(aggregators: Aggregators, layout: &Layout, chunk: u64, rank: Rank) -> Flow {
    let n = u32::from(layout.ranks);
    let owner = owner(layout, chunk);
    let (reduces, spreads) = (layout.kind.reduces(), spreads(layout.kind));
    let mut flow = Flow::NONE;
    if rank == aggregators.of(layout.ranks, chunk) {
        flow.received.leaf = n * u32::from(reduces);
        flow.received.last = u32::from(!reduces);
        flow.sent.last = match (reduces, spreads) {
            (true, true) => n,
            (false, true) => n - 1,
            _ => 1,
        };
    } else if rank < layout.ranks {
        flow.sent.leaf = u32::from(reduces);
        flow.sent.last = u32::from(!reduces && rank == owner);
        flow.received.last = match (reduces, spreads) {
            (true, true) => 1,
            (true, false) => u32::from(rank == owner),
            _ => u32::from(rank != owner),
        };
    }
    flow
}
