//! What one world is made of: the call, and everything that must not change its result.

use super::shapes::Rng;
use unisono_core::machine::Config;
use unisono_core::time::Instant;
use unisono_core::{DType, Kind, Layout, ReduceOp, Scalar, Schedule};

/// The machine under test: 8 chunks in flight, routes of 48 moves, 20 members.
pub const W: usize = 8;
pub const R: usize = 48;
pub const P: usize = 20;

/// How two members are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Payload is read where it lies.
    Span,
    /// As [`Join::Span`], and answers may be written into the sender's memory.
    Put,
    /// Payload is copied.
    Bytes,
}

/// How all members are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    All(Join),
    /// Each pair in its own way.
    Mixed,
}

/// In which order enabled steps are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// First come, first served.
    Fifo,
    /// Any enabled step.
    Random,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub schedule: Schedule,
    pub layout: Layout,
    pub dtype: DType,
    pub op: Option<ReduceOp>,
    pub window: u16,
    pub eager: u64,
    pub joins: Joins,
    pub in_place: bool,
    /// Ranks whose buffers peers cannot reach: all of them, each by itself with this seed.
    pub private: Option<u64>,
    pub sources_max: u16,
    pub dests_max: u16,
    /// Slots beyond the least that are enough.
    pub spare_slots: u8,
    pub turns: Turns,
    /// Frames that a channel holds.
    pub depth: usize,
    /// Jobs that a device takes at once.
    pub jobs: usize,
    /// The input grows while the call runs.
    pub grows: bool,
    /// Members differ in window, slots and what their devices take; the above are then the most.
    pub varied: bool,
    pub deadline: Option<Instant>,
    pub seed: u64,
}

impl Case {
    /// A plain case: all defaults, spans, nothing random.
    pub fn new(schedule: Schedule, kind: Kind, ranks: u16, count: u64) -> Self {
        let layout = Layout { kind, ranks, count, chunk: 1, root: 0 };
        Self {
            schedule,
            layout,
            dtype: DType::F16,
            op: kind.reduces().then_some(ReduceOp::PreMulSum),
            window: 2,
            eager: 0,
            joins: Joins::All(Join::Span),
            in_place: false,
            private: None,
            sources_max: 32,
            dests_max: 32,
            spare_slots: 0,
            turns: Turns::Fifo,
            depth: 2,
            jobs: 2,
            grows: false,
            varied: false,
            deadline: None,
            seed: 0,
        }
    }

    /// Draws everything that must not change the result.
    pub fn draw(mut self, seed: u64) -> Self {
        let mut rng = Rng(seed);
        self.seed = rng.next();
        self.joins = rng.pick(&[
            Joins::All(Join::Span),
            Joins::All(Join::Put),
            Joins::All(Join::Bytes),
            Joins::Mixed,
        ]);
        self.in_place = self.layout.kind != Kind::AllToAll && rng.one_in(2);
        self.sources_max = rng.pick(&[2, 3, 32]);
        self.dests_max = rng.pick(&[1, 2, 32]);
        self.spare_slots = rng.pick(&[0, 0, 1, 3, 31]);
        self.turns = if rng.one_in(4) { Turns::Fifo } else { Turns::Random };
        self.depth = rng.pick(&[1, 2, 5]);
        self.jobs = rng.pick(&[1, 2, 8]);
        self.grows = rng.one_in(4);
        self.varied = rng.one_in(3);
        self.private = rng.one_in(3).then(|| rng.next());
        if rng.one_in(2) {
            self.eager = rng.below(u64::from(self.window) + 1);
        }
        self
    }

    pub fn members(&self) -> u16 {
        self.schedule.members(self.layout.ranks)
    }

    /// How two members are joined; the same from both ends.
    pub fn join(&self, a: u16, b: u16) -> Join {
        match self.joins {
            Joins::All(join) => join,
            Joins::Mixed => {
                let pair = u64::from(a.min(b)) << 16 | u64::from(a.max(b));
                Rng(self.seed ^ pair).pick(&[Join::Span, Join::Put, Join::Bytes])
            }
        }
    }

    /// Can peers not reach the rank's input (0) or output (1)? In place they are the same.
    fn is_private(&self, rank: u16, buffer: u64) -> bool {
        let buffer = if self.in_place { 0 } else { buffer };
        self.private.is_some_and(|seed| Rng(seed ^ u64::from(rank) << 8 ^ buffer).one_in(2))
    }

    /// A rank's weight, so that no leaf is taken for another one.
    pub const fn weight(rank: u16) -> Scalar {
        Scalar(1000 + rank as u64)
    }

    pub fn config(&self, rank: u16, op_id: u64) -> Config {
        let others = (0..self.members()).filter(|&p| p != rank);
        let set = |join| {
            let joined = others.clone().filter(|&p| self.join(rank, p) == join);
            joined.fold(0, |set, p| set | 1u128 << p)
        };
        let mut config = Config {
            epoch: 7,
            op_id,
            rank,
            schedule: self.schedule.clone(),
            schedule_print: self.schedule.fingerprint(),
            layout: self.layout,
            dtype: self.dtype,
            op: self.op,
            weight: Self::weight(rank),
            window: self.window,
            eager: self.eager,
            slots: 0,
            by_bytes: set(Join::Bytes),
            puts: set(Join::Put),
            in_place: self.in_place,
            input_private: self.is_private(rank, 0),
            output_private: self.is_private(rank, 1),
            sources_max: self.sources_max,
            dests_max: self.dests_max,
            deadline: self.deadline,
        };
        let mut spare = self.spare_slots;
        if self.varied {
            let mut rng = Rng(self.seed ^ u64::from(rank) << 40);
            let window = 1 + rng.below(u64::from(self.window));
            config.window = window.max(self.eager) as u16;
            config.sources_max = 2 + rng.below(u64::from(self.sources_max) - 1) as u16;
            config.dests_max = 1 + rng.below(u64::from(self.dests_max)) as u16;
            spare = rng.below(u64::from(spare) + 1) as u8;
        }
        config.slots = config.slots_min().saturating_add(spare).min(31);
        config
    }
}
