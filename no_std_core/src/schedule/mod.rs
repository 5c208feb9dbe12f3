//! Schedules: which moves a rank makes for a chunk. Pure arithmetic, no state, no memory.
//!
//! One file per algorithm, with its steps and bytes in the header:
//!
//! | schedule | file | steps of an all-reduce | canonical order |
//! |---|---|---|---|
//! | ring | [`mod@ring`] | `2(N-1)` | only for N ≤ 2 |
//! | direct | [`mod@direct`] | 2 | yes |
//! | one-shot | [`mod@one_shot`] | 1 | yes |
//! | binomial | [`mod@tree`] | `2 floor(log2 N)` | yes |
//! | double tree | [`mod@double_tree`] | `2 ceil(log2 N)` | only for N ≤ 2 |
//! | halving-doubling | [`mod@halving_doubling`] | at most `2 ceil(log2 N)` | yes |
//! | star | [`mod@star`] | 2 | yes |
//! | hierarchical | [`mod@hierarchical`] | 4 | if the nodes are subtrees of the canonical tree |
//!
//! # Conventions that every route keeps
//!
//! * A value travels as [`Form::Leaf`](crate::Form::Leaf) before any fold, as `Partial` after a
//!   fold that is not the last, as `Final` afterwards; collectives that do not reduce move `Final`
//!   values only. `Leaf` and `Partial` are matched by [`Move::Recv`](crate::Move::Recv), `Final`
//!   by [`Move::Store`](crate::Move::Store).
//! * For one chunk a rank sends at most one contribution and one result to any other rank.
//! * A rank that already holds its result (one rank alone, the root of a broadcast, the owner in an
//!   all-gather, a pair with itself) does `own, finish`; it sends the raw value before that.
//! * Whoever takes no part in a chunk has an empty route.
//! * Sends never wait for the receiver: a one-shot route sends everything before it receives.

mod code;
mod cost;
pub mod direct;
pub mod double_tree;
pub mod halving_doubling;
pub mod hierarchical;
pub mod one_shot;
mod owners;
pub mod ring;
pub mod star;
pub mod tree;

pub use code::CodeError;
pub use cost::{Cost, Flow, Tally, Traffic};
pub use hierarchical::Nodes;
pub use owners::Owners;
pub use star::Aggregators;

use crate::dtype::{DType, ReduceOp};
use crate::layout::{Block, Kind, Layout};
use crate::route::{Rank, Route};
use serde::{Deserialize, Serialize};

/// Most members (ranks and aggregators together) of a group.
pub const MEMBERS_MAX: usize = 128;

/// Moves that hold any route of any schedule, see [`Schedule::route_len`].
pub const ROUTE_MAX: usize = 2 * MEMBERS_MAX + 2;

/// Which order of the fold the caller accepts (`docs/NUMERICS.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Order {
    /// The balanced binary tree over rank ids, split at the largest power of two below N.
    #[default]
    Canonical,
    /// Whatever the schedule does; still the same bits on every rank and in every run.
    Any,
}

impl Order {
    /// May this schedule be used? Exact operators accept every order.
    #[must_use]
    pub fn permits(
        self,
        schedule: &Schedule,
        kind: Kind,
        ranks: u16,
        op: ReduceOp,
        dtype: DType,
    ) -> bool {
        self == Self::Any || op.is_exact(dtype) || schedule.is_canonical(kind, ranks)
    }
}

/// An algorithm together with its tables (at most 300 bytes, nothing on a heap).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "code::Code", try_from = "code::Code")]
pub enum Schedule {
    /// See [`mod@ring`].
    Ring,
    /// See [`mod@direct`].
    Direct(Owners),
    /// See [`mod@one_shot`].
    OneShot,
    /// See [`mod@tree`].
    Binomial,
    /// See [`mod@double_tree`].
    DoubleTree,
    /// See [`mod@halving_doubling`].
    HalvingDoubling,
    /// See [`mod@star`].
    Star(Aggregators),
    /// See [`mod@hierarchical`].
    Hierarchical(Nodes),
}

impl Schedule {
    /// Name in commands and messages: `ring`, `direct`, `one-shot`, …
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Direct(_) => "direct",
            Self::OneShot => "one-shot",
            Self::Binomial => "binomial",
            Self::DoubleTree => "double-tree",
            Self::HalvingDoubling => "halving-doubling",
            Self::Star(_) => "star",
            Self::Hierarchical(_) => "hierarchical",
        }
    }

    /// Members of a group of `ranks` data ranks: the ranks, then the aggregators.
    #[must_use]
    pub fn members(&self, ranks: u16) -> u16 {
        let aggregators = match self {
            Self::Direct(owners) => owners.aggregators(),
            Self::Star(aggregators) => aggregators.count(),
            _ => 0,
        };
        ranks.saturating_add(aggregators)
    }

    /// Can this schedule run this collective over `ranks` data ranks?
    ///
    /// Tables must have been made for the same number of ranks, and the members must fit
    /// [`MEMBERS_MAX`]. A barrier has no chunks, so everybody supports it.
    #[must_use]
    pub fn supports(&self, kind: Kind, ranks: u16) -> bool {
        use Kind::{AllGather, AllReduce, AllToAll, Barrier, Broadcast, Reduce, ReduceScatter};
        if ranks == 0 || usize::from(self.members(ranks)) > MEMBERS_MAX {
            return false;
        }
        let fits = match self {
            Self::Direct(owners) => owners.ranks() == ranks,
            Self::Hierarchical(nodes) => nodes.ranks() == ranks,
            _ => true,
        };
        let pattern = match kind {
            AllReduce | Barrier => true,
            AllToAll => matches!(self, Self::Direct(_)),
            Reduce | Broadcast => !matches!(self, Self::OneShot),
            ReduceScatter | AllGather => {
                !matches!(self, Self::OneShot | Self::Binomial | Self::DoubleTree)
            }
        };
        fits && pattern
    }

    /// Does every chunk fold in the canonical order ([`Order::Canonical`]), whoever owns it?
    ///
    /// True for collectives that do not reduce.
    #[must_use]
    pub fn is_canonical(&self, kind: Kind, ranks: u16) -> bool {
        !kind.reduces()
            || ranks <= 2
            || match self {
                Self::Ring | Self::DoubleTree => false,
                Self::Hierarchical(nodes) => nodes.is_canonical(),
                _ => true,
            }
    }

    /// Writes the moves of `rank` for `chunk`.
    ///
    /// The route is empty for a rank that takes no part, and for arguments that make no sense (a
    /// collective that is not [supported](Self::supports), a rank or root outside the group), and
    /// for a barrier, which has no chunks.
    /// Time: linear in the moves (hierarchical: in the ranks).
    pub fn route(&self, layout: &Layout, chunk: u64, rank: Rank, route: &mut Route<'_>) {
        let outside = rank >= self.members(layout.ranks);
        if outside || !self.accepts(layout) || layout.kind == Kind::Barrier {
            return;
        }
        if layout.ranks == 1 {
            if rank == 0 {
                route.own(0);
                route.finish();
            }
            return;
        }
        match self {
            Self::Ring => ring::route(layout, chunk, rank, route),
            Self::Direct(owners) => direct::route(owners, layout, chunk, rank, route),
            Self::OneShot => one_shot::route(layout, rank, route),
            Self::Binomial => tree::route(layout, tree::root(layout), rank, route),
            Self::DoubleTree => double_tree::route(layout, chunk, rank, route),
            Self::HalvingDoubling => halving_doubling::route(layout, chunk, rank, route),
            Self::Star(aggregators) => star::route(*aggregators, layout, chunk, rank, route),
            Self::Hierarchical(nodes) => hierarchical::route(nodes, layout, chunk, rank, route),
        }
    }

    /// Most sources that any rank folds at once (its own included).
    #[must_use]
    pub fn fan_in(&self, kind: Kind, ranks: u16) -> u16 {
        if ranks <= 1 || !kind.reduces() {
            return 1;
        }
        match self {
            Self::Ring => 2,
            Self::Direct(_) | Self::OneShot | Self::Star(_) => ranks,
            Self::Binomial | Self::HalvingDoubling => log2_ceil(ranks) + 1,
            Self::DoubleTree => ranks.min(3),
            Self::Hierarchical(nodes) => nodes.largest() + nodes.count() - 1,
        }
    }

    /// Upper bound on the moves of any route; never more than [`ROUTE_MAX`] for a supported group.
    #[must_use]
    pub fn route_len(&self, ranks: u16) -> u16 {
        let most = match self {
            _ if ranks <= 1 => 2,
            Self::Ring => 6,
            Self::Direct(_) | Self::OneShot | Self::Star(_) => {
                ranks.saturating_mul(2).saturating_add(1)
            }
            Self::Binomial | Self::HalvingDoubling => 2 * log2_ceil(ranks) + 4,
            Self::DoubleTree => 8,
            Self::Hierarchical(nodes) => 2 * (nodes.largest() + nodes.count()),
        };
        most.min(ROUTE_MAX as u16)
    }

    /// How many consecutive chunks in flight keep every rank busy.
    ///
    /// A window below it still works, only slower; a chunk in flight takes one slot per source.
    #[must_use]
    pub fn window_hint(&self, ranks: u16) -> u16 {
        let n = ranks.max(1);
        match self {
            _ if n == 1 => 1,
            // As many chunks as a chunk has steps.
            Self::Ring => n.saturating_sub(1).saturating_mul(2),
            Self::Binomial | Self::DoubleTree => 2 * log2_ceil(n),
            // Every owner has a chunk.
            Self::Direct(_) | Self::HalvingDoubling | Self::Hierarchical(_) => self.members(n),
            // One is folded while the next one arrives.
            Self::OneShot => 2,
            Self::Star(aggregators) => aggregators.count().saturating_mul(2),
        }
    }

    /// Stable 64-bit digest of the schedule and its tables (FNV-1a over the canonical encoding: one
    /// byte for the algorithm, then ranks, aggregators and table, 16-bit numbers little-endian).
    ///
    /// Part of the handshake: ranks that would run different schedules never start.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let hash = Fnv::new().byte(self.code());
        match self {
            Self::Direct(owners) => {
                hash.number(owners.ranks()).number(owners.aggregators()).bytes(owners.table())
            }
            Self::Star(aggregators) => hash.number(aggregators.count()),
            Self::Hierarchical(nodes) => hash.number(nodes.ranks()).bytes(nodes.node_of()),
            _ => hash,
        }
        .0
    }

    const fn code(&self) -> u8 {
        match self {
            Self::Ring => 1,
            Self::Direct(_) => 2,
            Self::OneShot => 3,
            Self::Binomial => 4,
            Self::DoubleTree => 5,
            Self::HalvingDoubling => 6,
            Self::Star(_) => 7,
            Self::Hierarchical(_) => 8,
        }
    }

    /// Does every number of the layout make sense for this schedule?
    fn accepts(&self, layout: &Layout) -> bool {
        layout.chunk > 0
            && (!layout.kind.is_rooted() || layout.root < layout.ranks)
            && self.supports(layout.kind, layout.ranks)
    }
}

impl core::fmt::Display for Schedule {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    const fn byte(self, byte: u8) -> Self {
        Self((self.0 ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3))
    }

    const fn number(self, number: u16) -> Self {
        let [low, high] = number.to_le_bytes();
        self.byte(low).byte(high)
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        bytes.iter().fold(self.number(bytes.len() as u16), |hash, &b| hash.byte(b))
    }
}

/// The rank that ends the reduction, or starts the distribution, of a chunk: where the collective
/// leaves the choice, owners take turns.
const fn owner(layout: &Layout, chunk: u64) -> Rank {
    match layout.block(chunk) {
        Block::Whole if layout.ranks == 0 => 0,
        Block::Whole => (chunk % layout.ranks as u64) as Rank,
        Block::Root(rank) | Block::Of(rank) => rank,
        Block::Pair { dst, .. } => dst,
    }
}

/// Chunks after which [`owner`] repeats.
const fn turns(layout: &Layout) -> u64 {
    if layout.kind.is_rooted() { 1 } else { layout.ranks as u64 }
}

/// Does the collective bring the value to every rank?
const fn spreads(kind: Kind) -> bool {
    matches!(kind, Kind::AllReduce | Kind::AllGather | Kind::Broadcast)
}

/// Smallest `k` with `2^k >= n`, for `n >= 1`.
const fn log2_ceil(n: u16) -> u16 {
    (u16::BITS - n.saturating_sub(1).leading_zeros()) as u16
}

/// All ranks but `rank`, starting after it: so that senders do not all begin with rank 0.
fn others(ranks: u16, rank: Rank) -> impl Iterator<Item = Rank> {
    (1..=ranks).map(move |k| (rank + k) % (ranks.max(1))).filter(move |&r| r != rank)
}

/// The leaves of ranks `0..ranks` in order, the own one among them.
fn gather_leaves(ranks: u16, rank: Rank, route: &mut Route<'_>) {
    for from in 0..ranks {
        if from == rank {
            route.own(0);
        } else {
            route.recv(from, 0);
        }
    }
}
