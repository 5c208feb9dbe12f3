//! One-shot: every rank sends its value to every other rank, and every rank folds all of them.
//!
//! All-reduce only, for messages so small that the number of steps is all that counts. Every rank
//! folds the same leaves in the same canonical order, so all get the same bits.
//!
//! | steps | elements sent, received and folded by every rank, M = count |
//! |---|---|
//! | 1 | `M(N-1)`, all of them leaves |
//!
//! Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory,
//! practice, and experience", CCPE 19(13), 2007 (all-to-all broadcast, then a local reduction).

use super::{Flow, gather_leaves, others};
use crate::layout::Layout;
use crate::route::{Rank, Route};

/// The moves; `2N`. Needs N ≥ 2.
pub(super) fn route(layout: &Layout, rank: Rank, route: &mut Route<'_>) {
    if rank >= layout.ranks {
        return;
    }
    // All sends first: the value is overwritten by the fold.
    others(layout.ranks, rank).for_each(|to| route.send(to));
    gather_leaves(layout.ranks, rank, route);
    route.finish();
}

/// What every rank moves for one element.
pub(super) const fn flow(layout: &Layout) -> Flow {
    let mut flow = Flow::NONE;
    flow.sent.leaf = layout.ranks as u32 - 1;
    flow.received.leaf = layout.ranks as u32 - 1;
    flow
}
