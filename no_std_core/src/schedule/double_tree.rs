//! Two binary trees that each carry every other chunk; who is inner in one is a leaf in the other.
//!
//! The root (rank 0, or the collective's) has label 0, the other ranks have labels `1..N` in cyclic
//! order. Tree 0 is the in-order binary tree over the labels: with `b` the lowest set bit of label
//! `l`, its parent is `(l - b) | 2b`, or `l - b` if that is N or more; so odd labels are leaves. In
//! tree 1 label `l` plays `N - l` for odd N, and `l - 1` (label 1: `N - 1`) for even N: each
//! time odd labels become inner. Chunk `c` takes tree `c % 2`.
//!
//! With `ch` children (label 0: 1; odd labels: 0; even labels: 2, or 1 if `l + 1 = N`), for each
//! element of the chunk:
//!
//! * reduction: a rank but the root sends 1 (a leaf if `ch = 0`, else a partial sum), and every
//!   rank receives `ch`;
//! * distribution: every rank sends `ch` results, a rank but the root receives one.
//!
//! | collective | steps | elements sent by the busiest rank over many chunks, M = count |
//! |---|---|---|
//! | all-reduce | `2 ceil(log2 N)` | `2M`: half of the chunks 3 times, the others once |
//! | reduce, broadcast | `ceil(log2 N)` | `M` |
//!
//! The order of the fold is not canonical for N > 2.
//!
//! Source: Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction
//! and scan", Parallel Computing 35(12), 2009; popular since NCCL 2.4.

use super::tree::root;
use super::{Flow, log2_ceil, spreads};
use crate::layout::Layout;
use crate::route::{Rank, Route};

/// One of the two trees.
#[derive(Clone, Copy)]
struct Tree {
    n: u32,
    root: u32,
    second: bool,
}

impl Tree {
    const fn new(layout: &Layout, chunk: u64) -> Self {
        Self { n: layout.ranks as u32, root: root(layout) as u32, second: chunk % 2 == 1 }
    }

    /// Modulo the ranks.
    const fn wrapped(self, x: u32) -> u32 {
        if self.n == 0 { 0 } else { x % self.n }
    }

    const fn label(self, rank: Rank) -> u32 {
        let cyclic = self.wrapped(rank as u32 + self.n - self.root);
        match (cyclic, self.second) {
            (0, _) | (_, false) => cyclic,
            _ if self.n % 2 == 1 => self.n - cyclic,
            (1, true) => self.n - 1,
            _ => cyclic - 1,
        }
    }

    const fn rank(self, label: u32) -> Rank {
        let cyclic = match (label, self.second) {
            (0, _) | (_, false) => label,
            _ if self.n % 2 == 1 => self.n - label,
            _ if label == self.n - 1 => 1,
            _ => label + 1,
        };
        self.wrapped(cyclic + self.root) as Rank
    }

    /// Parent of a label above 0.
    const fn parent(self, label: u32) -> u32 {
        let bit = label & label.wrapping_neg();
        let up = (label - bit) | (bit << 1);
        if up < self.n { up } else { label - bit }
    }

    /// Children of a label: the one below it and the one above it.
    const fn children(self, label: u32) -> (Option<u32>, Option<u32>) {
        if label == 0 {
            // The largest power of two below N: the root of everybody else.
            return (None, if self.n > 1 { Some(1 << (self.n - 1).ilog2()) } else { None });
        }
        let mut half = (label & label.wrapping_neg()) >> 1;
        if half == 0 {
            return (None, None);
        }
        let left = Some(label - half);
        while half > 0 && label + half >= self.n {
            half >>= 1;
        }
        (left, if half > 0 { Some(label + half) } else { None })
    }

    /// Number of children, as the header states it.
    const fn child_count(self, label: u32) -> u32 {
        match label {
            0 => (self.n > 1) as u32,
            _ if label % 2 == 1 => 0,
            _ => 1 + (label + 1 < self.n) as u32,
        }
    }
}

/// The moves; at most 8. Needs N ≥ 2 and a rank below N.
pub(super) fn route(layout: &Layout, chunk: u64, rank: Rank, route: &mut Route<'_>) {
    let tree = Tree::new(layout, chunk);
    let label = tree.label(rank);
    let (left, right) = tree.children(label);
    let (left, right) = (left.map(|l| tree.rank(l)), right.map(|l| tree.rank(l)));
    let parent = (label > 0).then(|| tree.rank(tree.parent(label)));
    if layout.kind.reduces() {
        if left.is_some() || right.is_some() {
            left.into_iter().for_each(|from| route.recv(from, 0));
            route.own(0);
            right.into_iter().for_each(|from| route.recv(from, 0));
            if parent.is_some() {
                route.fold();
            } else {
                route.finish();
            }
        }
        parent.into_iter().for_each(|to| route.send(to));
    }
    if spreads(layout.kind) {
        parent.into_iter().for_each(|from| route.store(from));
        left.into_iter().chain(right).for_each(|to| route.send(to));
        if parent.is_none() && !layout.kind.reduces() {
            route.own(0);
            route.finish();
        }
    }
}

/// What the rank moves for one element of the chunk.
pub(super) fn flow(layout: &Layout, chunk: u64, rank: Rank) -> Flow {
    let tree = Tree::new(layout, chunk);
    let label = tree.label(rank);
    let below = u32::from(label > 0);
    let count = tree.child_count(label);
    let (left, right) = tree.children(label);
    let inner = [left, right].into_iter().flatten().filter(|&c| tree.child_count(c) > 0).count();
    let mut flow = Flow::NONE;
    if layout.kind.reduces() {
        flow.sent.leaf = below * u32::from(count == 0);
        flow.sent.partial = below * u32::from(count > 0);
        flow.received.leaf = count - inner as u32;
        flow.received.partial = inner as u32;
    }
    if spreads(layout.kind) {
        flow.sent.last = count;
        flow.received.last = below;
    }
    flow
}

/// Transfers on the longest path of a chunk.
pub(super) const fn steps(layout: &Layout) -> u32 {
    let halves = layout.kind.reduces() as u32 + spreads(layout.kind) as u32;
    halves * log2_ceil(layout.ranks) as u32
}
