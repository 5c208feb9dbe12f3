//! Drawing what goes wrong on purpose.

use super::calls::{self, CallPlan};
use crate::device::FailsAt;
use crate::rng::Rng;

/// A call that does not belong to the one that the others make.
#[derive(Clone, Debug)]
pub struct Variant(pub CallPlan);

/// Something that goes wrong beside what the network does.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A member gives a call up, so long after it has begun it.
    Cancel {
        /// Which call.
        call: usize,
        /// The member.
        member: usize,
        /// Nanoseconds.
        after: u64,
    },
    /// A member makes another call than the others.
    Mismatch {
        /// Which call.
        call: usize,
        /// The member.
        member: usize,
        /// What it calls.
        variant: Box<Variant>,
    },
    /// A member's call has a deadline that may be too early.
    Deadline {
        /// Which call.
        call: usize,
        /// The member.
        member: usize,
        /// Nanoseconds after it has begun.
        after: u64,
    },
    /// A member's device fails once.
    Device {
        /// The member.
        member: usize,
        /// Which of its jobs.
        job: u64,
        /// When.
        at: FailsAt,
    },
    /// A member is gone for good.
    Death {
        /// The member.
        member: usize,
        /// When, in nanoseconds.
        at: u64,
    },
}

/// Draws none (half of the time), one or two.
pub(super) fn draw(
    rng: &mut Rng,
    ranks: u16,
    aggregators: u16,
    bytes: bool,
    calls: &[CallPlan],
) -> Vec<Fault> {
    let number = *rng.pick(&[0, 0, 0, 0, 1, 1, 1, 2]);
    let mut faults: Vec<Fault> = Vec::new();
    for _ in 0..number {
        let call = rng.below(calls.len() as u64) as usize;
        let plan = &calls[call];
        let member = rng.below(plan.members() as u64) as usize;
        let soon = *rng.pick(&[0, 1_000, 50_000, 2_000_000, 100_000_000]);
        let after = rng.below(soon + 1);
        let fault = match rng.below(5) {
            0 => Fault::Cancel { call, member, after },
            1 => Fault::Deadline { call, member, after },
            2 => {
                let at = if rng.chance(50) { FailsAt::Start } else { FailsAt::End };
                Fault::Device { member, job: rng.below(20), at }
            }
            3 if plan.members() > 1 => {
                let dead = |f: &Fault| matches!(f, Fault::Death { .. });
                if faults.iter().any(dead) {
                    continue;
                }
                Fault::Death { member, at: after }
            }
            _ => match vary(rng, ranks, aggregators, bytes, plan, member) {
                Some(variant) => Fault::Mismatch { call, member, variant: Box::new(variant) },
                None => continue,
            },
        };
        faults.push(fault);
    }
    faults
}

/// A call that differs from `plan` in something that all members have to agree on.
fn vary(
    rng: &mut Rng,
    ranks: u16,
    aggregators: u16,
    bytes: bool,
    plan: &CallPlan,
    member: usize,
) -> Option<Variant> {
    // One rank alone needs nothing from an aggregator, and neither finds out.
    if ranks < 2 {
        return None;
    }
    let mut other = plan.clone();
    match rng.below(3) {
        0 => other.layout.count += 1,
        1 => other.layout.chunk += 1,
        _ => {
            other = calls::draw_one(rng, ranks, aggregators, bytes);
            other.starts.clone_from(&plan.starts);
            let most = other.eager as u16;
            other.starts.iter_mut().for_each(|start| start.window = start.window.max(most));
        }
    }
    let differs = other.layout != plan.layout
        || other.dtype != plan.dtype
        || other.op != plan.op
        || other.eager != plan.eager
        || other.schedule != plan.schedule;
    (differs && member < other.members()).then_some(Variant(other))
}
