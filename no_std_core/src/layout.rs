//! From a collective's arguments to chunks: which elements chunk `c` covers, in whose buffers.
//!
//! Chunks are numbered so that a window of consecutive chunks keeps every rank busy: the blocks of
//! a reduce-scatter, all-gather or all-to-all are interleaved piece by piece.

use crate::route::Rank;
use serde::{Deserialize, Serialize};

/// The collectives. `count` is what nccl-tests calls count: elements per call argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Kind {
    /// `count` in, `count` out; every rank gets the reduction.
    AllReduce,
    /// `N * count` in, `count` out; rank r gets block r of the reduction.
    ReduceScatter,
    /// `count` in, `N * count` out; every rank gets every block.
    AllGather,
    /// `count` in, `count` out at the root only.
    Reduce,
    /// `count` in at the root, `count` out everywhere.
    Broadcast,
    /// `N * count` in and out; block d of rank s becomes block s of rank d.
    AllToAll,
    /// Nothing moves; nobody leaves before everybody came.
    Barrier,
}

impl Kind {
    /// Every collective, in the order of the wire codes.
    pub const ALL: [Self; 7] = [
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Reduce,
        Self::Broadcast,
        Self::AllToAll,
        Self::Barrier,
    ];

    /// Does this collective combine values?
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Does this collective have a root?
    #[must_use]
    pub const fn is_rooted(self) -> bool {
        matches!(self, Self::Reduce | Self::Broadcast)
    }

    /// Name in commands and messages: `all-reduce`, `reduce-scatter`, …
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::Reduce => "reduce",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "all-to-all",
            Self::Barrier => "barrier",
        }
    }
}

impl core::fmt::Display for Kind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

/// Who has to end up with a chunk, as far as the collective itself says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// All-reduce: the schedule chooses an owner.
    Whole,
    /// Reduce and broadcast: the root.
    Root(Rank),
    /// Reduce-scatter and all-gather: the block of this rank.
    Of(Rank),
    /// All-to-all: from `src` to `dst`.
    Pair {
        /// The rank that has the block.
        src: Rank,
        /// The rank that needs it.
        dst: Rank,
    },
}

/// How one call of a collective is cut into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Which collective.
    pub kind: Kind,
    /// Ranks that hold data (aggregators not counted), at least 1.
    pub ranks: u16,
    /// The call's count in elements, see [`Kind`].
    pub count: u64,
    /// Elements of a full chunk, at least 1.
    pub chunk: u64,
    /// Root of reduce and broadcast, 0 otherwise.
    pub root: Rank,
}

impl Layout {
    /// Chunks that one block is cut into.
    #[must_use]
    pub const fn pieces(&self) -> u64 {
        match self.kind {
            Kind::Barrier => 0,
            // A chunk of 0 elements is refused elsewhere; here it must not divide.
            _ if self.chunk == 0 => 0,
            _ => self.count.div_ceil(self.chunk),
        }
    }

    /// Number of chunks of the whole call.
    #[must_use]
    pub const fn chunks(&self) -> u64 {
        let n = self.ranks as u64;
        match self.kind {
            Kind::AllReduce | Kind::Reduce | Kind::Broadcast => self.pieces(),
            Kind::ReduceScatter | Kind::AllGather => self.pieces() * n,
            Kind::AllToAll => self.pieces() * n * n,
            Kind::Barrier => 0,
        }
    }

    /// Index of the chunk's piece within its block.
    #[must_use]
    pub const fn piece(&self, chunk: u64) -> u64 {
        let n = self.divisor();
        match self.kind {
            Kind::AllReduce | Kind::Reduce | Kind::Broadcast | Kind::Barrier => chunk,
            Kind::ReduceScatter | Kind::AllGather => chunk / n,
            Kind::AllToAll => chunk / n / n,
        }
    }

    /// Which block the chunk belongs to.
    #[must_use]
    pub const fn block(&self, chunk: u64) -> Block {
        let n = self.divisor();
        match self.kind {
            Kind::AllReduce | Kind::Barrier => Block::Whole,
            Kind::Reduce | Kind::Broadcast => Block::Root(self.root),
            Kind::ReduceScatter | Kind::AllGather => Block::Of((chunk % n) as Rank),
            Kind::AllToAll => {
                let src = chunk % n;
                let shift = chunk / n % n;
                Block::Pair { src: src as Rank, dst: ((src + shift) % n) as Rank }
            }
        }
    }

    /// The ranks, at least 1.
    const fn divisor(&self) -> u64 {
        if self.ranks == 0 { 1 } else { self.ranks as u64 }
    }

    /// Elements of a chunk: `self.chunk`, or fewer in the last piece of a block.
    #[must_use]
    pub const fn len(&self, chunk: u64) -> u64 {
        let rest = self.count - self.piece(chunk) * self.chunk;
        if rest < self.chunk { rest } else { self.chunk }
    }

    /// First element of the chunk in the rank's input buffer; `None` if it contributes nothing.
    #[must_use]
    pub const fn input(&self, chunk: u64, rank: Rank) -> Option<u64> {
        let at = self.piece(chunk) * self.chunk;
        if rank >= self.ranks {
            return None;
        }
        match (self.kind, self.block(chunk)) {
            (Kind::Broadcast, Block::Root(root)) if rank != root => None,
            (Kind::AllGather, Block::Of(owner)) if rank != owner => None,
            (_, Block::Pair { src, .. }) if rank != src => None,
            (Kind::ReduceScatter, Block::Of(owner)) => Some(owner as u64 * self.count + at),
            (_, Block::Pair { dst, .. }) => Some(dst as u64 * self.count + at),
            _ => Some(at),
        }
    }

    /// First element of the chunk in the rank's output buffer; `None` if it gets no result.
    #[must_use]
    pub const fn output(&self, chunk: u64, rank: Rank) -> Option<u64> {
        let at = self.piece(chunk) * self.chunk;
        if rank >= self.ranks {
            return None;
        }
        match (self.kind, self.block(chunk)) {
            (Kind::Reduce, Block::Root(root)) if rank != root => None,
            (Kind::ReduceScatter, Block::Of(owner)) if rank != owner => None,
            (_, Block::Pair { dst, .. }) if rank != dst => None,
            (Kind::AllGather, Block::Of(owner)) => Some(owner as u64 * self.count + at),
            (_, Block::Pair { src, .. }) => Some(src as u64 * self.count + at),
            _ => Some(at),
        }
    }

    /// Elements of the rank's input buffer; `u64::MAX` if there are more than that.
    #[must_use]
    pub const fn input_len(&self, rank: Rank) -> u64 {
        let n = self.ranks as u64;
        match self.kind {
            _ if rank >= self.ranks => 0,
            Kind::AllReduce | Kind::Reduce | Kind::AllGather => self.count,
            Kind::Broadcast => {
                if rank == self.root {
                    self.count
                } else {
                    0
                }
            }
            Kind::ReduceScatter | Kind::AllToAll => self.count.saturating_mul(n),
            Kind::Barrier => 0,
        }
    }

    /// Elements of the rank's output buffer; `u64::MAX` if there are more than that.
    #[must_use]
    pub const fn output_len(&self, rank: Rank) -> u64 {
        let n = self.ranks as u64;
        match self.kind {
            _ if rank >= self.ranks => 0,
            Kind::AllReduce | Kind::Broadcast | Kind::ReduceScatter => self.count,
            Kind::Reduce => {
                if rank == self.root {
                    self.count
                } else {
                    0
                }
            }
            Kind::AllGather | Kind::AllToAll => self.count.saturating_mul(n),
            Kind::Barrier => 0,
        }
    }
}
