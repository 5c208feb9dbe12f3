//! The receiving half: fragments wait here until their message is whole and has been taken.

use super::RecvError;
use super::packet::Fragment;
use crate::bytes::copy;

#[derive(Clone, Copy, Debug)]
struct Slot<const MTU: usize> {
    bytes: [u8; MTU],
    len: usize,
    last: bool,
    full: bool,
}

/// Fragments `[read, read + WINDOW)` are taken; all below `ack` are here.
#[derive(Debug)]
pub(super) struct Receiver<const WINDOW: usize, const MTU: usize> {
    slots: [Slot<MTU>; WINDOW],
    read: u32,
    ack: u32,
    /// First fragment that the peer has not been told it may send.
    told: u32,
}

impl<const WINDOW: usize, const MTU: usize> Receiver<WINDOW, MTU> {
    pub(super) const fn new(first: u32) -> Self {
        let empty = Slot { bytes: [0; MTU], len: 0, last: false, full: false };
        let told = first.wrapping_add(WINDOW as u32);
        Self { slots: [empty; WINDOW], read: first, ack: first, told }
    }

    /// Forgets everything.
    pub(super) fn reset(&mut self, first: u32) {
        self.slots.iter_mut().for_each(|slot| slot.full = false);
        (self.read, self.ack) = (first, first);
        self.told = first.wrapping_add(WINDOW as u32);
    }

    /// All fragments below this one are here.
    pub(super) const fn ack(&self) -> u32 {
        self.ack
    }

    /// Which fragments after `ack` are here: bit `i` is `ack + 1 + i`.
    pub(super) fn sack(&self) -> u64 {
        // The slot of `ack` itself is empty, or `ack` is the window's end.
        (1..u32::from(self.credit())).fold(0, |bits, i| {
            let full = self.slots[self.ack.wrapping_add(i) as usize % WINDOW].full;
            bits | u64::from(full) << (i - 1)
        })
    }

    /// Fragments at and after `ack` that there is room for.
    pub(super) const fn credit(&self) -> u8 {
        (WINDOW - self.ack.wrapping_sub(self.read) as usize) as u8
    }

    /// Notes that the peer is being told [`Receiver::credit`].
    pub(super) const fn tell(&mut self) {
        self.told = self.read.wrapping_add(WINDOW as u32);
    }

    /// Would the peer gain by being told: was it told to stop, or is half of the window news?
    pub(super) const fn has_news(&self) -> bool {
        let news = self.read.wrapping_add(WINDOW as u32).wrapping_sub(self.told) as usize;
        news > 0 && (self.told == self.ack || news >= WINDOW / 2)
    }

    /// Takes in a fragment; returns whether it is new.
    pub(super) fn accept(&mut self, fragment: &Fragment<'_>) -> bool {
        if fragment.seq.wrapping_sub(self.read) as usize >= WINDOW {
            return false;
        }
        let slot = &mut self.slots[fragment.seq as usize % WINDOW];
        if slot.full {
            return false;
        }
        let Some(place) = slot.bytes.get_mut(..fragment.bytes.len()) else {
            return false;
        };
        copy(place, fragment.bytes);
        slot.len = fragment.bytes.len();
        slot.last = fragment.last;
        slot.full = true;
        while self.credit() > 0 && self.slots[self.ack as usize % WINDOW].full {
            self.ack = self.ack.wrapping_add(1);
        }
        true
    }

    /// Fragments and bytes of the next message, if it is whole.
    fn message(&self) -> Option<(u32, usize)> {
        let mut bytes = 0;
        for i in 0..self.ack.wrapping_sub(self.read) {
            let slot = &self.slots[self.read.wrapping_add(i) as usize % WINDOW];
            bytes += slot.len;
            if slot.last {
                return Some((i + 1, bytes));
            }
        }
        None
    }

    /// Length of the next message, if it is whole.
    pub(super) fn message_len(&self) -> Option<usize> {
        self.message().map(|(_, bytes)| bytes)
    }

    /// The next message where it lies, if it is whole and came in one fragment.
    pub(super) fn peek(&self) -> Option<&[u8]> {
        let slot = &self.slots[self.read as usize % WINDOW];
        if slot.full && slot.last { slot.bytes.get(..slot.len) } else { None }
    }

    /// Drops what [`Receiver::peek`] has shown.
    pub(super) fn pass(&mut self) {
        let slot = &mut self.slots[self.read as usize % WINDOW];
        if slot.full && slot.last {
            slot.full = false;
            self.read = self.read.wrapping_add(1);
        }
    }

    /// Is the window full of fragments of one message that has no end?
    pub(super) fn is_stuck(&self) -> bool {
        self.credit() == 0 && self.message().is_none()
    }

    /// Moves the next message to the start of `out`; returns its length.
    pub(super) fn take(&mut self, out: &mut [u8]) -> Result<usize, RecvError> {
        let (fragments, len) = self.message().ok_or(RecvError::Empty)?;
        let mut rest = out.get_mut(..len).ok_or(RecvError::Room { len })?;
        for _ in 0..fragments {
            let slot = &mut self.slots[self.read as usize % WINDOW];
            let parts = rest.split_at_mut_checked(slot.len).zip(slot.bytes.get(..slot.len));
            // `message` has added up the same lengths.
            let Some(((part, after), bytes)) = parts else { return Err(RecvError::Empty) };
            part.copy_from_slice(bytes);
            slot.full = false;
            rest = after;
            self.read = self.read.wrapping_add(1);
        }
        Ok(len)
    }
}
