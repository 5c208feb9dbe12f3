//! Agreement: all surviving members of a call tell the same story.
//!
//! What has gone wrong on purpose is noted as a [`Cause`] of each call that it can touch.
//!
//! * A call without a cause is done on every member.
//! * Otherwise every member is done, with the right bits, or has failed by one of the causes. So
//!   with one cause all that fail have the same kind of error, and where the error names the rank
//!   to blame, it is the right one. A member that had already finished its part keeps its result:
//!   what failed elsewhere came too late to touch it.
//! * With several causes (a cancelled call and a dead member, say) each member has one of them;
//!   which one comes first is a race that no protocol without a vote decides.
//! * Nobody is done with a call that did not match. Members in different calls may all wait for
//!   each other, each for the first frame of the other's call: then they ask each other, long
//!   before a deadline.
//! * Whoever cancels a call, or whose device has failed, is not done with it.

use crate::hub::Hub;
use crate::member::Member;
use unisono_core::wire::frame::Abort;

/// Something that may make a call fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A member called something else.
    Mismatch,
    /// A member's deadline is early.
    Deadline,
    /// A member gave up.
    Cancelled(u16),
    /// A member is gone.
    PeerLost(u16),
    /// A member's device failed.
    DeviceFailed(u16),
}

impl Cause {
    fn explains(self, why: &Abort) -> bool {
        match (self, *why) {
            (Self::Mismatch, Abort::Mismatch { a, b, a_print, b_print }) => {
                a != b && a_print != b_print
            }
            // The odd call may be one that cannot even begin on the member that makes it.
            (Self::Mismatch, Abort::Refused { .. }) | (Self::Deadline, Abort::Deadline { .. }) => {
                true
            }
            (Self::Cancelled(by), Abort::Cancelled { rank })
            | (Self::PeerLost(by), Abort::PeerLost { rank })
            | (Self::DeviceFailed(by), Abort::DeviceFailed { rank }) => by == rank,
            _ => false,
        }
    }
}

/// Checks one call on all members; those that are gone do not count.
pub fn check(hub: &Hub, members: &[Member], call: usize, causes: &[Cause]) {
    for member in members.iter().filter(|m| m.engine.is_some()) {
        let Some(begun) = member.calls.get(call) else { continue };
        let Some(outcome) = &begun.outcome else { continue };
        let Some(result) = outcome.result else { continue };
        let id = member.id;
        match result {
            Ok(()) => {
                let own = [Cause::Cancelled(id as u16), Cause::DeviceFailed(id as u16)];
                if causes == [Cause::Mismatch] || matches!(causes, [c] if own.contains(c)) {
                    hub.complain(format!("{id} is done with call {call} in spite of {causes:?}"));
                }
            }
            Err(why) if causes.iter().any(|cause| cause.explains(&why)) => {}
            Err(why) => {
                hub.complain(format!("{id} gives up call {call} by {why:?}; causes: {causes:?}"));
            }
        }
    }
}
