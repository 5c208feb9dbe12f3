//! Binomial tree with any root, in canonical order for any N.
//!
//! At level `k` the ranks are cut into aligned blocks `[b, b + 2^k)`, and each block that is not
//! empty has a *head* that holds its partial sum: `b + m` with `m = root mod 2^k`, where the
//! highest set bits of `m` are cleared until `b + m < N`. The head of a block of level `k + 1` is
//! the head of one of its halves, so the other half's head sends to it; the head of the last block
//! is the root. The distribution runs the same tree backwards. A head folds its halves in rank
//! order at once, so the sum is exactly the canonical tree.
//!
//! With `ch(r)` the number of children of rank `r` (for `N = 2^k`: trailing zeros of `r xor root`),
//! per element of the chunk:
//!
//! * reduction: a rank but the root sends 1 (a leaf if `ch = 0`, else a partial sum) and every
//!   rank receives `ch(r)` (leaves from children without children);
//! * distribution: every rank sends `ch(r)` results, a rank but the root receives one.
//!
//! | collective | steps | elements through the root, M = count |
//! |---|---|---|
//! | all-reduce (root 0) | `2 floor(log2 N)` | sends and receives `M ceil(log2 N)` |
//! | reduce, broadcast | `h(N, root)` | receives or sends `M ch(root)` |
//!
//! The height is `h(1, _) = 0` and, with `p` the largest power of two below N and `q` the root
//! within the right part: `h = max(1 + log2 p, h(N-p, q))` for a root at `p` or above, else
//! `max(log2 p, 1 + h(N-p, q))`. For `N = 2^k` it is `k`, and at most `ceil(log2 N)`.
//!
//! Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005 (binomial reduce and broadcast).

use super::{Flow, spreads};
use crate::layout::Layout;
use crate::route::{Rank, Route};

/// The root: the collective's, or rank 0.
pub(super) const fn root(layout: &Layout) -> Rank {
    if layout.kind.is_rooted() { layout.root } else { 0 }
}

/// Clears the highest set bits of `m` until it is below `limit`; `limit` is at least 1.
const fn clip(mut m: u32, limit: u32) -> u32 {
    while m > 0 && m >= limit {
        m &= !(1 << m.ilog2());
    }
    m
}

/// A rank's place in the tree over `n` ranks.
#[derive(Clone, Copy)]
struct Place {
    n: u32,
    root: u32,
    rank: u32,
    /// The rank heads its blocks of the levels `0..=top`.
    top: u32,
}

impl Place {
    const fn new(n: u16, root: Rank, rank: Rank) -> Self {
        let mut place = Self { n: n as u32, root: root as u32, rank: rank as u32, top: 0 };
        while (1 << place.top) < place.n && place.head(place.top + 1) == place.rank {
            place.top += 1;
        }
        place
    }

    /// Head of the block of this level that `rank` lies in.
    const fn head(&self, level: u32) -> u32 {
        let base = self.rank >> level << level;
        base + clip(self.root & ((1 << level) - 1), self.n - base)
    }

    const fn parent(&self) -> Rank {
        self.head(self.top + 1) as Rank
    }

    /// The child whose block of this level is the sibling of the rank's own one, if there is one.
    const fn child(&self, level: u32) -> Option<Self> {
        let base = ((self.rank >> level) ^ 1) << level;
        if level >= self.top || base >= self.n {
            return None;
        }
        let block = Self { rank: base, ..*self };
        let rank = block.head(level);
        Some(Self { rank, top: level, ..*self })
    }

    fn children(self) -> impl DoubleEndedIterator<Item = (u8, Self)> {
        (0..self.top).filter_map(move |level| Some((level as u8, self.child(level)?)))
    }

    /// Is the child of this level before the rank's own block?
    const fn is_left(&self, level: u8) -> bool {
        self.rank >> level & 1 == 1
    }
}

/// The moves; at most `2 ceil(log2 N) + 4`. Needs N ≥ 2 and a rank below N.
pub(super) fn route(layout: &Layout, root: Rank, rank: Rank, route: &mut Route<'_>) {
    let place = Place::new(layout.ranks, root, rank);
    if layout.kind.reduces() {
        gather(place, rank == root, route);
    }
    if spreads(layout.kind) {
        if rank != root {
            route.store(place.parent());
        }
        // The largest subtree first: it has the longest way.
        for (_, child) in place.children().rev() {
            route.send(child.rank as Rank);
        }
        if rank == root && !layout.kind.reduces() {
            route.own(0);
            route.finish();
        }
    }
}

/// Receives in the order of the rank blocks: left siblings from the largest down, the own leaf,
/// right siblings upwards.
fn gather(place: Place, is_root: bool, route: &mut Route<'_>) {
    if place.children().next().is_some() {
        for (level, child) in place.children().rev().filter(|&(l, _)| place.is_left(l)) {
            route.recv(child.rank as Rank, level);
        }
        route.own(0);
        for (level, child) in place.children().filter(|&(l, _)| !place.is_left(l)) {
            route.recv(child.rank as Rank, level);
        }
        if !is_root {
            route.fold();
        }
    }
    if is_root {
        route.finish();
    } else {
        route.send(place.parent());
    }
}

/// What the rank moves for one element of the chunk.
pub(super) fn flow(layout: &Layout, root: Rank, rank: Rank) -> Flow {
    let place = Place::new(layout.ranks, root, rank);
    let children = place.children().count() as u32;
    let inner = place.children().filter(|(_, c)| c.children().next().is_some()).count() as u32;
    let below = u32::from(rank != root);
    let mut flow = Flow::NONE;
    if layout.kind.reduces() {
        flow.sent.leaf = below * u32::from(children == 0);
        flow.sent.partial = below * u32::from(children > 0);
        flow.received.leaf = children - inner;
        flow.received.partial = inner;
    }
    if spreads(layout.kind) {
        flow.sent.last = children;
        flow.received.last = below;
    }
    flow
}

/// Longest path of the tree over `n` ranks, in edges.
const fn height(n: u32, root: u32) -> u32 {
    if n <= 1 {
        return 0;
    }
    let log = (n - 1).ilog2();
    let (left, right) = (1 << log, n - (1 << log));
    let (over_left, over_right) = if root >= left {
        (log + 1, height(right, root - left))
    } else {
        (log, 1 + height(right, clip(root, right)))
    };
    if over_left > over_right { over_left } else { over_right }
}

/// Transfers on the longest path of a chunk.
pub(super) const fn steps(layout: &Layout, root: Rank) -> u32 {
    let halves = layout.kind.reduces() as u32 + spreads(layout.kind) as u32;
    halves * height(layout.ranks as u32, root as u32)
}
