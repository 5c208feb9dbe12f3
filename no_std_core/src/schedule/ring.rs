//! Ring: a chunk walks once around to be reduced and once more to be stored.
//!
//! Chunk `c` has owner `o = c % N` (or the rank that the collective names). The reduction starts at
//! `o + 1` and ends at `o`; the result leaves `o` and stops at `o - 1`. Per element of the chunk,
//! with `d = (r - o - 1) mod N` the distance of rank `r` from the start:
//!
//! * reduction: sends 1 if `d < N-1` (a leaf if `d = 0`, else a partial sum) and receives 1 if
//!   `d > 0`;
//! * distribution: sends 1 if `d != N-2`, receives 1 if `d != N-1`.
//!
//! | collective | steps | elements sent by the busiest rank, equal turns, M = count |
//! |---|---|---|
//! | all-reduce | `2(N-1)` | `2M(N-1)/N` |
//! | reduce-scatter, all-gather | `N-1` | `M(N-1)` |
//! | reduce, broadcast (a chain) | `N-1` | `M` |
//!
//! The order of the fold starts at `o + 1`: not canonical for N > 2.
//!
//! Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations", JPDC 69(2), 2009.

use super::{Flow, owner, spreads};
use crate::layout::Layout;
use crate::route::{Rank, Route};

/// Distance from the rank where the reduction starts: 0 there, N-1 at the owner.
const fn distance(layout: &Layout, chunk: u64, rank: Rank) -> u16 {
    let n = if layout.ranks == 0 { 1 } else { layout.ranks as u32 };
    ((rank as u32 + 2 * n - owner(layout, chunk) as u32 - 1) % n) as u16
}

/// The moves; at most 6. Needs N ≥ 2 and a rank below N.
pub(super) fn route(layout: &Layout, chunk: u64, rank: Rank, route: &mut Route<'_>) {
    let n = layout.ranks.max(1);
    let (prev, next) = ((rank + n - 1) % n, (rank + 1) % n);
    let d = distance(layout, chunk, rank);
    let ends = d == n - 1;
    if layout.kind.reduces() {
        if d > 0 {
            route.recv(prev, 0);
            route.own(0);
        }
        if ends {
            route.finish();
        } else {
            if d > 0 {
                route.fold();
            }
            route.send(next);
        }
    }
    if spreads(layout.kind) {
        if !ends {
            route.store(prev);
        }
        if d != n - 2 {
            route.send(next);
        }
        if ends && !layout.kind.reduces() {
            route.own(0);
            route.finish();
        }
    }
}

/// What the rank moves for one element of the chunk.
pub(super) const fn flow(layout: &Layout, chunk: u64, rank: Rank) -> Flow {
    let n = layout.ranks;
    let d = distance(layout, chunk, rank);
    let mut flow = Flow::NONE;
    if layout.kind.reduces() {
        flow.sent.leaf = (d == 0) as u32;
        flow.sent.partial = (d > 0 && d < n - 1) as u32;
        flow.received.leaf = (d == 1) as u32;
        flow.received.partial = (d > 1) as u32;
    }
    if spreads(layout.kind) {
        flow.sent.last = (d != n - 2) as u32;
        flow.received.last = (d != n - 1) as u32;
    }
    flow
}

/// Transfers on the longest path of a chunk.
pub(super) const fn steps(layout: &Layout) -> u32 {
    let halves = layout.kind.reduces() as u32 + spreads(layout.kind) as u32;
    halves * (layout.ranks as u32 - 1)
}
