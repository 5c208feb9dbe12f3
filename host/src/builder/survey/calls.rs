//! How long whole calls take, by every schedule that is worth comparing.

use super::timing::{timed, typical};
use super::{Step, Survey};
use crate::builder::GroupBuilder;
use crate::call::Call;
use crate::error::Error;
use crate::group::Group;
use crate::member::Member;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};
use unisono_core::ReduceOp::Sum;
use unisono_core::{DType, Kind, Order, Schedule};
use unisono_planner::topology::{Timing, label};
use unisono_planner::{Model, Topology, candidates, fastest_cut};

/// Bytes of the tensors.
const SIZES: [u64; 9] =
    [8, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// How often each schedule is measured, by a new group each time, as one keeps its luck with cores
/// and connections; once if that takes long.
const ROUNDS: usize = 3;
const ENOUGH: Duration = Duration::from_secs(5);

/// Elements of a small call.
const FEW: u64 = 16 << 10;

/// Seconds of small calls before a group is measured.
const SETTLE: f64 = 0.02;

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
        let (mut timings, started) = (Vec::new(), Instant::now());
        for _ in 0..ROUNDS {
            for schedule in candidates(&model) {
                step("schedules");
                survey.schedule(&schedule, topology, &model, &mut timings)?;
            }
            // All go by the clock of the first process.
            let enough = survey.builder.told(Ok(started.elapsed() > ENOUGH))?;
            if enough.first().is_none_or(|enough| *enough) {
                break;
            }
        }
        bare.with_timings(middle(timings)).map_err(|error| Error::Build(error.to_string()))
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
        // Some calls to know how often each size fits the time; only ranks hear results, so all
        // members are told how long that took. Many small ones, as barriers take longer.
        let once = self.sizes(&mut group, |member, count, _| {
            let calls = if count <= FEW { 32 } else { 1 };
            all_reduces(member, count, &mut |member, call| timed(member, calls, call))
        })?;
        let times = self.sizes(&mut group, |member, count, at| {
            let about = once.get(at).copied().unwrap_or(LONG);
            if at == 0 {
                // Members find cores of their own meanwhile.
                let calls = (SETTLE / about.max(1e-9)).clamp(1.0, 4096.0) as u32;
                all_reduces(member, count, &mut |member, call| timed(member, calls, call))?;
            }
            all_reduces(member, count, &mut |member, call| typical(member, about, call))
        })?;
        let played = self.of_first(&mut group, |member| {
            let (cut, kind, dtype) = (member.cut(), Kind::AllReduce, DType::F32);
            let played = |bytes| fastest_cut(model, schedule, &cut, kind, dtype, bytes / 4);
            Ok(SIZES.map(|bytes| played(bytes).map(|played| played.ns * 1e-9)))
        })?;
        let known = SIZES.into_iter().zip(times).zip(played.into_iter().flatten());
        timings.extend(known.filter_map(|((bytes, time), played)| {
            let (schedule, forecast) = (label(schedule).to_owned(), played?.max(1e-9));
            Some(Timing { schedule, bytes, forecast, time })
        }));
        Ok(())
    }

    /// What rank 0 finds when all members do this; all processes are told.
    fn of_first<T: Send + Serialize + DeserializeOwned>(
        &self,
        group: &mut Group,
        work: impl Fn(&mut Member) -> Result<T, Error> + Sync,
    ) -> Result<Option<T>, Error> {
        let found = group.run(|member| {
            let found = work(member)?;
            Ok::<_, Error>((member.rank() == 0).then_some(found))
        });
        Ok(self.builder.told(found)?.into_iter().flatten().flatten().next())
    }

    /// Seconds of all sizes, as rank 0 has measured them and all members know them.
    fn sizes(
        &self,
        group: &mut Group,
        time: impl Fn(&mut Member, u64, usize) -> Result<f64, Error> + Sync,
    ) -> Result<Vec<f64>, Error> {
        let mut all = Vec::new();
        for (at, bytes) in SIZES.into_iter().enumerate() {
            let found = self.of_first(group, |member| time(member, bytes / 4, at))?;
            all.extend(found);
            if found.is_none_or(|time| time > LONG) {
                break;
            }
        }
        Ok(all)
    }
}

/// Of each schedule and size the middle one.
fn middle(mut timings: Vec<Timing>) -> Vec<Timing> {
    let key = |timing: &Timing| (timing.schedule.clone(), timing.bytes);
    timings.sort_by(|a, b| key(a).cmp(&key(b)).then(a.time.total_cmp(&b.time)));
    let same = timings.chunk_by(|a, b| key(a) == key(b));
    same.map(|same| same[same.len() / 2].clone()).collect()
}

type Timed<'a> = &'a mut dyn FnMut(
    &mut Member,
    &mut dyn FnMut(&mut Member) -> Result<(), Error>,
) -> Result<f64, Error>;

/// Seconds of an all-reduce of so many f32, by this way of measuring; once before that, as it meets
/// memory that nobody has touched.
fn all_reduces(member: &mut Member, count: u64, time: Timed<'_>) -> Result<f64, Error> {
    let call = Call { op: Some(Sum), ..Call::new(Kind::AllReduce, DType::F32, count) };
    // Tensors of members without data have no elements.
    let has = if member.rank() < member.ranks() { count as usize } else { 0 };
    let mut tensor = member.tensor::<f32>(has)?;
    member.in_place(&call, &mut tensor)?;
    time(member, &mut |member| member.in_place(&call, &mut tensor))
}
