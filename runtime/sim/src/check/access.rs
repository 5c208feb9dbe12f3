//! Memory safety: nobody touches memory that is not his, or that somebody else is at.
//!
//! Every access has a beginning and an end; while it goes on it is a [`Claim`] on its bytes. The
//! rules are those of the driver contracts:
//!
//! * a device reads and writes memory of its own member, or what a peer has lent it and it has
//!   entered;
//! * while bytes are lent, their owner does not change them, and does not touch the window;
//! * a fold may write exactly where one of its own sources starts, and nowhere else where anybody
//!   reads or writes;
//! * a buffer may be freed only when no claim on it is left (checked when it is freed).

use core::fmt;

/// Who uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// A job of a member's device.
    Job {
        /// The member.
        member: u16,
        /// The job's number on that device.
        serial: u32,
    },
    /// A link that writes what it has received.
    Receipt {
        /// The receiver.
        member: u16,
    },
    /// A payload that was given to a link.
    Lent {
        /// The frame's number in the whole simulation.
        frame: u64,
        /// Whom it goes to.
        to: u16,
        /// Has the receiver entered it? Always false on links that move bytes.
        entered: bool,
    },
}

impl User {
    /// Are both the same job or the same frame?
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Lent { frame: a, .. }, Self::Lent { frame: b, .. }) => a == b,
            _ => self == other,
        }
    }
}

/// What somebody does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes it, or lets somebody else write it (a window).
    Write,
}

/// An access that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whose.
    pub user: User,
    /// Which.
    pub access: Access,
    /// First byte.
    pub low: u64,
    /// Byte after the last one.
    pub high: u64,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.access {
            Access::Read => "read",
            Access::Write => "write",
        };
        match self.user {
            User::Job { member, serial } => write!(f, "a {what} by job {serial} of {member}"),
            User::Receipt { member } => write!(f, "a receipt by {member}"),
            User::Lent { frame, to, .. } => write!(f, "a {what} lent to {to} (frame {frame})"),
        }
    }
}

impl Claim {
    /// May this access begin beside the others on the same buffer?
    ///
    /// # Errors
    /// The reason, if it may not.
    pub fn check(&self, owner: u16, others: &[Self]) -> Result<(), String> {
        match self.user {
            User::Job { member, .. } if member != owner && self.low < self.high => {
                let lent = |claim: &&Self| {
                    let access = self.access == claim.access || self.access == Access::Read;
                    claim.is_entered_by(member)
                        && access
                        && claim.low <= self.low
                        && self.high <= claim.high
                };
                if !others.iter().any(|claim| lent(&claim)) {
                    return Err("it was not lent, or not entered".into());
                }
            }
            User::Receipt { member } if member != owner => {
                return Err("a link writes only memory of its own member".into());
            }
            _ => {}
        }
        match others.iter().find(|other| self.conflicts(other)) {
            Some(other) => Err(format!("against {other}, {}..{}", other.low, other.high)),
            None => Ok(()),
        }
    }

    fn is_entered_by(&self, member: u16) -> bool {
        matches!(self.user, User::Lent { to, entered: true, .. } if to == member)
    }

    fn conflicts(&self, other: &Self) -> bool {
        let apart = self.high <= other.low || other.high <= self.low;
        if apart || (self.access == Access::Read && other.access == Access::Read) {
            return false;
        }
        if self.user.is_same(&other.user) {
            // A frame's answer may go where its question was; a fold may write over a source.
            let in_place = self.low == other.low && self.access != other.access;
            return !(in_place || matches!(self.user, User::Lent { .. }));
        }
        match (self.user, other.user) {
            (User::Job { member, .. }, User::Lent { .. }) => !other.is_entered_by(member),
            (User::Lent { .. }, User::Job { member, .. }) => !self.is_entered_by(member),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn claim(user: User, access: Access, low: u64, high: u64) -> Claim {
        Claim { user, access, low, high }
    }

    const fn lent(to: u16, entered: bool) -> User {
        User::Lent { frame: 1, to, entered }
    }

    const JOB: User = User::Job { member: 2, serial: 7 };

    #[test]
    fn what_was_not_lent_is_not_touched() {
        let read = claim(JOB, Access::Read, 8, 16);
        let write = claim(JOB, Access::Write, 8, 16);
        let of = |to, entered, low| [claim(lent(to, entered), Access::Read, low, 32)];
        assert!(read.check(2, &[]).is_ok());
        assert!(read.check(3, &[]).is_err());
        assert!(read.check(3, &of(2, true, 0)).is_ok());
        assert!(read.check(3, &of(2, false, 0)).is_err());
        assert!(read.check(3, &of(1, true, 0)).is_err());
        assert!(read.check(3, &of(2, true, 12)).is_err());
        assert!(write.check(3, &of(2, true, 0)).is_err());
        assert!(write.check(3, &[claim(lent(2, true), Access::Write, 8, 16)]).is_ok());
    }

    #[test]
    fn lent_memory_is_not_changed_by_its_owner() {
        let payload = [claim(lent(5, true), Access::Read, 0, 32)];
        assert!(claim(JOB, Access::Read, 0, 4).check(2, &payload).is_ok());
        assert!(claim(JOB, Access::Write, 0, 4).check(2, &payload).is_err());
        assert!(claim(JOB, Access::Write, 32, 36).check(2, &payload).is_ok());
        let receipt = User::Receipt { member: 2 };
        assert!(claim(receipt, Access::Write, 31, 40).check(2, &payload).is_err());
        assert!(claim(receipt, Access::Write, 31, 40).check(3, &[]).is_err());
        let window = [claim(lent(5, true), Access::Write, 0, 32)];
        assert!(claim(JOB, Access::Read, 0, 4).check(2, &window).is_err());
        // The same frame's window may be its payload; another frame's may not.
        assert!(claim(lent(5, false), Access::Write, 0, 32).check(2, &payload).is_ok());
        let other = User::Lent { frame: 2, to: 6, entered: false };
        assert!(claim(other, Access::Read, 0, 4).check(2, &window).is_err());
        assert!(claim(other, Access::Read, 0, 4).check(2, &payload).is_ok());
    }

    #[test]
    fn a_fold_writes_over_a_source_only_from_its_start() {
        let sources = [claim(JOB, Access::Read, 0, 32), claim(JOB, Access::Read, 64, 96)];
        assert!(claim(JOB, Access::Write, 0, 32).check(2, &sources).is_ok());
        assert!(claim(JOB, Access::Write, 16, 48).check(2, &sources).is_err());
        let other = User::Job { member: 2, serial: 8 };
        assert!(claim(other, Access::Write, 0, 32).check(2, &sources).is_err());
        assert!(claim(other, Access::Read, 0, 32).check(2, &sources).is_ok());
    }
}
