//! What a group's plans follow from beside the calls: measured links, and what somebody chose.

use super::places::{About, Places};
use super::team::Team;
use super::{GroupBuilder, On};
use crate::device::DeviceSpec;
use crate::error::Error;
use crate::planner::{Choice, PlanOptions};
use crate::replan::Replanner;
use std::sync::Arc;
use std::time::Duration;
use unisono_planner::{Model, Selection, Table, Topology};

/// Bytes of a topology's text that processes tell each other at a time.
const PIECE: usize = 32 << 10;

fn refuse<T>(text: String) -> Result<T, Error> {
    Err(Error::Build(text))
}

/// Whole lines, some of them at a time.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for line in text.split_inclusive('\n') {
        match parts.last_mut() {
            Some(last) if last.len() + line.len() <= PIECE => last.push_str(line),
            _ => parts.push(line.to_owned()),
        }
    }
    parts
}

impl GroupBuilder {
    /// The same on all processes: what the first one says.
    pub(super) fn agreed(mut self, team: &Team) -> Result<Self, Error> {
        let own = self.chosen();
        let selection = own.as_ref().map(|own| own.as_ref().map(ToString::to_string));
        let topology = self.topology.as_ref().map(Topology::text);
        let told = team.first(selection.map_err(Error::clone), "selection of schedules");
        // The own error is more than its words.
        own?;
        // It has been a selection on the first process.
        self.selection = told?.and_then(|text| text.parse().ok());
        if team.is_alone() {
            return Ok(self);
        }
        let parts = topology.as_deref().map_or_else(Vec::new, parts);
        let print = self.topology.as_ref().map(Topology::fingerprint);
        let (pieces, _) =
            match team.first(Ok(print.map(|print| (parts.len(), print))), "topology")? {
                Some(first) => first,
                None => return Ok(self),
            };
        let mut text = String::new();
        for piece in 0..pieces {
            text += &team.told_by_first(parts.get(piece).cloned().unwrap_or_default())?;
        }
        self.topology = Some(Topology::parse(&text).map_err(|e| Error::Build(e.to_string()))?);
        Ok(self)
    }

    /// The selection of the caller, or of the environment.
    fn chosen(&self) -> Result<Option<Selection>, Error> {
        if self.selection.is_some() || matches!(self.choice, Choice::Fixed(_)) {
            return Ok(self.selection.clone());
        }
        let Some(text) = std::env::var_os(Selection::VARIABLE).filter(|text| !text.is_empty())
        else {
            return Ok(None);
        };
        let parsed = text.to_string_lossy().parse::<Selection>();
        parsed.map(Some).or_else(|error| refuse(format!("{}, {error}", Selection::VARIABLE)))
    }

    /// Members without data that the schedules may need.
    pub(super) fn aggregators(&self, ranks: u16, boards: usize) -> u16 {
        let boards = boards as u16;
        let measured = self.topology.as_ref().map_or(0, Topology::aggregators);
        let rules = self.selection.iter().flat_map(Selection::rules);
        let schedules = rules.filter_map(|rule| rule.pick.schedule(ranks).ok().flatten());
        let picked = schedules.map(|schedule| schedule.members(ranks) - ranks).max();
        boards.max(measured).max(picked.unwrap_or(0))
    }

    /// Are topology and selection about a group of so many ranks?
    pub(super) fn fits(&self, ranks: u16) -> Result<(), Error> {
        if let Some(topology) = &self.topology
            && topology.ranks() != ranks
        {
            let measured = topology.ranks();
            return refuse(format!(
                "the topology is about {measured} ranks, the group has {ranks}: measure this group \
                 with `unisono probe`"
            ));
        }
        for rule in self.selection.iter().flat_map(Selection::rules) {
            if let Err(why) = rule.pick.schedule(ranks) {
                return refuse(format!("the selection of schedules: {why}"));
            }
        }
        Ok(())
    }

    /// The options with the table that follows from the topology; all processes must have made
    /// the same one.
    pub(super) fn planned(
        topology: Option<&Topology>,
        options: PlanOptions,
        team: &Team,
    ) -> Result<PlanOptions, Error> {
        let Some(topology) = topology else { return Ok(options) };
        let (model, cut) = (Model::new(topology), options.cut());
        let table = match &options.choice {
            Choice::Auto => Table::new(&model, &cut),
            Choice::Fixed(schedule) => Table::of(&model, &cut, std::slice::from_ref(schedule)),
        };
        team.first(Ok(Some(table.fingerprint())), "plan for the same topology")?;
        Ok(PlanOptions { table: Some(Arc::new(table)), ..options })
    }

    /// What plans anew for members of this process, which are in these places; or why nothing does.
    pub(super) fn replanner(
        &self,
        places: &Places,
        team: &Team,
        about: Option<&About>,
    ) -> Result<Replanner, String> {
        if self.choice != Choice::Auto {
            return Err("the group has one schedule for all calls, whatever they take".to_owned());
        }
        let mut builder = self.plain();
        let Some(topology) = self.topology.clone() else {
            let text = "the group was built without a topology, so its plans follow rules that no \
                        measurement changes; give it one (`unisono probe` measures it)";
            return Err(text.to_owned());
        };
        if about.is_some_and(|about| !about.names.is_empty()) {
            let text = "a board is in one group at a time, and so cannot be measured; build the \
                        group anew with a new topology";
            return Err(text.to_owned());
        }
        let own: Vec<u16> = team.own_members().collect();
        let without = own.iter().filter(|member| **member >= team.ranks).count();
        builder.ranks = Some(places.on());
        builder.aggregators = vec![On::Named(DeviceSpec::Aggregator); without];
        let others = team.homes.len() > usize::from(team.ranks);
        Ok(Replanner::new(builder, own, others, topology))
    }

    /// How long members of one process wait for each other.
    pub(crate) const fn patience(&self) -> Duration {
        self.timeout
    }
}
