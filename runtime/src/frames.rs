//! What comes in over the links: frames, their payloads, and completed sends.

use crate::engine::Engine;
use crate::slot::{Slot, State};
use unisono_core::machine::{Payload, Refused, Status};
use unisono_core::route::Rank;
use unisono_core::wire::frame::{Abort, Body, Header};
use unisono_driver::{Arrived, Device, Incoming, Link, Memory};

impl<D, L, const OPS: usize, const W: usize, const R: usize, const P: usize>
    Engine<D, L, OPS, W, R, P>
where
    D: Device,
    L: Link<Mem = D::Mem>,
{
    /// Takes in frames and completed sends of one channel.
    pub(crate) fn listen(&mut self, index: usize) -> bool {
        let mut worked = false;
        for from in 0..self.links.len() {
            let Some(Some(link)) = self.links.get_mut(from) else { continue };
            let Some(slot) = self.slots.get_mut(index) else { return false };
            while let Some(token) = link.poll_sent(index) {
                slot.machine.handle_sent(token);
                worked = true;
            }
            loop {
                match link.poll_frame(index) {
                    Ok(None) => break,
                    Ok(Some(frame)) => {
                        if !take_frame(link, slot, index, from as Rank, self.epoch, &frame) {
                            break;
                        }
                        worked = true;
                    }
                    Err(_) => {
                        // A peer that has finished the call may have left already.
                        if slot.machine.needs(from as Rank) || slot.refused >> from & 1 != 0 {
                            // The link stays closed: that is news only once.
                            worked |= slot.machine.status() == Status::Running;
                            self.miss(index, from as Rank);
                        }
                        break;
                    }
                }
            }
        }
        if let Some(slot) = self.slots.get_mut(index) {
            slot.stirred |= worked;
        }
        worked
    }

    /// A peer that a call needs is gone. It may have given up the call before, which is over here:
    /// then this is why.
    fn miss(&mut self, index: usize, from: Rank) {
        let why = self.last_words(index, from);
        let Some(slot) = self.slots.get_mut(index) else { return };
        if let Some(why) = why {
            let (op, print) = (slot.op_id, slot.machine.fingerprint());
            let header = Header { epoch: self.epoch, op, from, print, body: Body::Abort(why) };
            slot.machine.handle_frame(&header, None, None);
        }
        slot.machine.handle_peer_lost(from);
    }

    /// Why a peer that is gone gave up the call before the one on this channel, if it did.
    fn last_words(&mut self, index: usize, from: Rank) -> Option<Abort> {
        let before = self.channel(self.slots.get(index)?.op_id.wrapping_sub(1));
        if matches!(self.slots.get(before)?.state, State::Running | State::Failing(_)) {
            return None;
        }
        let link = self.links.get_mut(usize::from(from))?.as_mut()?;
        while let Ok(Some(frame)) = link.poll_frame(before) {
            if let Body::Abort(why) = frame.header.body {
                return (frame.header.epoch == self.epoch).then_some(why);
            }
            if !discard(link, before, &frame) {
                break;
            }
        }
        None
    }

    /// Throws away what still comes in for a call that has failed here. If it stayed, it would hold
    /// up the other channels of a link that is one stream of bytes.
    pub(crate) fn drain(&mut self, index: usize) -> bool {
        let mut worked = false;
        for link in self.links.iter_mut().flatten() {
            while let Ok(Some(frame)) = link.poll_frame(index) {
                let header = &frame.header;
                // A later call of this channel may have begun elsewhere.
                if header.epoch == self.epoch && header.op >= self.next_op {
                    break;
                }
                if !discard(link, index, &frame) {
                    break;
                }
                worked = true;
            }
        }
        worked
    }
}

/// Throws a frame away; false if its payload is not all there yet.
fn discard<L: Link<Mem = M>, M>(link: &mut L, channel: usize, frame: &Incoming<M>) -> bool {
    match frame.payload {
        // SAFETY: nothing is written.
        Arrived::Stream => return matches!(unsafe { link.receive(channel, None) }, Ok(true)),
        Arrived::Span { handle, .. } => {
            link.take(channel);
            link.release(channel, handle);
        }
        Arrived::Put | Arrived::None => link.take(channel),
    }
    true
}

/// Hands one frame to the machine; false if it has to stay in the link for now.
fn take_frame<L, M, const W: usize, const R: usize, const P: usize>(
    link: &mut L,
    slot: &mut Slot<M, W, R, P>,
    channel: usize,
    from: Rank,
    epoch: u32,
    frame: &Incoming<M>,
) -> bool
where
    L: Link<Mem = M>,
    M: Memory,
{
    let header = &frame.header;
    if header.epoch == epoch && header.op > slot.op_id {
        // A call that this member has not begun yet: its frames wait in their own channel.
        return false;
    }
    let ours = header.epoch == epoch && header.op == slot.op_id && header.from == from;
    match frame.payload {
        Arrived::Stream => return receive(link, slot, channel, usize::from(from), header, ours),
        Arrived::Span { mem, window, handle } => {
            link.take(channel);
            let at = Payload::At { mem, window, handle };
            if !ours || !slot.machine.handle_frame(header, Some(at), None) {
                link.release(channel, handle);
            }
        }
        Arrived::Put | Arrived::None => {
            link.take(channel);
            let payload = matches!(frame.payload, Arrived::Put).then_some(Payload::Put);
            if ours {
                slot.machine.handle_frame(header, payload, None);
            }
        }
    }
    true
}

/// Receives a payload that comes as bytes; false if it is not all there yet.
fn receive<L, M, const W: usize, const R: usize, const P: usize>(
    link: &mut L,
    slot: &mut Slot<M, W, R, P>,
    channel: usize,
    from: usize,
    header: &Header,
    ours: bool,
) -> bool
where
    L: Link<Mem = M>,
    M: Memory,
{
    // There is one for every link.
    let Some(receiving) = slot.receiving.get_mut(from) else { return false };
    if ours && receiving.is_none() {
        match slot.machine.placement(header) {
            Ok(place) => *receiving = Some(place),
            Err(Refused::Later) => return false,
            Err(Refused::Discard) => {}
        }
    }
    let place = if ours { *receiving } else { None };
    let into = match (place, &slot.buffers) {
        (Some(place), Some(buffers)) => Some(buffers.at(place, slot.slot_bytes)),
        _ => None,
    };
    // SAFETY: the machine named a place of this call that is free for exactly this payload.
    match unsafe { link.receive(channel, into) } {
        Ok(true) => {
            *receiving = None;
            if place.is_some() {
                slot.machine.handle_frame(header, Some(Payload::Placed), place);
            }
            true
        }
        Ok(false) => false,
        Err(_) => {
            slot.machine.handle_peer_lost(from as Rank);
            false
        }
    }
}
