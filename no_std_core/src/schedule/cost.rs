//! Steps and bytes of a schedule as closed formulas; the headers of the algorithms state them.
//!
//! A route depends on its chunk only through the owner (or tree, or aggregator), which repeats with
//! a short period. So a rank's bytes are the sum, over one period, of the elements in chunks of
//! that class times what the class moves per element: no loop over chunks, whatever the count.

use super::{Schedule, direct, double_tree, halving_doubling, hierarchical, hub, one_shot};
use super::{ring, star, tree, turns};
use crate::dtype::DType;
use crate::layout::{Kind, Layout};
use crate::route::Rank;

/// How many times one element of a chunk moves, by the form that it has on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// As a rank's own contribution, in the tensor's type.
    pub leaf: u32,
    /// As a partial sum, in the accumulation type.
    pub partial: u32,
    /// As the finished value, in the tensor's type.
    pub last: u32,
}

/// What one rank sends and receives per element of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// To other ranks.
    pub sent: Tally,
    /// From other ranks.
    pub received: Tally,
}

impl Flow {
    /// Nothing moves.
    pub const NONE: Self = {
        let none = Tally { leaf: 0, partial: 0, last: 0 };
        Self { sent: none, received: none }
    };

    /// Drops the contributions or the results.
    pub(super) const fn only(mut self, contributions: bool, results: bool) -> Self {
        if !contributions {
            self.sent.leaf = 0;
            self.sent.partial = 0;
            self.received.leaf = 0;
            self.received.partial = 0;
        }
        if !results {
            self.sent.last = 0;
            self.received.last = 0;
        }
        self
    }
}

/// Bytes of payload through one rank in a whole call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Sent to other ranks.
    pub sent: u128,
    /// Received from other ranks.
    pub received: u128,
    /// The received bytes that are contributions and go through a fold.
    pub folded: u128,
}

/// What a whole call costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Transfers on the longest path of any chunk: each waits for the one before.
    pub steps: u32,
    /// Bytes sent by the rank that sends most.
    pub sent_max: u128,
    /// Bytes received by the rank that receives most.
    pub received_max: u128,
    /// Bytes folded by the rank that folds most, see [`Traffic::folded`].
    pub folded_max: u128,
    /// Bytes sent by all ranks together.
    pub sent_total: u128,
}

impl Schedule {
    /// What `rank` moves per element of `chunk`; nothing where [`route`](Self::route) is empty.
    #[must_use]
    pub fn flow(&self, layout: &Layout, chunk: u64, rank: Rank) -> Flow {
        let outside = rank >= self.members(layout.ranks);
        if layout.ranks == 1 || outside || !self.accepts(layout) || layout.kind == Kind::Barrier {
            return Flow::NONE;
        }
        match self {
            Self::Ring => ring::flow(layout, chunk, rank),
            Self::Direct(owners) => direct::flow(owners, layout, chunk, rank),
            Self::OneShot => one_shot::flow(layout),
            Self::Binomial => tree::flow(layout, tree::root(layout), rank),
            Self::DoubleTree => double_tree::flow(layout, chunk, rank),
            Self::HalvingDoubling => halving_doubling::flow(layout, chunk, rank),
            Self::Star(aggregators) => star::flow(*aggregators, layout, chunk, rank),
            Self::Hierarchical(nodes) => hierarchical::flow(nodes, layout, chunk, rank),
            Self::Hub(nodes) => hub::flow(nodes, layout, chunk, rank),
        }
    }

    /// Bytes of payload through `rank` in a whole call. Time: at most [`MEMBERS_MAX`] terms.
    ///
    /// [`MEMBERS_MAX`]: super::MEMBERS_MAX
    #[must_use]
    pub fn traffic(&self, layout: &Layout, dtype: DType, rank: Rank) -> Traffic {
        let mut traffic = Traffic::default();
        if !self.accepts(layout) {
            return traffic;
        }
        if layout.kind == Kind::AllToAll {
            if rank < layout.ranks {
                let peers = u128::from(layout.ranks) - 1;
                traffic.sent = peers * u128::from(layout.count) * dtype.size() as u128;
                traffic.received = traffic.sent;
            }
            return traffic;
        }
        let period = self.period(layout, rank);
        for class in 0..period {
            let elements = elements(layout, class, period);
            let Flow { sent, received } = self.flow(layout, class, rank);
            traffic.sent += elements * bytes(sent, dtype);
            traffic.received += elements * bytes(received, dtype);
            traffic.folded += elements * bytes(Tally { last: 0, ..received }, dtype);
        }
        traffic
    }

    /// Steps and bytes of a whole call; all zero for what is not [supported](Self::supports).
    /// Time: at most [`MEMBERS_MAX`](super::MEMBERS_MAX) squared terms.
    #[must_use]
    pub fn cost(&self, layout: &Layout, dtype: DType) -> Cost {
        let mut cost = Cost::default();
        if !self.accepts(layout) {
            return cost;
        }
        cost.steps = self.steps(layout);
        for rank in 0..self.members(layout.ranks) {
            let Traffic { sent, received, folded } = self.traffic(layout, dtype, rank);
            cost.sent_max = cost.sent_max.max(sent);
            cost.received_max = cost.received_max.max(received);
            cost.folded_max = cost.folded_max.max(folded);
            cost.sent_total += sent;
        }
        cost
    }

    /// Transfers on the longest path of any chunk of the call.
    #[must_use]
    pub fn steps(&self, layout: &Layout) -> u32 {
        if !self.accepts(layout) || layout.ranks == 1 || layout.pieces() == 0 {
            return 0;
        }
        // Chunks that differ in the length of their paths: one per owner that occurs.
        let owners = match layout.kind {
            Kind::AllReduce => turns(layout).min(layout.pieces()),
            _ => turns(layout),
        };
        match self {
            Self::Ring => ring::steps(layout),
            Self::Direct(_) => direct::steps(layout),
            Self::OneShot => 1,
            Self::Binomial => tree::steps(layout, tree::root(layout)),
            Self::DoubleTree => double_tree::steps(layout),
            Self::HalvingDoubling => {
                (0..owners).map(|c| halving_doubling::steps(layout, c)).max().unwrap_or(0)
            }
            Self::Star(_) => 2,
            Self::Hierarchical(nodes) => {
                (0..owners).map(|c| hierarchical::steps(nodes, layout, c)).max().unwrap_or(0)
            }
            Self::Hub(nodes) => {
                (0..owners).map(|c| hub::steps(nodes, layout, c)).max().unwrap_or(0)
            }
        }
    }

    /// Chunks after which what `rank` moves repeats.
    fn period(&self, layout: &Layout, rank: Rank) -> u64 {
        match self {
            Self::Direct(owners) if layout.kind == Kind::AllReduce => owners.table().len() as u64,
            Self::OneShot | Self::Binomial => 1,
            Self::DoubleTree => 2,
            // An aggregator does the same for every owner, a rank the same with every aggregator.
            Self::Star(aggregators) if rank >= layout.ranks => u64::from(aggregators.count()),
            _ => turns(layout),
        }
    }
}

/// Bytes of one element that moves this often.
const fn bytes(tally: Tally, dtype: DType) -> u128 {
    (tally.leaf + tally.last) as u128 * dtype.size() as u128
        + tally.partial as u128 * dtype.acc().size() as u128
}

/// Elements of all the chunks `c` with `c % period == class`: the chunks times the chunk's length,
/// less what the last piece of each block lacks.
fn elements(layout: &Layout, class: u64, period: u64) -> u128 {
    let n = u128::from(layout.ranks);
    let blocks = match layout.kind {
        Kind::ReduceScatter | Kind::AllGather => n,
        Kind::AllToAll => n * n,
        _ => 1,
    };
    let pieces = u128::from(layout.pieces());
    let Some(full) = pieces.checked_sub(1) else {
        return 0;
    };
    let chunk = u128::from(layout.chunk);
    let last = u128::from(layout.count) - full * chunk;
    let (class, period) = (u128::from(class), u128::from(period));
    let hits = |chunks: u128| (chunks + period - 1 - class) / period;
    let in_full = hits(full * blocks);
    in_full * chunk + (hits(pieces * blocks) - in_full) * last
}
