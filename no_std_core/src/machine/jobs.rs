//! What is behind a fold: its sources, its destinations and the frames that it uses.

use super::Machine;
use super::action::{Place, Released};
use super::lane::{Job, Lane};
use crate::fold::{Finish, Source};
use crate::route::Move;
use heapless::vec::VecView;

/// The job behind [`super::Action::Fold`].
#[derive(Clone, Copy, Debug)]
pub struct FoldJob {
    /// Elements.
    pub elems: u64,
    /// Partial or final.
    pub finish: Finish,
}

impl<M: Copy, const W: usize, const R: usize, const P: usize> Machine<M, W, R, P> {
    /// Writes sources (canonical order) and destinations of a lane's fold, each place as the
    /// memory that `at` makes of it.
    ///
    /// `None` if the lane has no fold under way or the storage is too short.
    pub fn fold_job<T>(
        &self,
        lane: u16,
        at: impl Fn(Place<M>) -> T,
        sources: &mut VecView<Source<T>>,
        dests: &mut VecView<T>,
    ) -> Option<FoldJob> {
        let cfg = self.cfg.as_ref()?;
        let lane = self.lanes.get(usize::from(lane))?;
        let Job::Fold { whole, to, .. } = lane.job else { return None };
        sources.clear();
        dests.clear();
        let mut fits = true;
        lane.sources(cfg, |Source { mem, form, weight, merges }| {
            fits &= sources.push(Source { mem: at(mem), form, weight, merges }).is_ok();
        });
        fits &= dests.push(at(to)).is_ok();
        let last = whole && lane.at_last_fold();
        if last {
            for window in self.windows(lane) {
                fits &= dests.push(at(Place::Peer(window))).is_ok();
            }
        }
        let ranks = u32::from(cfg.layout.ranks);
        let finish = if last { Finish::Final { ranks } } else { Finish::Partial };
        fits.then_some(FoldJob { elems: lane.elems, finish })
    }

    /// The frames whose memory a lane's job reads or writes: to be locked while it runs.
    pub fn holds(&self, lane: u16) -> impl Iterator<Item = Released> {
        let lane = self.lanes.get(usize::from(lane));
        lane.into_iter().flat_map(|lane| {
            let (lo, hi) = match lane.job {
                Job::Fold { whole: true, .. } => (lane.pc, lane.end),
                Job::Fold { lo, hi, .. } => (lo, hi),
                Job::Store { .. } => (lane.pc, lane.end),
                Job::None | Job::Stage { .. } | Job::Unpark | Job::Refused => (0, 0),
            };
            (lo..hi).filter_map(move |i| {
                let a = lane.arrival(usize::from(i))?;
                Some(Released { from: a.from, handle: a.handle? })
            })
        })
    }

    /// Does a lane's job write peers' windows, where there are any?
    pub fn writes_windows(&self, lane: u16) -> bool {
        let lane = self.lanes.get(usize::from(lane));
        lane.is_some_and(|l| matches!(l.job, Job::Fold { whole: true, .. }) && l.at_last_fold())
    }

    /// Peers' windows that the finishing fold writes along with the own output.
    fn windows<'a>(&'a self, lane: &'a Lane<M, R>) -> impl Iterator<Item = M> + 'a {
        let most = self.cfg.as_ref().map_or(0, |c| usize::from(c.dests_max) - 1);
        let end = usize::from(lane.end);
        let sends = lane.from(lane.end).iter().take_while(|m| matches!(m, Move::Send { .. }));
        sends
            .filter_map(move |m| {
                let Move::Send { to } = *m else { return None };
                (usize::from(lane.pc)..end).find_map(|i| {
                    lane.arrival(i).filter(|a| a.from == to && a.handle.is_some())?.window
                })
            })
            .take(most)
    }
}
