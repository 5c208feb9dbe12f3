//! Calls that fail, and the calls after them.

use super::{Event, Rank, World};
use unisono_core::machine::{Config, Status};
use unisono_core::time::Instant;
use unisono_core::wire::frame::{Abort, Fingerprint, Header};

impl World {
    /// Prepares a call; the members will make it.
    pub fn begin(&mut self, case: &super::Case) {
        self.set_up(case);
        for rank in 0..case.members() {
            self.push(Event::Start(rank));
        }
    }

    /// Makes up to `most` steps.
    pub fn go(&mut self, most: u64) {
        for _ in 0..most {
            if !self.step() {
                return;
            }
        }
    }

    /// A number below `n`, from the world's own dice.
    pub fn dice(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    /// Does something to a machine and lets it react.
    pub fn act(&mut self, rank: Rank, what: impl FnOnce(&mut super::Tested)) {
        what(&mut self.member(rank).machine);
        self.touch(rank);
    }

    /// Time comes for everybody.
    pub fn pass(&mut self, now: Instant) {
        for rank in 0..self.members.len() as Rank {
            if self.status(rank) == Status::Running {
                self.act(rank, |m| m.handle_timeout(now));
            }
        }
    }

    /// Delivers again between the two.
    pub fn mend(&mut self) {
        for (from, to) in core::mem::take(&mut self.cut) {
            self.wake(from, to);
        }
    }

    /// Begins the next call on a member whose last one has ended; false if the engine still has to
    /// wait for a device, a payload that arrives or a peer that reads.
    pub fn try_again(&mut self, rank: Rank, config: Config) -> bool {
        let ended = matches!(self.status(rank), Status::Failed(_) | Status::Done);
        let n = self.members.len() as Rank;
        let placing = (0..n).any(|from| self.link(from, rank).placing.is_some());
        if !ended || self.member(rank).busy > 0 || placing || !self.withdraw(rank) {
            return false;
        }
        self.prepare(rank, config);
        let member = self.member(rank);
        (member.sent, member.received, member.frames) = (0, 0, 0);
        self.start(rank);
        true
    }

    /// Runs call `op` on everybody, each beginning when it can, and checks it.
    pub fn next_call(&mut self, op: u64) {
        let all: Vec<Rank> = (0..self.members.len() as Rank).collect();
        let mut waiting = all;
        self.deepest = 0;
        while !waiting.is_empty() {
            let k = self.dice(waiting.len() as u64) as usize;
            let rank = waiting[k];
            let config = self.case.config(rank, op);
            if self.dice(3) == 0 && self.try_again(rank, config) {
                waiting.swap_remove(k);
            }
            let quiet = !self.step();
            let stuck = quiet && waiting.iter().all(|&r| self.status(r) == Status::Running);
            assert!(!stuck, "{waiting:?} do not end");
        }
        self.mend();
        self.drain();
        self.check_done();
    }

    /// Why a member has given up.
    pub fn abort(&self, rank: Rank) -> Abort {
        match self.status(rank) {
            Status::Failed(why) => why,
            other => panic!("rank {rank} is {other:?}: {:?}", self.waits(rank)),
        }
    }

    fn waits(&self, rank: Rank) -> impl core::fmt::Debug {
        self.members[usize::from(rank)].machine.waiting_for()
    }

    pub fn print(&self, rank: Rank) -> Fingerprint {
        self.members[usize::from(rank)].machine.fingerprint()
    }

    /// Puts a frame on a link that nobody has sent.
    pub fn forge(&mut self, to: Rank, header: Header) {
        self.enqueue(to, header, super::links::Carried::None);
    }
}
