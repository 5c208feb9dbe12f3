//! What goes out: frames to the links, folds and copies to the device.

use crate::engine::{Engine, WIDTH};
use crate::slot::{Buffers, Slot};
use heapless::Vec;
use unisono_core::fold::Source;
use unisono_core::machine::{Action, Place, Room};
use unisono_core::route::Rank;
use unisono_core::wire::frame::{Body, Header};
use unisono_driver::{Copy, Device, Fold, Link, Outgoing};

/// Jobs for the device in one go: whoever drives the engine wants to look at its clock now and
/// then, also in a call in which nothing has to be waited for.
const JOBS_AT_ONCE: u32 = 64;

/// From where to where a plain copy goes, and its bytes.
type Moved<M> = (Place<M>, Place<M>, u64);

impl<D, L, const OPS: usize, const W: usize, const R: usize, const P: usize>
    Engine<D, L, OPS, W, R, P>
where
    D: Device,
    L: Link<Mem = D::Mem>,
{
    /// Carries out what the machine of one channel wants.
    pub(crate) fn act(&mut self, index: usize) -> bool {
        let mut worked = false;
        let mut jobs = 0;
        loop {
            if jobs == JOBS_AT_ONCE {
                self.slots[index].stirred = true;
                return worked;
            }
            let (device, links) = (&self.device, &mut self.links);
            let mut room = Now { device, links, channel: index, lacking: false };
            let action = self.slots[index].machine.poll_action(&mut room);
            self.slots[index].stirred |= room.lacking;
            let Some(action) = action else {
                return worked;
            };
            // A job that a peer has made impossible is asked for again and again until that peer's
            // abort is here: this is no work, or the caller would never look at its clock.
            let before = worked;
            worked = true;
            jobs += u32::from(matches!(action, Action::Fold { .. } | Action::Copy { .. }));
            match action {
                Action::Control { to, body } => self.send(index, to, body, Outgoing::None, 0),
                Action::Send { to, data, payload, window, token } => {
                    let slot = &self.slots[index];
                    let Some(buffers) = slot.buffers else { continue };
                    let at = |place| buffers.at(place, slot.slot_bytes);
                    let out = match payload {
                        None => Outgoing::Put,
                        Some(place) => Outgoing::At {
                            mem: at(place),
                            bytes: data.bytes as usize,
                            window: window.map(at),
                        },
                    };
                    let put = payload.is_none();
                    self.send(index, to, Body::Data(data), out, token);
                    if put {
                        self.slots[index].machine.handle_sent(token);
                    }
                }
                Action::Fold { lane } => {
                    if !self.submit(index, lane, None) {
                        return before;
                    }
                    // A device that is done at once (a CPU) lets the result go out at once.
                    self.complete();
                }
                Action::Copy { lane, from, to, bytes } => {
                    if !self.submit(index, lane, Some((from, to, bytes))) {
                        return before;
                    }
                    self.complete();
                }
            }
        }
    }

    fn send(&mut self, index: usize, to: Rank, body: Body, payload: Outgoing<D::Mem>, token: u32) {
        let slot = &mut self.slots[index];
        let header = Header {
            epoch: self.epoch,
            op: slot.op_id,
            from: self.rank,
            print: slot.machine.fingerprint(),
            body,
        };
        let small = match payload {
            Outgoing::At { bytes, .. } => bytes,
            Outgoing::Put | Outgoing::None => usize::MAX,
        };
        let Some(link) = self.links.get_mut(usize::from(to)).and_then(Option::as_mut) else {
            return slot.machine.handle_peer_lost(to);
        };
        // SAFETY: the machine keeps a payload unchanged until its completion, and `begin`'s caller
        // keeps the buffers until `result`, which waits for `withdraw`.
        if unsafe { link.send(index, &header, payload, token) }.is_err() {
            // Only a peer that still needs the call is missed. One that has ended it may have left
            // before it hears of a limit or a round; if it has not, its frames will be missed.
            if matches!(body, Body::Data(_)) {
                // It may have said why before it went.
                self.listen(index);
                if let Some(slot) = self.slots.get_mut(index) {
                    slot.machine.handle_peer_lost(to);
                }
            }
            return;
        }
        // A payload that rides in the frame, or that a stream has taken, is complete: the call need
        // not wait a round.
        if (small <= link.caps().inline_max || !link.caps().spans)
            && let Some(token) = link.poll_sent(index)
        {
            slot.machine.handle_sent(token);
        }
    }

    /// Gives a lane's job to the device; false if it could not be started now.
    pub(crate) fn submit(&mut self, index: usize, lane: u16, copy: Option<Moved<D::Mem>>) -> bool {
        if !self.lock(index, lane) {
            // The peer has given the call up, or is gone: its abort or the end of its link is next.
            self.slots[index].machine.handle_refused(lane);
            self.slots[index].stirred = true;
            return false;
        }
        let slot = &self.slots[index];
        let Some(buffers) = slot.buffers else { return false };
        let token = (index as u32) << 16 | u32::from(lane);
        let started = match copy {
            Some((from, to, bytes)) => {
                let from = buffers.at(from, slot.slot_bytes);
                let to = buffers.at(to, slot.slot_bytes);
                let work = Copy { from, to, bytes: bytes as usize };
                // SAFETY: own buffers are the call's; a peer's span has just been locked.
                Some(unsafe { self.device.copy(&work, token) })
            }
            None => fold(&mut self.device, slot, &buffers, lane, token),
        };
        match started {
            Some(Ok(())) => self.slots[index].jobs += 1,
            failed => {
                self.device_error = failed.and_then(Result::err).or(self.device_error.take());
                self.unlock(index, lane, false);
                self.slots[index].machine.handle_device_error();
            }
        }
        true
    }

    fn lock(&mut self, index: usize, lane: u16) -> bool {
        let machine = &self.slots[index].machine;
        let mut locked = 0;
        let (mut all, mut refused) = (true, 0);
        for held in machine.holds(lane) {
            let link = self.links.get_mut(usize::from(held.from)).and_then(Option::as_mut);
            all = link.is_some_and(|l| l.enter(index, held.handle));
            if !all {
                refused = 1 << held.from;
                break;
            }
            locked += 1;
        }
        if !all {
            for held in machine.holds(lane).take(locked) {
                if let Some(Some(link)) = self.links.get_mut(usize::from(held.from)) {
                    link.exit(index, held.handle, false);
                }
            }
        }
        self.slots[index].refused |= refused;
        all
    }

    fn unlock(&mut self, index: usize, lane: u16, done: bool) {
        let written = done && self.slots[index].machine.writes_windows(lane);
        for held in self.slots[index].machine.holds(lane) {
            if let Some(Some(link)) = self.links.get_mut(usize::from(held.from)) {
                link.exit(index, held.handle, written);
            }
        }
    }

    /// Takes in what the device has completed, for whichever call.
    pub(crate) fn complete(&mut self) -> bool {
        let mut worked = false;
        while let Some(done) = self.device.poll_done() {
            worked = true;
            let (index, lane) = ((done.token >> 16) as usize, done.token as u16);
            if index >= OPS {
                continue;
            }
            self.unlock(index, lane, done.result.is_ok());
            let slot = &mut self.slots[index];
            slot.jobs = slot.jobs.saturating_sub(1);
            slot.stirred = true;
            if let Err(error) = done.result {
                self.device_error = Some(error);
                slot.machine.handle_device_error();
                continue;
            }
            let links = &mut self.links;
            slot.machine.handle_done(lane, |r| {
                if let Some(Some(link)) = links.get_mut(usize::from(r.from)) {
                    link.release(index, r.handle);
                }
            });
        }
        worked
    }
}

/// Gives a lane's fold to the device; `None` if there is none that fits, which cannot be:
/// `sources_max` and `dests_max` are at most [`WIDTH`], and the machine has just made the job.
fn fold<D: Device, const W: usize, const R: usize, const P: usize>(
    device: &mut D,
    slot: &Slot<D::Mem, W, R, P>,
    buffers: &Buffers<D::Mem>,
    lane: u16,
    token: u32,
) -> Option<Result<(), D::Error>> {
    let mut sources: Vec<Source<D::Mem>, WIDTH> = Vec::new();
    let mut dests: Vec<D::Mem, WIDTH> = Vec::new();
    let at = |place| buffers.at(place, slot.slot_bytes);
    let job = slot.machine.fold_job(lane, at, &mut sources, &mut dests)?;
    let cfg = slot.machine.config()?;
    let work = Fold {
        dtype: cfg.dtype,
        op: cfg.op,
        count: job.elems as usize,
        sources: &sources,
        dests: &dests,
        finish: job.finish,
    };
    // SAFETY: own buffers are the call's, peers' spans and windows have just been locked, and the
    // machine never lets two jobs write the same place.
    Some(unsafe { device.fold(&work, token) })
}

/// What device and links can take right now.
struct Now<'a, D, L, const P: usize> {
    device: &'a D,
    links: &'a mut Vec<Option<L>, P>,
    channel: usize,
    /// Something was asked for that there was no room for.
    lacking: bool,
}

impl<D: Device, L: Link, const P: usize> Room for Now<'_, D, L, P> {
    fn send(&mut self, to: Rank) -> bool {
        // Without a link the send itself reports the loss.
        let room = match self.links.get_mut(usize::from(to)) {
            Some(Some(link)) => link.has_room(self.channel),
            _ => true,
        };
        self.lacking |= !room;
        room
    }

    fn device(&mut self) -> bool {
        let room = self.device.has_room();
        self.lacking |= !room;
        room
    }
}
