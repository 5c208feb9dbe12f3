//! The forecast: every candidate at every size, and where the fastest one changes.

use super::super::error::Usage;
use serde::Serialize;
use unisono::schedule::{Nodes, Owners};
use unisono::{Choice, DType, Kind, Order, PlanOptions, ReduceOp, Schedule};
use unisono_core::Layout;
use unisono_core::plan::{Call, LinkModel, candidates, choose, predict, shares};

/// A group and a call on it, but for the size.
pub struct Question {
    /// Ranks with data.
    pub ranks: u16,
    /// Every member, ranks first.
    pub model: Vec<LinkModel>,
    /// Where ranks live.
    pub nodes: Option<Nodes>,
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
        let Question { ranks, kind, dtype, op, order, .. } = *question;
        let all = candidates(ranks, &question.model, question.nodes.as_ref());
        let sizes: Vec<_> = sizes.iter().map(|&bytes| question.size(&all, bytes)).collect();
        if sizes.iter().any(|size| !size.schedules.iter().any(|c| c.permitted)) {
            return Err(Usage(format!("no schedule can do {kind} over {ranks} ranks")));
        }
        let shares = shares(ranks, &question.model).map(|shares| shares.fractions.to_vec());
        let unequal = |f: &Vec<f64>| f.iter().any(|x| *x != f[0]);
        Ok(Self {
            kind: kind.name(),
            dtype: dtype.name(),
            op: kind.reduces().then_some(op.name()),
            order: if order == Order::Any { "any" } else { "canonical" },
            ranks,
            aggregators: question.model.len() - usize::from(ranks),
            shares: shares.filter(unequal),
            sizes,
            crossovers: question.crossovers(&all),
        })
    }
}

/// The largest size that crossovers are looked for.
const LARGEST: u64 = 16 << 30;

impl Question {
    fn size(&self, all: &[Schedule], bytes: u64) -> Size {
        let count = bytes / self.dtype.size() as u64;
        let mut lower_bound = 0.0;
        let mut schedules = Vec::new();
        for schedule in all {
            let layout = self.layout(schedule, count);
            let prediction = predict(schedule, &layout, self.dtype, &self.model);
            let Some(prediction) = prediction else { continue };
            lower_bound = prediction.lower_bound_ns * 1e-9;
            let cost = schedule.cost(&layout, self.dtype);
            schedules.push(Candidate {
                name: self.name(schedule),
                steps: cost.steps,
                busiest: cost.sent_max.max(cost.received_max),
                chunk: layout.chunk,
                seconds: prediction.ns * 1e-9,
                of_bound: prediction.fraction(),
                permitted: self.permits(schedule),
            });
        }
        // Stable: of equals the first one, as `choose` has it.
        schedules.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        Size { bytes, lower_bound, schedules }
    }

    fn permits(&self, schedule: &Schedule) -> bool {
        self.order.permits(schedule, self.kind, self.ranks, self.op, self.dtype)
    }

    fn name(&self, schedule: &Schedule) -> String {
        match schedule {
            Schedule::Direct(owners) if Some(owners) != Owners::equal(self.ranks).as_ref() => {
                "direct, best shares".into()
            }
            _ => schedule.name().into(),
        }
    }

    /// The layout that the library would cut for this schedule.
    fn layout(&self, schedule: &Schedule, count: u64) -> Layout {
        let options = PlanOptions {
            choice: Choice::Fixed(schedule.clone()),
            order: Order::Any,
            ..PlanOptions::new(self.ranks)
        };
        let op = self.kind.reduces().then_some(self.op);
        let plan = options.plan(self.kind, self.dtype, op, count);
        let chunk = plan.map_or(count.max(1), |plan| plan.chunk);
        Layout { kind: self.kind, ranks: self.ranks, count, chunk, root: 0 }
    }

    /// The fastest permitted candidate for so many elements.
    fn fastest(&self, all: &[Schedule], count: u64) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for (index, schedule) in all.iter().enumerate() {
            let layout = self.layout(schedule, count);
            let call = Call { layout, dtype: self.dtype, op: self.op, order: self.order };
            let one = std::slice::from_ref(schedule);
            let Some(choice) = choose(one, &call, &self.model) else { continue };
            let ns = choice.best.prediction.ns;
            if best.is_none_or(|(least, _)| ns < least) {
                best = Some((ns, index));
            }
        }
        best.map(|(_, index)| index)
    }

    /// Looks at powers of two, and by bisection between two that have different answers.
    fn crossovers(&self, all: &[Schedule]) -> Vec<Crossover> {
        let size = self.dtype.size() as u64;
        let mut found = Vec::new();
        let mut last: Option<(u64, usize)> = None;
        let mut count = 1;
        while count * size <= LARGEST {
            let Some(fastest) = self.fastest(all, count) else { return found };
            if last.is_none_or(|(_, before)| before != fastest) {
                let from = match last {
                    Some((below, before)) => self.switch(all, below, count, before),
                    None => count,
                };
                let name = self.name(&all[fastest]);
                found.push(Crossover { from: from * size, name });
            }
            last = Some((count, fastest));
            count *= 2;
        }
        found
    }

    /// The smallest count above `below` at which `before` is not the fastest any more.
    fn switch(&self, all: &[Schedule], mut below: u64, mut above: u64, before: usize) -> u64 {
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if self.fastest(all, middle) == Some(before) {
                below = middle;
            } else {
                above = middle;
            }
        }
        above
    }
}
