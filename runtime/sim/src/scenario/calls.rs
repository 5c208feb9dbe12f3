//! Drawing the calls of a scenario.

use crate::rng::Rng;
use crate::scenario::{MEMBERS_MAX, WINDOW_MAX};
use unisono_core::schedule::{Aggregators, Nodes, Owners};
use unisono_core::{DType, Kind, Layout, ReduceOp, Scalar, Schedule};

/// What the elements of a call's inputs look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Any bits: NaN, infinities and subnormals too.
    Bits,
    /// Numbers of moderate size.
    Numbers,
}

/// How a member comes to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Nanoseconds after it has begun the call before (or since time zero).
    pub after: u64,
    /// Its input becomes final in so many steps; 0: it is final at once.
    pub steps: u64,
    /// More scratch slots a chunk than the least.
    pub more_slots: u8,
    /// Chunks that it can have in flight; members may differ.
    pub window: u16,
}

/// One call of all members.
#[derive(Clone, Debug)]
pub struct CallPlan {
    /// By which schedule.
    pub schedule: Schedule,
    /// What is moved, and how it is cut.
    pub layout: Layout,
    /// Type of the elements.
    pub dtype: DType,
    /// Operator, if the collective reduces.
    pub op: Option<ReduceOp>,
    /// Weights of the ranks.
    pub weights: Vec<Scalar>,
    /// Chunks in flight, on most members.
    pub window: u16,
    /// Chunks that may be sent before the receiver has begun.
    pub eager: u64,
    /// Input and output are the same memory.
    pub in_place: bool,
    /// What the inputs look like.
    pub contents: Contents,
    /// Seed of the inputs.
    pub seed: u64,
    /// How each member comes to it.
    pub starts: Vec<Start>,
}

impl CallPlan {
    /// Members that take part.
    #[must_use]
    pub fn members(&self) -> usize {
        usize::from(self.schedule.members(self.layout.ranks))
    }

    /// One line for the trace.
    #[must_use]
    pub fn describe(&self) -> String {
        let Layout { kind, ranks, count, chunk, root } = self.layout;
        let op = self.op.map_or("-", ReduceOp::name);
        format!(
            "{kind} of {count} {} ({op}) over {ranks} by {}, chunk {chunk}, window {}, \
             root {root}, eager {}{}",
            self.dtype,
            self.schedule,
            self.window,
            self.eager,
            if self.in_place { ", in place" } else { "" }
        )
    }

    /// The input of a rank.
    #[must_use]
    pub fn input(&self, rank: u16) -> Vec<u8> {
        let mut rng = Rng::new(self.seed ^ u64::from(rank) << 32);
        let elems = self.layout.input_len(rank) as usize;
        let mut bytes = rng.bytes(elems * self.dtype.size());
        if self.contents == Contents::Numbers {
            for i in 0..elems {
                let value = rng.below(2_000_001) as f64 / 1e4 - 100.0;
                unisono_core::numeric::write_f64(self.dtype, &mut bytes, i, value);
            }
        }
        bytes
    }
}

/// Draws the calls of a group.
pub(super) fn draw(rng: &mut Rng, ranks: u16, aggregators: u16, bytes: bool) -> Vec<CallPlan> {
    let members = usize::from(ranks + aggregators);
    let calls = rng.within(1, 6);
    // Back to back, or with pauses, or with members far apart.
    let pause = *rng.pick(&[0, 1_000, 100_000, 20_000_000]);
    (0..calls)
        .map(|_| {
            let late = if rng.chance(15) { 200_000_000 } else { pause };
            let mut plan = draw_one(rng, ranks, aggregators, bytes);
            for _ in 0..members {
                let after =
                    rng.below(pause + 1) + if rng.chance(15) { rng.below(late + 1) } else { 0 };
                let steps = if rng.chance(15) { rng.within(1, 5) } else { 0 };
                let more_slots = if rng.chance(50) { rng.below(8) as u8 } else { 0 };
                let least = plan.eager.max(1);
                let window = match rng.chance(30) {
                    true => rng.within(least, WINDOW_MAX as u64) as u16,
                    false => plan.window,
                };
                plan.starts.push(Start { after, steps, more_slots, window });
            }
            plan
        })
        .collect()
}

/// Draws one call, without the members' starts.
pub(super) fn draw_one(rng: &mut Rng, ranks: u16, aggregators: u16, bytes: bool) -> CallPlan {
    let kind = if rng.chance(50) { Kind::AllReduce } else { *rng.pick(&Kind::ALL) };
    let schedule = draw_schedule(rng, kind, ranks, aggregators);
    let dtype = if rng.chance(50) { DType::F32 } else { *rng.pick(&DType::ALL) };
    let op = kind.reduces().then(|| {
        loop {
            let op = *rng.pick(&ReduceOp::ALL);
            if op.supports(dtype) {
                break op;
            }
        }
    });
    let count = draw_count(rng, kind, ranks, dtype);
    let chunk = draw_chunk(rng, kind, ranks, count);
    let window = rng.within(1, WINDOW_MAX as u64) as u16;
    // Bytes may not come before there is a place for them.
    let eager = if bytes || rng.chance(30) { 0 } else { rng.within(0, u64::from(window)) };
    let root = if kind.is_rooted() { rng.below(u64::from(ranks)) as u16 } else { 0 };
    let weight = |rng: &mut Rng| match dtype.is_float() {
        true => Scalar::from_f64(rng.below(4001) as f64 / 1e3 - 2.0),
        false => Scalar::from_i64(rng.below(11) as i64 - 5),
    };
    CallPlan {
        schedule,
        layout: Layout { kind, ranks, count, chunk, root },
        dtype,
        op,
        weights: (0..ranks).map(|_| weight(rng)).collect(),
        window,
        eager,
        in_place: kind != Kind::AllToAll && rng.chance(50),
        contents: if rng.chance(50) { Contents::Bits } else { Contents::Numbers },
        seed: rng.word(),
        starts: Vec::new(),
    }
}

fn draw_schedule(rng: &mut Rng, kind: Kind, ranks: u16, aggregators: u16) -> Schedule {
    use Schedule::{Binomial, DoubleTree, HalvingDoubling, OneShot, Ring};
    let mut all = vec![Ring, OneShot, Binomial, DoubleTree, HalvingDoubling];
    all.extend(Owners::equal(ranks).map(Schedule::Direct));
    let weights: Vec<u32> = (0..ranks + aggregators).map(|_| rng.below(4) as u32).collect();
    all.extend(Owners::weighted(ranks, &weights).map(Schedule::Direct));
    if aggregators > 0 {
        let some = rng.within(1, u64::from(aggregators)) as u16;
        all.extend(Aggregators::new(some).map(Schedule::Star));
        all.extend(Aggregators::new(aggregators).map(Schedule::Star));
    }
    let size = rng.within(1, u64::from(ranks)) as u16;
    all.extend(Nodes::even(ranks, size).map(Schedule::Hierarchical));
    let nodes: Vec<u16> = (0..ranks).map(|_| rng.below(3) as u16).collect();
    all.extend(Nodes::new(&nodes).map(Schedule::Hierarchical));
    if aggregators > 0 {
        all.extend(Nodes::even(ranks, size).map(Schedule::Hub));
        all.extend(Nodes::new(&nodes).map(Schedule::Hub));
    }
    all.retain(|s| s.supports(kind, ranks) && usize::from(s.members(ranks)) <= MEMBERS_MAX);
    rng.pick(&all).clone()
}

/// Bytes that one call may move at all: a run has to be short.
const BYTES_MAX: u64 = 150_000;

fn draw_count(rng: &mut Rng, kind: Kind, ranks: u16, dtype: DType) -> u64 {
    let n = u64::from(ranks);
    let blocks = match kind {
        Kind::AllReduce | Kind::Reduce | Kind::Broadcast | Kind::Barrier => 1,
        Kind::ReduceScatter | Kind::AllGather | Kind::AllToAll => n,
    };
    let most = (BYTES_MAX / (n * n * blocks * dtype.size() as u64)).clamp(2, 5_000);
    let count = match rng.below(8) {
        0 => 0,
        1 => 1,
        2 => rng.below(n + 1),
        3 => rng.within(1, most / 2) * 2 - 1,
        4 | 5 => rng.within(0, most.min(100)),
        _ => rng.within(0, most),
    };
    if kind == Kind::Barrier { 0 } else { count.min(most) }
}

fn draw_chunk(rng: &mut Rng, kind: Kind, ranks: u16, count: u64) -> u64 {
    let n = u64::from(ranks);
    let pieces_max = match kind {
        Kind::AllToAll => (160 / (n * n)).max(2),
        Kind::ReduceScatter | Kind::AllGather => (100 / n).max(3),
        _ => 40,
    };
    let pieces = rng.within(1, pieces_max);
    count.div_ceil(pieces).max(1) + if rng.chance(10) { count } else { 0 }
}
