//! Direct: everybody sends to the chunk's owner, the owner folds once and sends to everybody.
//!
//! Pairwise reduce-scatter and all-gather, chunk by chunk. In an all-reduce the owner comes from a
//! table ([`Owners`]), so shares need not be equal and an aggregator without data may own chunks;
//! the other collectives name the owner themselves. Per element of a chunk:
//!
//! * reduction: the owner receives `N-1` leaves (an aggregator `N`), every other rank sends one;
//! * distribution: the owner sends `N-1` results (an aggregator `N`), every other rank receives 1;
//! * all-to-all: one result from the source to the destination, nothing for a pair with itself.
//!
//! | collective | steps | elements sent by rank i with share `s_i` of the chunks, M = count |
//! |---|---|---|
//! | all-reduce | 2 | `M(1 + (N-2) s_i)`; aggregator: `N s_i M` |
//! | reduce-scatter, all-gather, all-to-all | 1 | `M(N-1)` |
//! | reduce | 1 | `M`, the root 0 |
//! | broadcast | 1 | the root `M(N-1)`, others 0 |
//!
//! The owner folds in rank order, all at once: canonical.
//!
//! Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
//! MPICH", IJHPCA 19(1), 2005 (pairwise exchange). [`crate::plan::shares`] solves for the shares.

use super::owners::Owners;
use super::{Flow, gather_leaves, others, owner, spreads};
use crate::layout::{Block, Kind, Layout};
use crate::route::{Rank, Route};

/// Who owns the chunk; may be an aggregator (N or more).
pub(super) fn owner_of(owners: &Owners, layout: &Layout, chunk: u64) -> Rank {
    match layout.block(chunk) {
        Block::Whole => owners.owner(chunk),
        _ => owner(layout, chunk),
    }
}

/// The moves; at most `2N + 1`. Needs N ≥ 2.
pub(super) fn route(
    owners: &Owners,
    layout: &Layout,
    chunk: u64,
    rank: Rank,
    route: &mut Route<'_>,
) {
    if let Block::Pair { src, dst } = layout.block(chunk) {
        return pair(src, dst, rank, route);
    }
    let (n, owner) = (layout.ranks, owner_of(owners, layout, chunk));
    if rank == owner {
        if layout.kind.reduces() {
            gather_leaves(n, rank, route);
            route.finish();
        }
        if spreads(layout.kind) {
            others(n, rank).for_each(|to| route.send(to));
        }
        if !layout.kind.reduces() {
            route.own(0);
            route.finish();
        }
    } else if rank < n {
        if layout.kind.reduces() {
            route.send(owner);
        }
        if spreads(layout.kind) {
            route.store(owner);
        }
    }
}

fn pair(src: Rank, dst: Rank, rank: Rank, route: &mut Route<'_>) {
    if src == dst && rank == src {
        route.own(0);
        route.finish();
    } else if rank == src {
        route.send(dst);
    } else if rank == dst {
        route.store(src);
    }
}

/// What the rank moves for one element of the chunk.
pub(super) fn flow(owners: &Owners, layout: &Layout, chunk: u64, rank: Rank) -> Flow {
    let mut flow = Flow::NONE;
    if let Block::Pair { src, dst } = layout.block(chunk) {
        flow.sent.last = u32::from(src != dst && rank == src);
        flow.received.last = u32::from(src != dst && rank == dst);
        return flow;
    }
    let n = layout.ranks;
    let owner = owner_of(owners, layout, chunk);
    let (reduces, spreads) = (u32::from(layout.kind.reduces()), u32::from(spreads(layout.kind)));
    if rank == owner {
        // An aggregator has no value of its own.
        let peers = u32::from(n) - u32::from(owner < n);
        flow.received.leaf = reduces * peers;
        flow.sent.last = spreads * peers;
    } else if rank < n {
        flow.sent.leaf = reduces;
        flow.received.last = spreads;
    }
    flow
}

/// Transfers on the longest path of a chunk.
pub(super) const fn steps(layout: &Layout) -> u32 {
    match layout.kind {
        Kind::AllReduce => 2,
        Kind::Barrier => 0,
        _ => 1,
    }
}
