//! What happens to a machine: frames, completions, time, the caller's word.

use super::action::{Arrival, Payload, Place, Released, Status};
use super::config::Config;
use super::lane::{Job, Lane, Segment};
use super::{ASK_AFTER, Machine};
use crate::fold::Form;
use crate::route::{Move, Rank};
use crate::time::Instant;
use crate::wire::frame::{Abort, Body, Data, Header, Phase};

/// Where a payload that comes as bytes has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not now: leave it in the link and ask again after the next completion.
    Later,
    /// Never: take it from the link and forget it.
    Discard,
}

impl<M: Copy, const W: usize, const R: usize, const P: usize> Machine<M, W, R, P> {
    /// Where the payload of a data frame has to be received, before [`Machine::handle_frame`].
    ///
    /// Ask once a frame: a contribution takes a scratch slot.
    ///
    /// # Errors
    /// [`Refused`] if there is no place for it now, or the frame does not belong here at all.
    pub fn placement(&mut self, header: &Header) -> Result<Place<M>, Refused> {
        let Body::Data(data) = header.body else { return Err(Refused::Discard) };
        if !self.accepts(header) {
            return Err(Refused::Discard);
        }
        let Some((index, at)) = self.expecting(header.from, &data) else {
            self.fail(Abort::Protocol { rank: header.from });
            return Err(Refused::Discard);
        };
        let Some(cfg) = &self.cfg else { return Err(Refused::Discard) };
        let Some(lane) = self.lanes.get_mut(at) else { return Err(Refused::Discard) };
        if matches!(lane.move_at(index), Some(Move::Store { .. })) {
            return lane.receipt_place(cfg).ok_or(Refused::Later);
        }
        match lane.take_slot(cfg.slots) {
            Some(slot) => Ok(Place::Slot(lane.slot_base + u32::from(slot))),
            None => Err(Refused::Later),
        }
    }

    /// A frame of this call has come in; `payload` (data frames only) says where its bytes are.
    /// `received` is the place that [`Machine::placement`] named, for [`Payload::Placed`].
    ///
    /// Returns whether the frame's memory stays in use: if not, give it back to the link at once.
    pub fn handle_frame(
        &mut self,
        header: &Header,
        payload: Option<Payload<M>>,
        received: Option<Place<M>>,
    ) -> bool {
        if let Body::Abort(why) = header.body {
            self.heard_abort(header, why);
            return false;
        }
        if !self.accepts(header) {
            return false;
        }
        let Some(cfg) = &self.cfg else { return false };
        let from = header.from;
        match header.body {
            Body::Credit { limit } => self.credit(from, limit),
            Body::Agree { round } => {
                if self.agree.hear(round, from, cfg.rank, self.members) {
                    self.settle();
                } else {
                    self.fail(Abort::Protocol { rank: from });
                }
            }
            Body::Data(data) => return self.data(from, &data, payload, received),
            Body::Abort(_) => {}
        }
        false
    }

    fn heard_abort(&mut self, header: &Header, why: Abort) {
        let ours = self.cfg.as_ref().is_some_and(|c| {
            let known = header.from < self.members && header.from != c.rank;
            known && header.epoch == c.epoch && header.op == c.op_id
        });
        if ours {
            // Ranks that wait for each other in different calls run into the deadline of one.
            match why {
                Abort::Deadline { .. } if header.print != self.print => self.mismatch(header),
                _ => self.fail(why),
            }
            self.untold &= !(1 << header.from);
            self.abort_settle();
        }
    }

    /// Is this a frame that a running call may act on? Notices a call that does not match.
    fn accepts(&mut self, header: &Header) -> bool {
        let Some(cfg) = &self.cfg else { return false };
        let known = header.from < self.members && header.from != cfg.rank;
        if self.status != Status::Running || !known {
            return false;
        }
        if header.epoch != cfg.epoch || header.op != cfg.op_id {
            return false;
        }
        if header.print != self.print {
            self.mismatch(header);
            return false;
        }
        true
    }

    /// The sender of a frame is in another call.
    fn mismatch(&mut self, header: &Header) {
        let a = self.cfg.as_ref().map_or(0, |c| c.rank);
        let (b, b_print) = (header.from, header.print);
        self.fail(Abort::Mismatch { a, a_print: self.print, b, b_print });
    }

    /// The move and the lane that wait for a data frame.
    fn expecting(&self, from: Rank, data: &Data) -> Option<(usize, usize)> {
        let cfg = self.cfg.as_ref()?;
        let at = self.lane_of(data.chunk)?;
        let lane = self.lanes.get(at)?;
        if data.chunk >= self.peers.get(usize::from(from))?.told {
            return None;
        }
        let form_fits = match (data.phase, cfg.op) {
            (Phase::Contribution, Some(_)) => data.form != Form::Final,
            (Phase::Contribution, None) => false,
            (Phase::Result, _) => data.form == Form::Final,
        };
        let bytes_fit = u64::from(data.bytes) == cfg.bytes(lane.elems, data.form);
        if !form_fits || !bytes_fit {
            return None;
        }
        let index = lane.expecting(from, data.phase)?;
        let due = data.phase == Phase::Contribution || lane.is_due(index);
        due.then_some((index, at))
    }

    fn credit(&mut self, from: Rank, limit: u64) {
        let most = self.chunks;
        if let Some(peer) = self.peers.get_mut(usize::from(from)) {
            peer.may_send = peer.may_send.max(limit.min(most));
        }
    }

    fn data(
        &mut self,
        from: Rank,
        data: &Data,
        payload: Option<Payload<M>>,
        received: Option<Place<M>>,
    ) -> bool {
        self.credit(from, data.limit);
        let Some((index, at)) = self.expecting(from, data) else { return self.protocol(from) };
        let (Some(cfg), Some(lane)) = (&self.cfg, self.lanes.get_mut(at)) else { return false };
        let (place, window, handle) = match payload {
            Some(Payload::At { mem, window, handle }) => (Place::Peer(mem), window, Some(handle)),
            Some(Payload::Put) if data.phase == Phase::Result && cfg.puts >> from & 1 != 0 => {
                match lane.answer_place(cfg) {
                    Some(place) => (place, None, None),
                    None => return self.protocol(from),
                }
            }
            Some(Payload::Placed) => match received {
                Some(place) => (place, None, None),
                None => return self.protocol(from),
            },
            Some(Payload::Put) | None => return self.protocol(from),
        };
        let (form, weight) = (data.form, data.weight);
        lane.arrive(
            index,
            Arrival { from, form, weight, place, window, handle, put: false, spent: false },
        );
        self.regrant(at);
        handle.is_some()
    }

    /// A peer has sent what it must not; nothing of it is kept.
    fn protocol(&mut self, rank: Rank) -> bool {
        self.fail(Abort::Protocol { rank });
        false
    }

    /// A send's memory may be changed again.
    pub fn handle_sent(&mut self, token: u32) {
        let (at, to, from_input) = ((token >> 9) as usize, token >> 1 & 0xff, token & 1 != 0);
        if let Some(lane) = self.lanes.get_mut(at) {
            lane.unsent_to &= !1u128.wrapping_shl(to);
            lane.unsent = lane.unsent.saturating_sub(1);
            lane.input_unsent = lane.input_unsent.saturating_sub(u16::from(from_input));
        }
        self.settle();
    }

    /// The device has finished a lane's fold or copy. `release` is called for every frame whose
    /// memory this member no longer needs.
    pub fn handle_done(&mut self, lane: u16, mut release: impl FnMut(Released)) {
        let at = usize::from(lane);
        let Some(lane) = self.lanes.get_mut(at) else { return };
        let mut give_back = |from, handle| release(Released { from, handle });
        match lane.job {
            Job::None | Job::Refused => return,
            Job::Fold { whole, to, .. } => {
                let last = lane.at_last_fold();
                if whole && last {
                    lane.mark_put(self.cfg.as_ref().map_or(0, |c| usize::from(c.dests_max) - 1));
                }
                lane.close_fold(&mut give_back);
                lane.job = Job::None;
                if whole {
                    lane.folded(self.cfg.as_ref(), to, last);
                }
            }
            Job::Store { to } => {
                let index = usize::from(lane.pc);
                if let Some(a) = lane.arrival_mut(index)
                    && let Some(handle) = a.handle.take()
                {
                    give_back(a.from, handle);
                }
                lane.job = Job::None;
                lane.stored(to);
            }
            Job::Stage { to } => lane.staged(to),
            Job::Unpark => {
                lane.job = Job::None;
                lane.parked = None;
            }
        }
        self.regrant(at);
        self.settle();
    }

    /// A lane's job could not be started because a peer has taken its memory back. The peer's abort
    /// is on its way; until it comes the lane asks for nothing more.
    pub fn handle_refused(&mut self, lane: u16) {
        if let Some(lane) = self.lanes.get_mut(usize::from(lane))
            && !lane.job.is_none()
        {
            lane.job = Job::Refused;
        }
    }

    /// The device failed.
    pub fn handle_device_error(&mut self) {
        let rank = self.cfg.as_ref().map_or(0, |c| c.rank);
        self.fail(Abort::DeviceFailed { rank });
    }

    /// A peer is gone: nothing more comes from it and nothing can be told to it.
    pub fn handle_peer_lost(&mut self, rank: Rank) {
        self.fail(Abort::PeerLost { rank });
        if rank < 128 {
            self.untold &= !(1 << rank);
        }
        self.abort_settle();
    }

    /// More of the input is final: elements `0..upto`.
    pub fn source_ready(&mut self, upto: u64) {
        self.source = self.source.max(upto);
    }

    /// The caller gives the call up.
    pub fn cancel(&mut self) {
        let rank = self.cfg.as_ref().map_or(0, |c| c.rank);
        self.fail(Abort::Cancelled { rank });
    }

    /// Nobody can be told any more (the grace after an abort is over).
    pub fn stop_telling(&mut self) {
        self.untold = 0;
        self.abort_settle();
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(cfg) = &self.cfg else { return };
        if self.status != Status::Running {
            return;
        }
        let seen = *self.seen.get_or_insert(now);
        if self.unasked.is_none() && now >= seen.saturating_add(ASK_AFTER) {
            self.unasked = Some(self.others());
        }
        if cfg.deadline.is_none_or(|d| now < d) {
            return;
        }
        let rank = cfg.rank;
        let (waiting_for, chunk, phase) =
            self.waiting_for().unwrap_or((rank, self.base, Phase::Contribution));
        self.fail(Abort::Deadline { rank, waiting_for, chunk, phase });
    }
}

/// Byte offset of a chunk in this member's output.
pub(super) fn output_of(cfg: &Config, chunk: u64) -> Option<u64> {
    cfg.layout.output(chunk, cfg.rank).map(|at| cfg.bytes(at, Form::Final))
}

impl<M: Copy, const R: usize> Lane<M, R> {
    /// The whole fold is done: its result is the new value.
    fn folded(&mut self, cfg: Option<&Config>, to: Place<M>, last: bool) {
        if let Place::Slot(slot) = to {
            self.slots |= 1 << (slot - self.slot_base);
        }
        if let (Some(cfg), true) = (cfg, last) {
            self.park(cfg, to);
        }
        let form = if last { Form::Final } else { Form::Partial };
        self.value = Some((to, form));
        self.finished |= last;
        self.advance();
    }

    /// A result that lies in a slot has to move on to the output, if there is one.
    pub(super) fn park(&mut self, cfg: &Config, at: Place<M>) {
        if let Place::Slot(slot) = at
            && output_of(cfg, self.chunk).is_some()
        {
            self.parked = Some((slot - self.slot_base) as u8);
        }
    }

    /// The result is here: it is the new value.
    pub(super) fn stored(&mut self, at: Place<M>) {
        self.value = Some((at, Form::Final));
        self.finished = true;
        self.advance();
    }

    /// Notes which windows the finishing fold has written (the same ones that were its targets).
    fn mark_put(&mut self, most: usize) {
        debug_assert_eq!(self.segment(), Segment::Fold { last: true });
        let (pc, end) = (usize::from(self.pc), usize::from(self.end));
        let mut put = 0;
        for m in end..self.moves.len() {
            let Some(Move::Send { to }) = self.move_at(m) else { break };
            let target = (pc..end).find(|&i| {
                self.arrival(i)
                    .is_some_and(|a| a.from == to && a.window.is_some() && a.handle.is_some())
            });
            if let Some(i) = target
                && put < most
                && let Some(a) = self.arrival_mut(i)
            {
                a.put = true;
                put += 1;
            }
        }
    }

    /// Has the finished value already been written into this rank's window?
    pub(super) fn was_put(&self, to: Rank) -> bool {
        self.finished && self.inbox.iter().any(|a| a.from == to && a.put)
    }
}

impl<M: Copy, const W: usize, const R: usize, const P: usize> Machine<M, W, R, P> {
    /// Calls `release` for every frame that a failed call still holds.
    pub fn abandon(&mut self, mut release: impl FnMut(Released)) {
        for lane in &mut self.lanes[..] {
            for a in &mut lane.inbox {
                if let Some(handle) = a.handle.take() {
                    release(Released { from: a.from, handle });
                }
            }
        }
    }
}
