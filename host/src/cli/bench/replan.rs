//! `--replan`: between samples, plans may be made anew.

use super::super::error::Usage;
use super::super::report::rate;
use super::run::{Case, Memory, Sweep, lock, say};
use serde::Serialize;
use std::time::Instant;
use unisono::topology::Member as Measured;
use unisono::{Error, Member, Plan, Replan, Replanned, Schedule};

/// What was done, for the results.
#[derive(Debug, Serialize)]
pub struct Made {
    /// Calls before it, of this type.
    calls: u64,
    /// How far calls had drifted.
    drift: f64,
    /// Seconds that it took.
    seconds: f64,
    /// Are the plans others than before?
    changed: bool,
    /// By which schedule the calls of this row go then, and before.
    schedule: String,
    before: String,
}

/// Rates that differ by less are not worth a word.
const NOTABLE: f64 = 1.3;

impl Sweep<'_> {
    /// Refuses `--replan` before the first row where it makes no sense.
    pub fn can_replan(&self, member: &mut Member) -> Result<(), Error> {
        if self.args.replan.is_none() {
            return Ok(());
        }
        member.replan(Replan::Beyond(f64::INFINITY)).map(drop).map_err(|error| match error {
            Error::Replan(why) => {
                lock(&self.failure).get_or_insert(Usage(format!("--replan: {why}")).into());
                Error::Cancelled(member.rank())
            }
            error => error,
        })
    }

    /// Plans anew if it is time to, and says so if anything was measured.
    pub fn replan(
        &self,
        member: &mut Member,
        case: &Case<'_>,
        memory: &mut Memory,
    ) -> Result<(), Error> {
        if memory.calls < memory.due {
            return Ok(());
        }
        memory.due = memory.calls + u64::from(self.args.replan.unwrap_or(u32::MAX));
        let before = member.plan(&case.call)?;
        let started = Instant::now();
        let done = member.replan(Replan::default())?;
        let seconds = started.elapsed().as_secs_f64();
        let leads = self.job.leads() && usize::from(member.rank()) == self.job.speaker();
        if done.measured.is_none() || !leads {
            return Ok(());
        }
        let [before, schedule] = [before, member.plan(&case.call)?].map(|plan| shown(&plan));
        let (calls, drift, changed) = (memory.calls, done.drift, done.changed);
        let made = Made { calls, drift, seconds, changed, schedule, before };
        let text = made.text(&done);
        lock(&self.results).replanned(made);
        say(self.job, &text).map_err(|error| self.fail(member, error, "writing the results".into()))
    }
}

impl Made {
    /// As lines between those of the table.
    fn text(&self, done: &Replanned) -> String {
        let Self { calls, drift, seconds, schedule, before, .. } = self;
        let plan = if schedule == before {
            format!("still {schedule}")
        } else {
            format!("{before} before, now {schedule}")
        };
        let head = format!("# Re-planned after {calls} calls: drift {drift:.2}, {seconds:.1} s; ");
        let mut text = head + &plan + "\n";
        let Some(now) = &done.measured else { return text };
        for (at, (now, before)) in now.members.iter().zip(&done.before.members).enumerate() {
            let said = changes(before, now);
            if !said.is_empty() {
                text += &format!("#   member {at} {}\n", said.join(", "));
            }
        }
        text
    }
}

/// What a member does at another rate than before.
fn changes(before: &Measured, now: &Measured) -> Vec<String> {
    let rates = [
        ("sends", before.send, now.send),
        ("receives", before.receive, now.receive),
        ("folds", before.fold, now.fold),
    ];
    let notable = |(_, a, b): &(_, f64, f64)| a.max(*b) > a.min(*b) * NOTABLE;
    let said = |(what, a, b)| format!("{what} {} (before {})", rate(b), rate(a));
    rates.into_iter().filter(notable).map(said).collect()
}

/// A plan in a few words: who owns how much, if that is not the same, and how it is cut.
fn shown(plan: &Plan) -> String {
    let mut name = plan.schedule.name().to_owned();
    if let Schedule::Direct(owners) = &plan.schedule {
        let table = owners.table();
        let most = table.iter().max().map_or(0, |owner| u16::from(*owner) + 1);
        let share = |member: u16| table.iter().filter(|own| u16::from(**own) == member).count();
        let shares: Vec<_> = (0..most.max(owners.ranks())).map(share).collect();
        if shares.iter().any(|share| *share != shares[0]) {
            shares.iter().for_each(|share| name += &format!(":{share}"));
        }
    }
    format!("{name}, chunks of {} elements", plan.chunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono::schedule::Owners;
    use unisono::{Call, DType, Group, Kind, Sum};

    #[test]
    fn plans_are_named_with_their_shares() {
        let call = Call { op: Some(Sum), ..Call::new(Kind::AllReduce, DType::F32, 4096) };
        let shown_for = |shares: &[u32]| {
            let owners = Owners::weighted(3, shares).expect("shares");
            let builder = Group::builder().cpus(3).schedule(Schedule::Direct(owners)).chunk(64);
            let members = builder.build().expect("a group").into_members();
            shown(&members[0].plan(&call).expect("a plan"))
        };
        assert_eq!(shown_for(&[1, 1, 1]), "direct, chunks of 64 elements");
        assert_eq!(shown_for(&[2, 1, 0]), "direct:2:1:0, chunks of 64 elements");
    }

    #[test]
    fn only_other_rates_are_named() {
        let before =
            Measured { send: 2.4e7, receive: 1e7, ..Measured::named("h", "d", None, true) };
        let now = Measured { send: 6e6, receive: 1.2e7, ..before.clone() };
        assert_eq!(changes(&before, &now), ["sends 6.00 MB/s (before 24.0 MB/s)"]);
        assert!(changes(&before, &before).is_empty());
    }
}
