//! New plans for a group that is there, once its links are not what they were.

mod drift;
mod meeting;

use crate::builder::GroupBuilder;
use crate::error::Error;
use crate::group::Group;
use crate::planner::PlanOptions;
use meeting::Meeting;
use std::sync::{Arc, PoisonError, RwLock};
use unisono_planner::{Model, Table, Topology};

pub(crate) use drift::{Gauge, Watch};

/// A drift by less than this may be chance: calls of one plan differ by so much now and then.
const DRIFT: f64 = 1.3;

/// When [`Member::replan`](crate::Member::replan) measures again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Replan {
    /// If the calls of any member take longer, or shorter, by more than this factor than they did
    /// after the last planning.
    Beyond(f64),
    /// In any case.
    Always,
}

impl Default for Replan {
    fn default() -> Self {
        Self::Beyond(DRIFT)
    }
}

impl Replan {
    pub(crate) fn wants(self, drift: f64) -> bool {
        match self {
            Self::Beyond(factor) => drift > factor,
            Self::Always => true,
        }
    }
}

/// What [`Member::replan`](crate::Member::replan) has done: the same on all members.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Replanned {
    /// The factor by which the calls of the member that has drifted most take longer, or shorter,
    /// than after the last planning, in thousandths rounded down; 1 if nobody's have changed, or
    /// if there were too few of them.
    pub drift: f64,
    /// What links and devices are now; `None`: nothing was measured, and all is as before.
    pub measured: Option<Arc<Topology>>,
    /// What they were at the last planning.
    pub before: Arc<Topology>,
    /// Hash of the plans from now on.
    pub plan: u64,
    /// Do they differ from those before?
    pub changed: bool,
}

/// What one member says, and then all together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    pub wanted: bool,
    /// In thousandths.
    pub drift: u64,
}

/// The plans of a group: read for every new call, written only when it plans anew.
pub(crate) struct Plans(RwLock<Arc<PlanOptions>>);

impl Plans {
    pub fn new(options: PlanOptions) -> Self {
        Self(RwLock::new(Arc::new(options)))
    }

    /// Those that count now.
    pub fn now(&self) -> Arc<PlanOptions> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, options: PlanOptions) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(options);
    }
}

/// What this process needs to plan anew.
pub(crate) struct Replanner {
    /// The members of this process on the devices that they are on.
    builder: GroupBuilder,
    /// Which members these are.
    own: Vec<u16>,
    /// Members of the group have no data, and hear nothing in calls.
    others: bool,
    /// Read at every attempt, by all members at the same time.
    topology: RwLock<Arc<Topology>>,
    meeting: Meeting<Replanned>,
}

impl Replanner {
    pub fn new(builder: GroupBuilder, own: Vec<u16>, others: bool, topology: Topology) -> Self {
        let (topology, meeting) = (RwLock::new(Arc::new(topology)), Meeting::new());
        Self { builder, own, others, topology, meeting }
    }

    /// What comes of what all ranks have said in the call with this number.
    pub fn decide(&self, key: u64, said: Said, plans: &Plans) -> Result<Replanned, Error> {
        if !self.others && !said.wanted {
            return Ok(self.steady(said, plans));
        }
        let work = || {
            let said = if self.others { self.said_elsewhere(said)? } else { said };
            if said.wanted { self.measure(said, plans) } else { Ok(self.steady(said, plans)) }
        };
        // It is this error that counts, whatever comes of telling it.
        let tell = |error| drop(self.builder.told::<()>(Err(error)));
        self.meeting.meet(key, self.own.len(), self.builder.patience(), work, tell)
    }

    /// A member of this process does not get that far.
    pub fn miss(&self, key: u64, error: &Error) {
        self.meeting.miss(key, error);
    }

    /// What all processes have heard: those without data learn nothing of a call.
    fn said_elsewhere(&self, own: Said) -> Result<Said, Error> {
        let all = self.builder.told(Ok((own.wanted, own.drift)))?;
        let wanted = all.iter().any(|(wanted, _)| *wanted);
        Ok(Said { wanted, drift: all.iter().map(|(_, drift)| *drift).max().unwrap_or(own.drift) })
    }

    fn steady(&self, said: Said, plans: &Plans) -> Replanned {
        let before = self.topology.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (drift, plan) = (said.factor(), print(&plans.now()));
        Replanned { drift, measured: None, before, plan, changed: false }
    }

    /// All processes measure, make a plan each, and agree that it is the same.
    fn measure(&self, said: Said, plans: &Plans) -> Result<Replanned, Error> {
        let known = self.topology.read().unwrap_or_else(PoisonError::into_inner).clone();
        let name = |member: &u16| {
            let nobody = unisono_planner::Member::named("", "cpu:aggregator", None, false);
            known.members.get(usize::from(*member)).cloned().unwrap_or(nobody)
        };
        let topology = self.builder.measure(self.own.iter().map(name).collect(), &|_| ())?;
        // Forecasts that were corrected by whole calls are so again.
        let topology = match known.timings[..] {
            [] => topology,
            _ => self.builder.measure_calls(topology, &|_| ())?,
        };
        let options = plans.now();
        let table = Table::new(&Model::new(&topology), &options.cut());
        let plan = table.fingerprint();
        let all = self.builder.told(Ok(plan))?;
        if let Some(at) = all.iter().position(|other| *other != all[0]) {
            let text = format!("process {at} comes to another plan than process 0");
            return Err(Error::Replan(text));
        }
        let changed = plan != print(&options);
        let table = Some(Arc::new(table));
        plans.set(PlanOptions { table, ..PlanOptions::clone(&options) });
        let topology = Arc::new(topology);
        *self.topology.write().unwrap_or_else(PoisonError::into_inner) = topology.clone();
        let drift = said.factor();
        tracing::info!(
            "re-planned, drift {drift}: {}",
            if changed { "changed" } else { "as before" }
        );
        Ok(Replanned { drift, measured: Some(topology), before: known, plan, changed })
    }
}

impl Said {
    fn factor(self) -> f64 {
        self.drift as f64 / 1000.0
    }
}

/// Hash of the plans.
fn print(options: &PlanOptions) -> u64 {
    options.table.as_ref().map_or(0, |table| table.fingerprint())
}

impl Group {
    /// [`Member::replan`](crate::Member::replan) on every member of this process.
    ///
    /// # Errors
    /// As for [`Member::replan`](crate::Member::replan).
    pub fn replan(&mut self, when: Replan) -> Result<Replanned, Error> {
        let all = self.run(|member| member.replan(when))?;
        let none = || Error::Replan("this process has no member of the group".to_owned());
        all.into_iter().next().ok_or_else(none)
    }
}
