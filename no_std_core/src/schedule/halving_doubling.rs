//! Recursive halving and doubling: per chunk a binomial tree rooted at the chunk's owner.
//!
//! Seen over all chunks, rank `r` exchanges halves with `r xor 1`, quarters with `r xor 2` and so
//! on (distance 1 first), which is what keeps the canonical order; N need not be a power of two.
//! Chunk `c` of an all-reduce is owned by `c % N`, the other collectives name the owner. What a
//! rank moves for a chunk is [`mod@super::tree`]'s formula with the owner as root.
//!
//! | collective | steps (`N = 2^k`) | elements sent by every rank (`N = 2^k`), M = count |
//! |---|---|---|
//! | all-reduce | `2k` | `2M(N-1)/N` |
//! | reduce-scatter, all-gather | `k` | `M(N-1)` |
//! | reduce, broadcast | `k` | as the binomial tree |
//!
//! For other N the steps are twice (or once) the greatest height of the trees in use, at most
//! `ceil(log2 N)`, and the ranks near the end send less than the others.
//!
//! Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004, LNCS 3036;
//! Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005.

use super::{Flow, owner, tree};
use crate::layout::Layout;
use crate::route::{Rank, Route};

/// The moves; at most `2 ceil(log2 N) + 4`. Needs N ≥ 2 and a rank below N.
pub(super) fn route(layout: &Layout, chunk: u64, rank: Rank, route: &mut Route<'_>) {
    tree::route(layout, owner(layout, chunk), rank, route);
}

/// What the rank moves for one element of the chunk.
pub(super) fn flow(layout: &Layout, chunk: u64, rank: Rank) -> Flow {
    tree::flow(layout, owner(layout, chunk), rank)
}

/// Transfers on the longest path of the chunk.
pub(super) const fn steps(layout: &Layout, chunk: u64) -> u32 {
    tree::steps(layout, owner(layout, chunk))
}
