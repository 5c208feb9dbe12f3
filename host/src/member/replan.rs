//! A member's part when its group plans anew.

use super::{Body, Member};
use crate::call::Call;
use crate::calls::bytes_mut;
use crate::error::Error;
use crate::replan::{Gauge, Replan, Replanned, Said, Watch};
use unisono_core::ReduceOp::Max;
use unisono_core::{DType, Kind};

/// Around what is said, so that no other call of the same length and type is taken for it.
const MARK: u64 = u64::from_le_bytes(*b"replan\x01\xff");

impl Member {
    /// Plans anew if calls do not take what they took after the last planning: links and devices
    /// are measured again, as by [`GroupBuilder::measure`](crate::GroupBuilder::measure), and whole
    /// calls if the topology has timings of them. Calls from the next one on follow what was found.
    /// Results stay the same, to the bit, unless the group allows any order.
    ///
    /// All members make this call at the same place in the order of their calls, with none in
    /// flight, every 100 steps of training perhaps; each on a thread of its own, as it blocks. If
    /// nobody's calls have drifted, it takes as long as a small all-reduce. Otherwise the
    /// measurement takes seconds: some tenths of one for every two ranks, more with whole calls.
    ///
    /// Calls count that are waited for at once, or made by a [`Worker`](crate::Worker) one at a
    /// time, and whose forecast and time are 0.1 ms at least; 21 that are alike are needed to see a
    /// drift. A rank that comes late, again and again, looks like a slow link to the others, until
    /// the measurement says that it is none; from then on, its being late is what is usual.
    ///
    /// # Errors
    /// [`Error::Replan`] if the group was built without a topology, with one schedule for all
    /// calls, or with boards; while a call is in flight here ([`Error::Refused`] on the others);
    /// and where members come to other plans, or do not all come. Otherwise as for a call, and for
    /// building a group. After an error, the plans are those from before.
    pub fn replan(&mut self, when: Replan) -> Result<Replanned, Error> {
        let shared = self.shared.clone();
        let replanner = shared.replanner.as_ref().map_err(|why| Error::Replan(why.clone()))?;
        let key = self.next_op();
        let said = match self.say_drift(when) {
            Ok(said) => said,
            Err(error) => {
                replanner.miss(key, &error);
                return Err(error);
            }
        };
        let done = replanner.decide(key, said, &shared.plans)?;
        if done.measured.is_some() {
            if let Body::Local(local) = &mut self.body {
                local.forget();
            }
            self.gauge.as_mut().map(Gauge::reset);
        }
        Ok(done)
    }

    /// Tells all others how far this member's calls have drifted; what all together say.
    fn say_drift(&mut self, when: Replan) -> Result<Said, Error> {
        self.end_dropped();
        if !self.held.is_empty() {
            let text = format!("rank {} has a call in flight: wait for it first", self.rank);
            return self.counted(Err(Error::Replan(text)));
        }
        let drift = self.gauge.as_ref().map_or(1.0, Gauge::drift);
        let milli = (drift * 1000.0) as u64;
        let mut words = [MARK, u64::from(when.wants(drift)), milli, !MARK];
        let call = Call::new(Kind::AllReduce, DType::U64, words.len() as u64);
        let call = Call { op: Some(Max), ..call };
        // It is not one of those that are measured.
        let gauge = self.gauge.take();
        let has_data = self.rank < self.ranks();
        let memory: &mut [u8] = if has_data { bytes_mut(&mut words) } else { &mut [] };
        let told = self.run_in_place(&call, memory);
        self.gauge = gauge;
        told?;
        match words {
            [MARK, wanted, drift, mark] if mark == !MARK => Ok(Said { wanted: wanted > 0, drift }),
            _ => {
                let text = "not all ranks do it: another one has made an all-reduce instead";
                Err(Error::Replan(text.to_owned()))
            }
        }
    }

    /// Waits for calls that nobody can ask for any more.
    fn end_dropped(&mut self) {
        while let Some(at) = self.held.iter().position(|held| held.claim.strong_count() == 0) {
            let op_id = self.held[at].op_id;
            // Its caller has dropped the claim, and with it the result.
            let _ = self.finish(op_id);
            self.held.swap_remove(at);
        }
    }

    /// Begins to measure a call, if its group has a topology, and it takes long enough and has the
    /// links for itself.
    pub(crate) fn watch(&mut self, call: &Call) -> Option<Watch> {
        let gauge = self.gauge.as_mut().filter(|_| self.held.is_empty())?;
        gauge.watch(call, || self.shared.plans.now().forecast(call))
    }

    /// A call that was measured has succeeded.
    pub(crate) fn seen(&mut self, watch: Option<Watch>) {
        if let Some((gauge, watch)) = self.gauge.as_mut().zip(watch) {
            gauge.seen(watch);
        }
    }
}
