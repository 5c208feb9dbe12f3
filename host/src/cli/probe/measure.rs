//! Who the members of a group are; what is measured of them is the library's part.

use super::super::args::{GroupArgs, Place, Ranks};
use super::super::devices::host_and_cpu;
use super::super::interrupt::Interrupt;
use super::super::job::Job;
use super::super::progress::Progress;
use anyhow::Result;
use std::path::Path;
use unisono::Topology;
use unisono::topology::{Member, numa_nodes, numa_of_pci};

/// What is measured, and where.
pub struct Survey<'a> {
    pub group: &'a GroupArgs,
    pub job: &'a Job,
    pub places: &'a Ranks,
    pub interrupt: &'a Interrupt,
}

/// Measurements of a group.
pub fn steps(ranks: usize) -> u64 {
    (ranks * (ranks - 1) / 2 + 1 + ranks) as u64 + SCHEDULES
}

/// Schedules that are compared where all members are alike, each three times.
const SCHEDULES: u64 = 18;

impl Survey<'_> {
    /// Everything, or links and devices only, on all processes together; all have the result.
    pub fn all(&self, calls: bool, progress: &Progress) -> Result<Topology> {
        let builder = self.group.plain(self.job, self.places).interrupt(self.interrupt.flag());
        let step = |name| {
            progress.stage(name);
            progress.add(1);
        };
        let topology = builder.measure(self.members(), &step)?;
        Ok(if calls { builder.measure_calls(topology, &step)? } else { topology })
    }

    /// The members of this process: ranks, then aggregators.
    fn members(&self) -> Vec<Member> {
        let (host, cpu) = host_and_cpu();
        let sys = Path::new("/sys");
        let nodes = numa_nodes(sys);
        let only = match &nodes[..] {
            [one] => Some(one.node),
            _ => None,
        };
        let named = |place: &Place, data| {
            let pci = if let Place::Gpu(on) = &place { on.card().pci } else { None };
            let pci = pci.and_then(|pci| numa_of_pci(sys, &pci.to_string()));
            let numa = pci.or(only.filter(|_| matches!(place, Place::Cpu)));
            Member::named(&host, &place.name(&cpu), numa, data)
        };
        let ranks = self.places.places().iter().map(|place| named(place, true));
        let others = self.places.aggregators().iter().map(|place| named(place, false));
        ranks.chain(others).collect()
    }
}
