//! Agreement on the fingerprint by dissemination, for calls in which data alone does not connect
//! every rank with every other: broadcast, reduce, barrier, calls that move nothing, calls so short
//! that an aggregator has nothing to do, and several aggregators, which never hear of each other.
//!
//! In round j rank r tells `r + 2^j` and hears from `r - 2^j`; round j is sent only when all
//! rounds below it have been heard. After `ceil(log2 n)` rounds everybody has, directly or through
//! others, heard from everybody (Hensgen, Finkel, Manber 1988: the dissemination barrier). Each
//! frame carries the fingerprint, so a rank that differs is noticed by whoever hears it.

use super::config::Config;
use crate::layout::Kind;
use crate::route::Rank;
use crate::schedule::Schedule;

/// Does the data of the call connect every member with every other?
pub(super) fn is_connected(cfg: &Config) -> bool {
    let chunks = cfg.layout.chunks();
    let kind = cfg.layout.kind;
    // One rank with data sends nothing to anybody, whatever the schedule.
    let alone = cfg.layout.ranks == 1;
    let everyone = match &cfg.schedule {
        _ if alone => cfg.schedule.members(1) == 1,
        Schedule::Star(aggregators) => aggregators.count() == 1,
        Schedule::Direct(owners) if owners.aggregators() > 0 => {
            let table = owners.table();
            let used = &table[..chunks.min(table.len() as u64) as usize];
            let works = used.iter().any(|&o| u16::from(o) == owners.ranks());
            kind == Kind::AllReduce && owners.aggregators() == 1 && works
        }
        _ => true,
    };
    let meets = !matches!(kind, Kind::Broadcast | Kind::Reduce | Kind::Barrier);
    meets && everyone && chunks > 0
}

/// Progress of the agreement on one member.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Agree {
    rounds: u8,
    sent: u8,
    heard: u32,
}

impl Agree {
    pub const fn none() -> Self {
        Self { rounds: 0, sent: 0, heard: 0 }
    }

    /// `needed` false: nothing to agree on.
    pub fn new(needed: bool, members: u16) -> Self {
        let rounds = if needed { members.next_power_of_two().trailing_zeros() as u8 } else { 0 };
        Self { rounds, sent: 0, heard: 0 }
    }

    /// The next round to send and its receiver, if its turn has come.
    pub fn next(&self, rank: Rank, members: u16) -> Option<(u8, Rank)> {
        let below = (1u32 << self.sent) - 1;
        if self.sent >= self.rounds || self.heard & below != below {
            return None;
        }
        let to = (u32::from(rank) + (1 << self.sent)) % u32::from(members).max(1);
        Some((self.sent, to as Rank))
    }

    pub fn sent(&mut self) {
        self.sent += 1;
    }

    /// A round was heard; false if it is not one that `from` sends.
    pub fn hear(&mut self, round: u8, from: Rank, rank: Rank, members: u16) -> bool {
        let ok = round < self.rounds
            && (u32::from(from) + (1u32 << round)) % u32::from(members).max(1) == u32::from(rank)
            && self.heard & (1 << round) == 0;
        if ok {
            self.heard |= 1 << round;
        }
        ok
    }

    pub fn done(&self) -> bool {
        self.sent == self.rounds && self.heard == (1u32 << self.rounds) - 1
    }

    /// Whom this member waits for.
    pub fn waiting_for(&self, rank: Rank, members: u16) -> Option<Rank> {
        let round = (0..self.rounds).find(|j| self.heard & (1 << j) == 0)?;
        let n = u32::from(members).max(1);
        Some(((u32::from(rank) + n - (1 << round) % n) % n) as Rank)
    }
}
