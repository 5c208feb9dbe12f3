//! What a machine wants done next.

use super::action::{Action, Place, Status};
use super::config::{Config, RankSet};
use super::input::output_of;
use super::lane::{Job, Lane, Segment};
use super::{Machine, Peer};
use crate::fold::Form;
use crate::route::{Move, Rank};
use crate::wire::frame::{Body, Data, Phase};

/// What the caller can take now, asked for before an action is made up.
pub trait Room {
    /// May a frame be sent to this rank now?
    fn send(&mut self, to: Rank) -> bool;
    /// May the device be given a job now?
    fn device(&mut self) -> bool;
}

impl<M: Copy, const W: usize, const R: usize, const P: usize> Machine<M, W, R, P> {
    /// The next action, if there is one that the caller has room for.
    pub fn poll_action(&mut self, room: &mut impl Room) -> Option<Action<M>> {
        while self.status == Status::Running {
            if let Some(action) = self.control(room).or_else(|| self.work(room)) {
                return Some(action);
            }
            // Moves that needed nobody may have finished the lowest chunk.
            let base = self.base;
            self.settle();
            if self.base == base {
                return None;
            }
        }
        let Status::Failing(why) = self.status else { return None };
        let to = ranks(self.untold).find(|&to| room.send(to))?;
        self.untold &= !(1 << to);
        self.abort_settle();
        Some(Action::Control { to, body: Body::Abort(why) })
    }

    fn control(&mut self, room: &mut impl Room) -> Option<Action<M>> {
        let cfg = self.cfg.as_ref()?;
        if let Some((round, to)) = self.agree.next(cfg.rank, self.members)
            && room.send(to)
        {
            self.agree.sent();
            self.settle();
            return Some(Action::Control { to, body: Body::Agree { round } });
        }
        if let Some(unasked) = &mut self.unasked
            && let Some(to) = ranks(*unasked).find(|&to| room.send(to))
        {
            *unasked &= !(1 << to);
            let peer = self.peers.get_mut(usize::from(to))?;
            peer.told = peer.granted;
            let body = Body::Credit { limit: peer.granted };
            return Some(Action::Control { to, body });
        }
        if !self.stale_limits {
            return None;
        }
        // Half a window of news is worth a frame; less goes along with data. The lowest chunk is
        // always below the limit that was told, because what is held back is under half a window.
        let step = (u64::from(cfg.window) / 2).max(1);
        let mut waiting = false;
        for (p, peer) in self.peers.iter_mut().enumerate() {
            let news = peer.granted - peer.told;
            let must = peer.told <= self.base && news > 0;
            let useful = peer.needed > peer.told;
            if !useful || (news < step && !must) {
                continue;
            }
            if room.send(p as Rank) {
                peer.told = peer.granted;
                let body = Body::Credit { limit: peer.granted };
                return Some(Action::Control { to: p as Rank, body });
            }
            waiting = true;
        }
        self.stale_limits = waiting;
        None
    }

    /// Frames go first: a peer may be waiting for one that a later chunk could send now, and a
    /// device that computes in the calling thread would hold it back for a whole fold.
    fn work(&mut self, room: &mut impl Room) -> Option<Action<M>> {
        if self.opened - self.base > 1 {
            let sends = self.lanes_work(&mut SendsOnly(room));
            if sends.is_some() {
                return sends;
            }
        }
        self.lanes_work(room)
    }

    fn lanes_work(&mut self, room: &mut impl Room) -> Option<Action<M>> {
        let cfg = self.cfg.as_ref()?;
        let window = u64::from(cfg.window);
        (self.base..self.opened).find_map(|chunk| {
            let at = chunk.checked_rem(window)? as usize;
            self.lanes.get_mut(at)?.next(at, cfg, self.source, &mut self.peers, room)
        })
    }
}

/// Room for frames, none for jobs.
struct SendsOnly<'a, T>(&'a mut T);

impl<T: Room> Room for SendsOnly<'_, T> {
    fn send(&mut self, to: Rank) -> bool {
        self.0.send(to)
    }

    fn device(&mut self) -> bool {
        false
    }
}

/// What the completion of a send says: the lane, the receiver, whether the input was read.
#[must_use]
pub const fn send_token(lane: usize, to: Rank, from_input: bool) -> u32 {
    (lane as u32) << 9 | (to as u32) << 1 | from_input as u32
}

/// The ranks of a set, ascending.
fn ranks(set: RankSet) -> impl Iterator<Item = Rank> {
    let mut rest = set;
    core::iter::from_fn(move || {
        let next = (rest != 0).then(|| rest.trailing_zeros() as Rank)?;
        rest &= rest - 1;
        Some(next)
    })
}

impl<M: Copy, const R: usize> Lane<M, R> {
    /// The lane's next action; moves that need nobody are made on the way.
    fn next(
        &mut self,
        at: usize,
        cfg: &Config,
        source: u64,
        peers: &mut [Peer],
        room: &mut impl Room,
    ) -> Option<Action<M>> {
        loop {
            if !self.job.is_none() {
                return None;
            }
            if let Some(slot) = self.parked
                && self.input_unsent == 0
                && room.device()
            {
                return self.unpark(at, cfg, slot);
            }
            match self.segment() {
                Segment::End => return None,
                Segment::Sends => match self.send(at, cfg, source, peers, room) {
                    Some(action) => return Some(action),
                    None if self.all_issued() => self.advance(),
                    // The receivers may be waiting for this lane's slots themselves.
                    None if self.granted < self.by_bytes => {
                        return self.fold(at, cfg, source, false, room);
                    }
                    None => return None,
                },
                Segment::Fold { last } => {
                    if self.is_in_output(cfg, last) {
                        if !self.is_ready(cfg, source) {
                            return None;
                        }
                        self.stored(Place::Output(output_of(cfg, self.chunk)?));
                        continue;
                    }
                    return self.fold(at, cfg, source, last, room);
                }
                Segment::Store => match self.store(at, cfg, room) {
                    Stored::Already(place) => {
                        self.park(cfg, place);
                        self.stored(place);
                    }
                    Stored::By(action) => return Some(action),
                    Stored::NotYet => return None,
                },
            }
        }
    }

    /// Is the part of the input that the value lies in final?
    fn is_ready(&self, cfg: &Config, source: u64) -> bool {
        match self.value {
            Some((Place::Input(at), _)) => {
                source == u64::MAX || at / cfg.dtype.size() as u64 + self.elems <= source
            }
            _ => true,
        }
    }

    /// A plain copy of the own value onto itself: nothing to do in place.
    fn is_in_output(&self, cfg: &Config, last: bool) -> bool {
        let alone = self.end - self.pc == 2 && matches!(self.from(self.pc), [Move::Own { .. }, ..]);
        last && alone && cfg.op.is_none() && cfg.in_place
    }

    fn send(
        &mut self,
        at: usize,
        cfg: &Config,
        source: u64,
        peers: &mut [Peer],
        room: &mut impl Room,
    ) -> Option<Action<M>> {
        if !self.is_ready(cfg, source) {
            return None;
        }
        let (place, form) = self.value?;
        for i in 0..self.end - self.pc {
            let Some(Move::Send { to }) = self.move_at(usize::from(self.pc + i)) else { continue };
            let peer = peers.get_mut(usize::from(to))?;
            if self.issued >> i & 1 != 0 || self.chunk >= peer.may_send || !room.send(to) {
                continue;
            }
            let put = self.was_put(to);
            if !put && cfg.is_private(place) {
                return self.stage(at, cfg, room);
            }
            self.issued |= 1 << i;
            peer.told = peer.granted;
            let is_result = self.finished || cfg.op.is_none();
            let phase = if is_result { Phase::Result } else { Phase::Contribution };
            let data = Data {
                chunk: self.chunk,
                phase,
                form,
                weight: cfg.frame_weight(form),
                limit: peer.granted,
                bytes: cfg.bytes(self.elems, form) as u32,
            };
            let from_input = matches!(place, Place::Input(_));
            self.unsent += 1;
            self.input_unsent += u16::from(from_input);
            self.unsent_to |= 1 << to;
            let token = send_token(at, to, from_input);
            let window = if is_result { None } else { self.answer_window(cfg, to) };
            let payload = (!put).then_some(place);
            return Some(Action::Send { to, data, payload, window, token });
        }
        None
    }

    /// Where `to` may write the result that it will send back for this chunk.
    fn answer_window(&self, cfg: &Config, to: Rank) -> Option<Place<M>> {
        let rest = self.from(self.end);
        let answers = cfg.puts >> to & 1 != 0
            && matches!(rest.first(), Some(Move::Store { from }) if *from == to);
        // A window must not be read by anybody else meanwhile: this is the route's only reader.
        let sole = self.end - self.pc == 1;
        if answers && sole { self.answer_place(cfg) } else { None }
    }

    fn fold(
        &mut self,
        at: usize,
        cfg: &Config,
        source: u64,
        last: bool,
        room: &mut impl Room,
    ) -> Option<Action<M>> {
        let hurry = self.granted < self.by_bytes;
        let group = self.group(cfg.sources_max, hurry)?;
        let owns =
            (group.lo..group.hi).any(|i| matches!(self.move_at(i.into()), Some(Move::Own { .. })));
        if (owns && !self.is_ready(cfg, source)) || !room.device() {
            return None;
        }
        let out = if group.whole && last { output_of(cfg, self.chunk) } else { None };
        let to = match out {
            // In place, peers may still be reading the input that the result would overwrite.
            Some(out) if !cfg.in_place || self.input_unsent == 0 => Place::Output(out),
            _ => Place::Slot(self.slot_base + u32::from(self.take_slot(cfg.slots)?)),
        };
        let (lo, hi, level, whole) = (group.lo, group.hi, group.level, group.whole);
        self.job = Job::Fold { lo, hi, level, whole, to };
        Some(Action::Fold { lane: at as u16 })
    }

    fn store(&mut self, at: usize, cfg: &Config, room: &mut impl Room) -> Stored<M> {
        let Some(arrival) = self.arrival(usize::from(self.pc)) else { return Stored::NotYet };
        let from = arrival.place;
        if !matches!(from, Place::Peer(_)) {
            return Stored::Already(from);
        }
        if !room.device() {
            return Stored::NotYet;
        }
        let Some(to) = self.result_place(cfg) else { return Stored::NotYet };
        self.job = Job::Store { to };
        let bytes = cfg.bytes(self.elems, Form::Final);
        Stored::By(Action::Copy { lane: at as u16, from, to, bytes })
    }

    /// Where a result that comes in goes: to the output or, on a member without one that hands it
    /// on, to a slot. `None` while the place is taken.
    pub(super) fn result_place(&mut self, cfg: &Config) -> Option<Place<M>> {
        match output_of(cfg, self.chunk) {
            // In place, the result would overwrite an input that is still being sent.
            Some(_) if cfg.in_place && self.input_unsent > 0 => None,
            Some(out) => Some(Place::Output(out)),
            None => Some(Place::Slot(self.slot_base + u32::from(self.take_slot(cfg.slots)?))),
        }
    }

    fn unpark(&mut self, at: usize, cfg: &Config, slot: u8) -> Option<Action<M>> {
        let to = Place::Output(output_of(cfg, self.chunk)?);
        let from = Place::Slot(self.slot_base + u32::from(slot));
        self.job = Job::Unpark;
        let bytes = cfg.bytes(self.elems, Form::Final);
        Some(Action::Copy { lane: at as u16, from, to, bytes })
    }
}

/// What a `Store` comes to.
enum Stored<M> {
    /// The bytes are already where they belong.
    Already(Place<M>),
    /// They have to be copied.
    By(Action<M>),
    /// They have not come, or may not be written yet.
    NotYet,
}
