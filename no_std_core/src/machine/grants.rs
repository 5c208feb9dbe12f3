//! Which contributions that come as bytes get a scratch slot, and when.
//!
//! # How many slots are enough
//!
//! A lane folds from the left (see `folding`): at any time its sources that are here without a
//! gap form the stack of a binary counter, and everything left of what is being folded is one
//! entry of that stack, in one slot or none. The stack has at most D entries ([`depth`]). So the
//! slots in use are at most
//!
//! * D for the entries of the stack, be they results of partial folds or contributions that wait
//!   for their partner (*settled*),
//! * one for each contribution that has been granted and is neither settled nor spent,
//! * one for the result of the fold that is under way.
//!
//! Contributions are granted in the order of the moves while that sum stays within the lane's
//! slots. If all that has been granted is here and folded as far as it goes, all of it is settled
//! or spent (what comes by span needs no grant and comes by itself), and with D + 2 slots the
//! next contribution is granted. Hence no lane waits for its own slots.
//!
//! Chunks that peers send without having been asked (`eager`) need a slot for each of their
//! contributions from the start: with one for each peer whose contributions come as bytes, one for
//! each fold of a route and D for the stack, all are granted when the lane opens. Their lanes are
//! open as soon as the call begins, so a link never holds a frame that nobody has room for.
//!
//! Slots for copies of values in private memory (see `stage`) come on top of these.

use super::config::{Config, ConfigError};
use super::lane::Lane;
use crate::route::{Move, Rank};
use crate::schedule::Schedule;

impl<M: Copy, const R: usize> Lane<M, R> {
    fn contributions<'a>(&'a self, cfg: &'a Config) -> impl Iterator<Item = Rank> + 'a {
        self.moves.iter().filter_map(|m| match m {
            Move::Recv { from, .. } if cfg.by_bytes >> from & 1 != 0 => Some(*from),
            _ => None,
        })
    }

    /// Counts the contributions of a route that has just been opened and makes the first grants.
    pub fn plan_grants(&mut self, cfg: &Config) {
        self.by_bytes = if cfg.by_bytes == 0 { 0 } else { self.contributions(cfg).count() as u16 };
        if self.by_bytes == 0 {
            return;
        }
        let folds = self.moves.iter().filter(|m| matches!(m, Move::Fold { .. })).count() as u16;
        let one_pass = entries(cfg) <= u32::from(cfg.sources_max)
            && self.by_bytes + folds <= u16::from(cfg.own_slots());
        self.reserve = folds + if one_pass { 0 } else { depth(cfg) as u16 };
        self.granted = self.grantable(cfg);
    }

    /// How many contributions (of the whole route, in order) may have come by now.
    pub fn grantable(&self, cfg: &Config) -> u16 {
        let free = u16::from(cfg.own_slots()).saturating_sub(self.reserve);
        self.by_bytes.min(self.spent + self.settled() + free).max(self.granted)
    }

    /// Has every contribution of `from` to this chunk been granted its slot?
    pub fn admits(&self, from: Rank, cfg: &Config) -> bool {
        self.granted == self.by_bytes
            || self.contributions(cfg).skip(usize::from(self.granted)).all(|f| f != from)
    }
}

/// Most folds of a route: a node's, and the one of all nodes.
const FOLDS_MAX: u32 = 2;

/// Most sources of any fold of the call.
fn entries(cfg: &Config) -> u32 {
    u32::from(cfg.schedule.fan_in(cfg.layout.kind, cfg.layout.ranks))
}

/// Most entries of the binary counter's stack while a source is still missing: the levels that lie
/// below the root of the fold's tree.
fn depth(cfg: &Config) -> u32 {
    let entries = entries(cfg).max(1);
    match cfg.schedule {
        // Sources are subtrees, possibly one of each level.
        Schedule::Binomial
        | Schedule::HalvingDoubling
        | Schedule::Hierarchical(_)
        | Schedule::Hub(_) => {
            let levels = u32::from(cfg.layout.ranks).next_power_of_two().trailing_zeros();
            (entries - 1).min(levels + 1)
        }
        // Leaves only: as many as the number of sources has bits below its highest.
        _ => entries.ilog2(),
    }
}

impl Config {
    /// The fewest scratch slots a chunk with which the call runs.
    #[must_use]
    pub fn slots_min(&self) -> u8 {
        let least = match self.by_bytes {
            _ if !self.layout.kind.reduces() || self.layout.ranks == 1 => 1,
            0 if entries(self) <= u32::from(self.sources_max) => 1,
            0 => depth(self) + 1,
            peers if self.eager > 0 => peers.count_ones() + FOLDS_MAX + depth(self),
            _ => depth(self) + 2,
        };
        least as u8 + self.stage_slots()
    }
}

/// Refuses too few slots, and more than a lane can number.
pub(super) fn check_slots(cfg: &Config) -> Result<(), ConfigError> {
    let least = cfg.slots_min();
    if cfg.slots < least || cfg.slots > 31 {
        return Err(ConfigError::Slots { slots: cfg.slots, least });
    }
    Ok(())
}
