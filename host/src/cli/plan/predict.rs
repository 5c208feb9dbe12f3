//! The forecast: every candidate at every size, and where the fastest one changes.

use super::super::error::Usage;
use serde::Serialize;
use unisono::{DType, Kind, Order, ReduceOp, Schedule};
use unisono_core::plan::shares;
use unisono_planner::{Cut, Model, candidates, forecast, label};

/// A group and a call on it, but for the size.
pub struct Question {
    /// Members and links.
    pub model: Model,
    /// How calls are cut.
    pub cut: Cut,
    /// The collective.
    pub kind: Kind,
    /// Element type.
    pub dtype: DType,
    /// Operator.
    pub op: ReduceOp,
    /// Orders that will do.
    pub order: Order,
}

/// The answer; as JSON, these are its fields. Times are in seconds.
#[derive(Debug, Serialize)]
pub struct Forecast {
    /// Which collective.
    pub kind: &'static str,
    /// Element type.
    pub dtype: &'static str,
    /// Operator, of collectives that reduce.
    pub op: Option<&'static str>,
    /// `canonical` or `any`.
    pub order: &'static str,
    /// Ranks with data.
    pub ranks: u16,
    /// Members without.
    pub aggregators: usize,
    /// Fractions of the chunks that each member owns in the best direct schedule, if they are not
    /// all the same.
    pub shares: Option<Vec<f64>>,
    /// By size.
    pub sizes: Vec<Size>,
    /// From which size on which schedule is the fastest.
    pub crossovers: Vec<Crossover>,
}

/// One size.
#[derive(Debug, Serialize)]
pub struct Size {
    /// Bytes of the tensor.
    pub bytes: u64,
    /// No algorithm is faster.
    pub lower_bound: f64,
    /// What decides that.
    pub limit: &'static str,
    /// The fastest one first.
    pub schedules: Vec<Candidate>,
}

/// One schedule at one size.
#[derive(Debug, Serialize)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Transfers one after the other.
    pub steps: u32,
    /// Bytes that the busiest rank sends or receives.
    pub busiest: u128,
    /// Elements of a chunk.
    pub chunk: u64,
    /// Predicted.
    pub seconds: f64,
    /// Lower bound over prediction.
    pub of_bound: f64,
    /// Does it keep to the orders that will do?
    pub permitted: bool,
}

/// From this size on.
#[derive(Debug, PartialEq, Serialize)]
pub struct Crossover {
    /// Bytes.
    pub from: u64,
    /// The fastest schedule.
    pub name: String,
}

impl Forecast {
    /// Predicts.
    pub fn new(question: &Question, sizes: &[u64]) -> Result<Self, Usage> {
        let Question { ref model, kind, dtype, op, order, .. } = *question;
        let ranks = model.ranks();
        let all = candidates(model);
        let sizes: Vec<_> = sizes.iter().map(|&bytes| question.size(&all, bytes)).collect();
        if sizes.iter().any(|size| !size.schedules.iter().any(|c| c.permitted)) {
            return Err(Usage(format!("no schedule can do {kind} over {ranks} ranks")));
        }
        let shares = shares(ranks, &model.links()).map(|shares| shares.fractions.to_vec());
        let unequal = |f: &Vec<f64>| f.iter().any(|x| *x != f[0]);
        Ok(Self {
            kind: kind.name(),
            dtype: dtype.name(),
            op: kind.reduces().then_some(op.name()),
            order: if order == Order::Any { "any" } else { "canonical" },
            ranks,
            aggregators: model.members() - usize::from(ranks),
            shares: shares.filter(unequal),
            sizes,
            crossovers: question.crossovers(&all),
        })
    }
}

/// The largest size that crossovers are looked for.
const LARGEST: u64 = 16 << 30;

/// A schedule stays the choice until another one is so much faster: near a crossover both do.
const BETTER: f64 = 0.97;

impl Question {
    /// All schedules at a size.
    fn size(&self, all: &[Schedule], bytes: u64) -> Size {
        let found = self.forecast(all, bytes);
        let candidate = |c: &unisono_planner::Candidate| Candidate {
            name: label(&c.schedule).into(),
            steps: c.steps,
            busiest: c.busiest,
            chunk: c.chunk / self.dtype.size() as u64,
            seconds: c.ns * 1e-9,
            of_bound: if c.ns > 0.0 { found.bound / c.ns } else { 1.0 },
            permitted: self.permits(&c.schedule),
        };
        let schedules = found.candidates.iter().map(candidate).collect();
        let (lower_bound, limit) = (found.bound * 1e-9, found.limit.about());
        Size { bytes, lower_bound, limit, schedules }
    }

    /// The planner's words.
    pub fn forecast(&self, all: &[Schedule], bytes: u64) -> unisono_planner::Forecast {
        forecast(&self.model, all, &self.cut, self.kind, self.dtype, bytes)
    }

    /// Does it keep to the orders that will do?
    pub fn permits(&self, schedule: &Schedule) -> bool {
        self.order.permits(schedule, self.kind, self.model.ranks(), self.op, self.dtype)
    }

    /// The permitted candidate to choose: the one before unless another one is clearly faster.
    fn fastest(&self, all: &[Schedule], bytes: u64, before: Option<&Schedule>) -> Option<Schedule> {
        let found = self.forecast(all, bytes).candidates;
        let mut permitted = found.into_iter().filter(|c| self.permits(&c.schedule));
        let best = permitted.next()?;
        let stays =
            |c: &unisono_planner::Candidate| Some(&c.schedule) == before && best.ns > c.ns * BETTER;
        Some(permitted.find(stays).map_or(best.schedule, |c| c.schedule))
    }

    /// Looks at powers of two, and by bisection between two that have different answers.
    fn crossovers(&self, all: &[Schedule]) -> Vec<Crossover> {
        let size = self.dtype.size() as u64;
        let mut found = Vec::new();
        let mut last: Option<(u64, Schedule)> = None;
        let mut bytes = size;
        while bytes <= LARGEST {
            let before = last.as_ref().map(|(_, schedule)| schedule);
            let Some(fastest) = self.fastest(all, bytes, before) else { return found };
            if before != Some(&fastest) {
                let from = match &last {
                    Some((below, before)) => self.switch(all, *below, bytes, before),
                    None => bytes,
                };
                found.push(Crossover { from, name: label(&fastest).into() });
            }
            last = Some((bytes, fastest));
            bytes *= 2;
        }
        found
    }

    /// The smallest size above `below` at which `before` is not the choice any more, to one part in
    /// a hundred.
    fn switch(&self, all: &[Schedule], mut below: u64, mut above: u64, before: &Schedule) -> u64 {
        let size = self.dtype.size() as u64;
        while above - below > (below / 128).max(size) {
            let middle = below + (above - below) / 2 / size * size;
            if self.fastest(all, middle, Some(before)).as_ref() == Some(before) {
                below = middle;
            } else {
                above = middle;
            }
        }
        above
    }
}
