//! How long whole calls take, by every schedule that is worth comparing.

use super::timing::typical;
use super::{Step, Survey};
use crate::builder::GroupBuilder;
use crate::call::Call;
use crate::error::Error;
use crate::member::Member;
use unisono_core::ReduceOp::Sum;
use unisono_core::{DType, Kind, Order, Schedule};
use unisono_planner::topology::{Timing, label};
use unisono_planner::{Model, Topology, candidates, fastest_cut};

/// Bytes of the tensors.
const SIZES: [u64; 9] =
    [8, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// Seconds of a call after which no larger ones are made.
const LONG: f64 = 0.1;

impl GroupBuilder {
    /// Measures all-reduces by every schedule that the planner would compare on this topology, and
    /// adds what they took: links and folds alone leave out what caches, schedulers and many
    /// messages at once do to a call. All processes do it together, and all have the result. A
    /// group with boards stays as it is: they have no time for it.
    ///
    /// # Errors
    /// As for [`GroupBuilder::build`], and those of calls.
    pub fn measure_calls(&self, topology: Topology, step: Step<'_>) -> Result<Topology, Error> {
        let builder = self.plain().order(Order::Any);
        let named = builder.named()?;
        let boards = named.iter().chain(&self.aggregators).any(super::is_board);
        let parts = builder.told(Ok((named.len(), boards)))?;
        if parts.iter().any(|(_, boards)| *boards) {
            return Ok(topology);
        }
        let before = self.world.as_ref().map_or(0, |world| world.rank());
        let first = parts.iter().take(before).map(|(ranks, _)| ranks).sum();
        let members = topology.members.len() as u16;
        let survey = Survey { builder, first, boards: Vec::new(), members, step };
        let mut bare = topology.clone();
        bare.timings.clear();
        let (topology, model) = (&bare, Model::new(&bare));
        let mut timings = Vec::new();
        for schedule in candidates(&model) {
            step("schedules");
            survey.schedule(&schedule, topology, &model, &mut timings)?;
        }
        bare.with_timings(timings).map_err(|error| Error::Build(error.to_string()))
    }
}

impl Survey<'_> {
    /// All sizes by one schedule.
    fn schedule(
        &self,
        schedule: &Schedule,
        topology: &Topology,
        model: &Model,
        timings: &mut Vec<Timing>,
    ) -> Result<(), Error> {
        let ranks = topology.ranks();
        let mut builder = self.builder.clone().schedule(schedule.clone());
        if schedule.members(ranks) == ranks {
            builder.aggregators = Vec::new();
        }
        let mut group = builder.topology(topology.clone()).build()?;
        let found = group.run(|member| {
            let mut found = Vec::new();
            for bytes in SIZES {
                let (cut, count) = (member.cut(), bytes / 4);
                let played = fastest_cut(model, schedule, &cut, Kind::AllReduce, DType::F32, count);
                let Some(played) = played else { continue };
                let forecast = (played.ns * 1e-9).max(1e-9);
                let time = all_reduces(member, count, forecast)?;
                if member.rank() == 0 {
                    let schedule = label(schedule).to_owned();
                    found.push(Timing { schedule, bytes, forecast, time });
                }
                if forecast > LONG {
                    break;
                }
            }
            Ok::<_, Error>(found)
        });
        let found = found.map(|found| found.concat());
        timings.extend(self.builder.told(found)?.concat());
        Ok(())
    }
}

/// Seconds of an all-reduce of so many f32, which should take about so long.
fn all_reduces(member: &mut Member, count: u64, about: f64) -> Result<f64, Error> {
    let call = Call { op: Some(Sum), ..Call::new(Kind::AllReduce, DType::F32, count) };
    // Tensors of members without data have no elements.
    let has = if member.rank() < member.ranks() { count as usize } else { 0 };
    let mut tensor = member.tensor::<f32>(has)?;
    typical(member, about, &mut |member| member.in_place(&call, &mut tensor))
}
