//! Liveness: nobody hangs, and nobody is busy with nothing.

use crate::hub::Hub;
use crate::member::{Member, PATIENCE};

/// Virtual time after which a run is over, whatever happens: every call has run into its deadline
/// by then, also one that begins late.
pub const TIME_MAX_NS: u64 = 3 * PATIENCE.as_nanos() as u64;

/// Events of a run at most; the largest scenarios have a tenth of it.
pub const EVENTS_MAX: u64 = 2_000_000;

/// Times that an engine may have done something without time passing. One call does far less.
pub const ROUNDS_MAX: usize = 20_000;

/// Has every member that is still there ended every call?
#[must_use]
pub fn is_over(members: &[Member], calls: usize) -> bool {
    members
        .iter()
        .filter(|m| m.engine.is_some())
        .all(|m| m.calls.len() == calls && m.calls.iter().all(|begun| begun.outcome.is_some()))
}

/// Complains about every call that has not ended.
pub fn check(hub: &Hub, members: &[Member], calls: usize) {
    for member in members.iter().filter(|m| m.engine.is_some()) {
        let id = member.id;
        for (call, begun) in member.calls.iter().enumerate() {
            if begun.outcome.is_none() {
                let what = begun.plan.describe();
                hub.complain(format!("{id} hangs in call {call}: {what}"));
            }
        }
        if member.calls.len() < calls {
            hub.complain(format!("{id} has never come to call {}", member.calls.len()));
        }
    }
}
