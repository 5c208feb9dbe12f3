//! The sending half: fragments wait here until the peer has them.

use super::SendError;
use super::aimd::Aimd;
use super::packet::{Fragment, OVERHEAD, Packet};

/// A fragment is lost once a packet sent this many packets later has arrived (RFC 9002, 6.1.1).
const REORDERING: u64 = 3;

/// What is known about a fragment in `[una, end)`; see the table in [`crate::reliable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Queued,
    Flight,
    Lost,
    Acked,
}

#[derive(Clone, Copy, Debug)]
struct Slot<const MTU: usize> {
    bytes: [u8; MTU],
    len: usize,
    last: bool,
    state: State,
    /// Sent more than once: an acknowledgement may belong to an earlier transmission.
    resent: bool,
    /// Clock and number of the latest transmission.
    stamp: u32,
    order: u64,
}

impl<const MTU: usize> Slot<MTU> {
    const EMPTY: Self = Self {
        bytes: [0; MTU],
        len: 0,
        last: false,
        state: State::Queued,
        resent: false,
        stamp: 0,
        order: 0,
    };
}

/// What a peer's acknowledgement told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ack {
    /// It acknowledges what was never sent: the packet is none of the peer's.
    Impossible,
    /// It tells nothing new.
    Old,
    /// Fragments have newly arrived.
    Progress,
}

/// Fragments `[una, end)`: those below `next` have been sent, those below `limit` may be.
#[derive(Debug)]
pub(super) struct Sender<const WINDOW: usize, const MTU: usize> {
    slots: [Slot<MTU>; WINDOW],
    una: u32,
    next: u32,
    end: u32,
    limit: u32,
    /// Slots in [`State::Flight`].
    flight: u32,
    /// Number of the next transmission; retransmissions count as well.
    order: u64,
    /// Transmissions below this number that got lost have already narrowed the window.
    recovered: u64,
    /// Everything sent this long before a packet that has arrived is lost.
    lost_below: u64,
    window: Aimd,
}

fn span(from: u32, to: u32) -> impl Iterator<Item = u32> {
    (0..to.wrapping_sub(from)).map(move |i| from.wrapping_add(i))
}

/// Is `a` at or after `b`, on a circle of 2^32?
pub(super) const fn at_or_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) < 1 << 31
}

impl<const WINDOW: usize, const MTU: usize> Sender<WINDOW, MTU> {
    pub(super) const fn new(first: u32) -> Self {
        Self {
            slots: [Slot::EMPTY; WINDOW],
            una: first,
            next: first,
            end: first,
            limit: first.wrapping_add(WINDOW as u32),
            flight: 0,
            order: 0,
            recovered: 0,
            lost_below: 0,
            window: Aimd::new(WINDOW as u32),
        }
    }

    /// Forgets everything; what the slots hold means nothing outside of `[una, end)`.
    pub(super) fn reset(&mut self, first: u32) {
        (self.una, self.next, self.end) = (first, first, first);
        self.limit = first.wrapping_add(WINDOW as u32);
        (self.flight, self.order, self.recovered, self.lost_below) = (0, 0, 0, 0);
        self.window = Aimd::new(WINDOW as u32);
    }

    /// Slots without a fragment.
    pub(super) const fn free(&self) -> usize {
        WINDOW - self.end.wrapping_sub(self.una) as usize
    }

    /// Has the peer everything?
    pub(super) const fn is_idle(&self) -> bool {
        self.una == self.end
    }

    /// Is a packet on its way of which nothing is known?
    pub(super) const fn in_flight(&self) -> bool {
        self.flight > 0
    }

    /// Cuts a message into fragments; takes nothing unless all of it fits.
    pub(super) fn push(&mut self, message: &[u8]) -> Result<(), SendError> {
        let fragment = MTU - OVERHEAD;
        let fragments = message.len().div_ceil(fragment).max(1);
        if fragments > WINDOW {
            return Err(SendError::TooLong);
        }
        if fragments > self.free() {
            return Err(SendError::Full);
        }
        let mut rest = message;
        for left in (0..fragments).rev() {
            let (part, after) = rest.split_at(rest.len().min(fragment));
            let slot = &mut self.slots[self.end as usize % WINDOW];
            slot.bytes[..part.len()].copy_from_slice(part);
            slot.len = part.len();
            slot.last = left == 0;
            slot.state = State::Queued;
            slot.resent = false;
            self.end = self.end.wrapping_add(1);
            rest = after;
        }
        Ok(())
    }

    /// Queues a message of one fragment, which `fill` writes where it is kept.
    pub(super) fn push_with(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        if len > MTU - OVERHEAD {
            return Err(SendError::TooLong);
        }
        if self.free() == 0 {
            return Err(SendError::Full);
        }
        let slot = &mut self.slots[self.end as usize % WINDOW];
        fill(slot.bytes.get_mut(..len).ok_or(SendError::TooLong)?);
        slot.len = len;
        slot.last = true;
        slot.state = State::Queued;
        slot.resent = false;
        self.end = self.end.wrapping_add(1);
        Ok(())
    }

    /// The fragment to send next, if one may be sent now: lost ones first, the oldest first.
    pub(super) fn due(&self) -> Option<u32> {
        if self.flight >= self.window.packets() {
            return None;
        }
        let lost = |seq: &u32| self.slots[*seq as usize % WINDOW].state == State::Lost;
        let fresh = self.next != self.end && !at_or_after(self.next, self.limit);
        span(self.una, self.next).find(lost).or(fresh.then_some(self.next))
    }

    /// Sends the fragment that [`Sender::due`] names; returns it, and whether it is sent again.
    pub(super) fn transmit(&mut self, seq: u32, stamp: u32) -> (Fragment<'_>, bool) {
        let slot = &mut self.slots[seq as usize % WINDOW];
        if seq == self.next {
            self.next = seq.wrapping_add(1);
        } else {
            slot.resent = true;
        }
        slot.state = State::Flight;
        slot.stamp = stamp;
        slot.order = self.order;
        self.order += 1;
        self.flight += 1;
        let bytes = slot.bytes.get(..slot.len).unwrap_or_default();
        (Fragment { seq, last: slot.last, bytes }, slot.resent)
    }

    /// Takes in what a packet of the peer acknowledges.
    pub(super) fn acknowledge(&mut self, packet: &Packet<'_>) -> Ack {
        let sent = self.next.wrapping_sub(self.una);
        let acked = packet.ack.wrapping_sub(self.una);
        if acked > sent {
            // Below `una` it is an old packet, overtaken by others.
            let old = at_or_after(self.una, packet.ack);
            return if old { Ack::Old } else { Ack::Impossible };
        }
        let limit = packet.ack.wrapping_add(u32::from(packet.credit).min(WINDOW as u32));
        if at_or_after(limit, self.limit) {
            self.limit = limit;
        }
        let mut progress = acked > 0;
        for seq in span(self.una, packet.ack) {
            self.arrived(seq, packet.echo);
        }
        self.una = packet.ack;
        for seq in span(self.una, self.next).skip(1) {
            let bit = seq.wrapping_sub(self.una) - 1;
            if packet.sack >> bit & 1 == 1 {
                progress |= self.arrived(seq, packet.echo);
            }
        }
        self.find_losses();
        if progress { Ack::Progress } else { Ack::Old }
    }

    /// A fragment has arrived; returns whether that is news.
    fn arrived(&mut self, seq: u32, echo: Option<u32>) -> bool {
        let slot = &mut self.slots[seq as usize % WINDOW];
        match slot.state {
            State::Acked => return false,
            State::Flight => self.flight -= 1,
            State::Queued | State::Lost => {}
        }
        slot.state = State::Acked;
        // Karn's problem: which transmission has arrived? The peer answers nothing older than what
        // it echoes, so an echo from before the latest transmission leaves it open.
        if !slot.resent || echo.is_some_and(|echo| at_or_after(echo, slot.stamp)) {
            let below = (slot.order + 1).saturating_sub(REORDERING);
            self.lost_below = self.lost_below.max(below);
        }
        self.window.arrived();
        true
    }

    fn find_losses(&mut self) {
        let mut narrow = false;
        for seq in span(self.una, self.next) {
            let slot = &mut self.slots[seq as usize % WINDOW];
            if slot.state == State::Flight && slot.order < self.lost_below {
                slot.state = State::Lost;
                self.flight -= 1;
                narrow |= slot.order >= self.recovered;
            }
        }
        if narrow {
            self.window.lost();
            self.recovered = self.order;
        }
    }

    /// Nothing has been heard for a whole time-out: takes all that is in flight for lost.
    pub(super) fn time_out(&mut self) {
        for seq in span(self.una, self.next) {
            let slot = &mut self.slots[seq as usize % WINDOW];
            if slot.state == State::Flight {
                slot.state = State::Lost;
            }
        }
        if self.flight > 0 {
            self.window.timed_out();
            self.recovered = self.order;
        }
        self.flight = 0;
    }
}
