//! The two halves of one direction of one channel: where frames go out and where they come in.

use crate::bus::Bus;
use crate::region::{Shape, Side};
use crate::window::Window;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use unisono_core::wire::PREFIX;
use unisono_core::wire::frame::{self, HEADER_MAX, Header};
use unisono_driver::LinkError;

/// Bytes of a submission, of the part of it that holds the header, and of a completion.
const UNIT: usize = 64;
const PART: usize = 56;
const DONE: usize = 16;
/// Most units of a frame.
pub const UNITS: u32 = HEADER_MAX.div_ceil(PART) as u32;
/// In the place of a slot: no payload.
const NO_SLOT: u32 = 0xffff;

/// Where the rings of one channel and direction are.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    sq: usize,
    cq: usize,
    data: usize,
    /// Units of a ring are a power of two, `1 << lap`.
    lap: u32,
    slots: u16,
    slot_bytes: usize,
}

impl Place {
    /// The rings that `from` writes, in the area of a link at `area`.
    pub fn new(area: usize, shape: &Shape, from: Side, channel: usize) -> Self {
        let each = shape.channel_bytes() as usize;
        let index = 2 * channel + usize::from(from == Side::Board);
        let sq = area + 2 * UNIT + index * each;
        let units = usize::from(shape.units);
        let slots = usize::from(shape.slots) * shape.slot_bytes as usize;
        Self {
            sq,
            cq: sq + units * UNIT,
            data: sq + each - slots,
            lap: u32::from(shape.units).trailing_zeros() & 31,
            slots: shape.slots,
            slot_bytes: shape.slot_bytes as usize,
        }
    }

    const fn units(&self) -> u32 {
        1 << self.lap
    }

    const fn index(&self, n: u32) -> usize {
        (n & (self.units() - 1)) as usize
    }

    const fn unit(&self, n: u32) -> usize {
        self.sq + self.index(n) * UNIT
    }

    const fn completion(&self, n: u32) -> usize {
        self.cq + self.index(n) * DONE
    }

    /// The tail of entry `n` of either ring.
    const fn tail(&self, n: u32) -> u32 {
        n << 1 | !(n >> self.lap) & 1
    }

    /// Is entry `n` there, whose tail lies at `at`?
    fn is_there(&self, window: &Window, at: usize, n: u32) -> Result<bool, LinkError> {
        let tail = load(window, at)?;
        let want = self.tail(n);
        if (tail ^ want) & 1 != 0 {
            return Ok(false);
        }
        if tail == want { Ok(true) } else { Err(LinkError::Garbage) }
    }

    fn slot(&self, window: &Window, slot: u32) -> Result<NonNull<u8>, LinkError> {
        let at = self.data + slot as usize * self.slot_bytes;
        window.span(at, self.slot_bytes).ok_or(LinkError::Garbage)
    }
}

fn load(window: &Window, at: usize) -> Result<u32, LinkError> {
    window.word(at).map(|word| word.load(Relaxed)).ok_or(LinkError::Garbage)
}

fn store(window: &Window, at: usize, value: u32) -> Result<(), LinkError> {
    window.word(at).ok_or(LinkError::Garbage)?.store(value, Relaxed);
    Ok(())
}

/// The sender's half.
#[derive(Debug)]
pub struct Out {
    place: Place,
    /// Units submitted, units completed, completions read.
    next: u32,
    completed: u32,
    read: u32,
    /// Slots that hold no payload: bit i is slot i.
    free: u64,
}

impl Out {
    pub const fn new(place: Place) -> Self {
        let free = u64::MAX >> (64 - place.slots as u32);
        Self { place, next: 0, completed: 0, read: 0, free }
    }

    /// Is there room for one more frame with payload?
    pub const fn has_room(&self) -> bool {
        let used = self.next.wrapping_sub(self.completed);
        used + UNITS <= self.place.units() && self.free != 0
    }

    /// Most bytes of a payload.
    pub const fn payload_max(&self) -> usize {
        self.place.slot_bytes
    }

    /// Takes completions in.
    pub fn collect(&mut self, window: &Window, bus: &mut impl Bus) -> Result<(), LinkError> {
        loop {
            let at = self.place.completion(self.read);
            if !self.place.is_there(window, at + DONE - 4, self.read)? {
                return Ok(());
            }
            bus.observe();
            let word = load(window, at)?;
            let (slot, units) = (word & 0xffff, word >> 16);
            if units == 0 || units > self.next.wrapping_sub(self.completed) {
                return Err(LinkError::Garbage);
            }
            if slot != NO_SLOT {
                let known = slot < u32::from(self.place.slots);
                if !known || self.free >> slot & 1 != 0 {
                    return Err(LinkError::Garbage);
                }
                self.free |= 1 << slot;
            }
            self.completed = self.completed.wrapping_add(units);
            self.read = self.read.wrapping_add(1);
        }
    }

    /// Submits a frame. `payload` copies itself to where it is told. Call only if there is room.
    pub fn submit(
        &mut self,
        window: &Window,
        bus: &mut impl Bus,
        header: &Header,
        payload: Option<impl FnOnce(NonNull<u8>)>,
    ) -> Result<(), LinkError> {
        if !self.has_room() {
            return Err(LinkError::Closed);
        }
        let mut head = [0; UNITS as usize * PART];
        let len = frame::encode_head(header, &mut head).map_err(|_| LinkError::Closed)?;
        let mut slot = NO_SLOT;
        if let Some(payload) = payload {
            slot = self.free.trailing_zeros();
            payload(self.place.slot(window, slot)?);
            self.free &= !(1 << slot);
        }
        let units = len.div_ceil(PART) as u32;
        for k in 0..units {
            let at = self.place.unit(self.next.wrapping_add(k));
            let part = head.chunks_exact(PART).nth(k as usize);
            for (i, bytes) in part.into_iter().flat_map(|p| p.as_chunks().0).enumerate() {
                store(window, at + 4 * i, u32::from_le_bytes(*bytes))?;
            }
            store(window, at + PART, slot)?;
        }
        bus.publish();
        // Who sees the first unit of a frame may rely on the others.
        for k in (0..units).rev() {
            let n = self.next.wrapping_add(k);
            if k == 0 {
                bus.publish();
            }
            store(window, self.place.unit(n) + UNIT - 4, self.place.tail(n))?;
        }
        self.next = self.next.wrapping_add(units);
        Ok(())
    }
}

/// A frame that has come and has not been completed.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub header: Header,
    slot: u32,
    units: u32,
}

impl Frame {
    pub const fn has_payload(&self) -> bool {
        self.slot != NO_SLOT
    }
}

/// The receiver's half.
#[derive(Debug)]
pub struct In {
    place: Place,
    /// Units taken, completions written.
    next: u32,
    completions: u32,
    head: Option<Frame>,
    /// Slots that are read in place, and which of those frames took two units.
    held: u64,
    two: u64,
}

impl In {
    pub const fn new(place: Place) -> Self {
        Self { place, next: 0, completions: 0, head: None, held: 0, two: 0 }
    }

    /// The frame at the head, if there is one.
    pub fn peek(
        &mut self,
        window: &Window,
        bus: &mut impl Bus,
    ) -> Result<Option<Frame>, LinkError> {
        if self.head.is_none() {
            let at = self.place.unit(self.next);
            if !self.place.is_there(window, at + UNIT - 4, self.next)? {
                return Ok(None);
            }
            bus.observe();
            self.head = Some(self.read(window)?);
        }
        Ok(self.head)
    }

    /// Copies a frame's header out and checks all that it says.
    fn read(&self, window: &Window) -> Result<Frame, LinkError> {
        let mut head = [0; UNITS as usize * PART];
        let mut slot = NO_SLOT;
        let mut units = 1;
        for k in 0..UNITS {
            let n = self.next.wrapping_add(k);
            let at = self.place.unit(n);
            if k > 0 && (k >= units || !self.place.is_there(window, at + UNIT - 4, n)?) {
                break;
            }
            let part = head.chunks_exact_mut(PART).nth(k as usize);
            for (i, bytes) in part.into_iter().flat_map(|p| p.chunks_exact_mut(4)).enumerate() {
                bytes.copy_from_slice(&load(window, at + 4 * i)?.to_le_bytes());
            }
            if k == 0 {
                slot = load(window, at + PART)?;
                let prefix = head.first_chunk::<PREFIX>().ok_or(LinkError::Garbage)?;
                let len = frame::head_len(*prefix).map_err(|_| LinkError::Garbage)?;
                units = len.div_ceil(PART) as u32;
            }
        }
        let (header, _) = frame::decode_head(&head).map_err(|_| LinkError::Garbage)?;
        let payload = header.payload_len() as usize;
        let fits = match slot {
            NO_SLOT => payload == 0,
            slot => slot < u32::from(self.place.slots) && payload <= self.place.slot_bytes,
        };
        if !fits || units > UNITS {
            return Err(LinkError::Garbage);
        }
        Ok(Frame { header, slot, units })
    }

    /// Where the payload of a frame is.
    pub fn payload(&self, window: &Window, frame: &Frame) -> Result<NonNull<u8>, LinkError> {
        self.place.slot(window, frame.slot)
    }

    /// Takes the head away and completes it; its payload is no longer needed.
    pub fn finish(&mut self, window: &Window, bus: &mut impl Bus) -> Result<(), LinkError> {
        let Some(frame) = self.head.take() else { return Ok(()) };
        self.next = self.next.wrapping_add(frame.units);
        self.complete(window, bus, frame.slot, frame.units)
    }

    /// Takes the head away and keeps its payload until it is released.
    pub fn hold(&mut self) {
        if let Some(Frame { slot, units, .. }) = self.head.take() {
            self.next = self.next.wrapping_add(units);
            self.held |= 1 << slot;
            self.two = self.two & !(1 << slot) | u64::from(units > 1) << slot;
        }
    }

    /// The handle that the head has once it is held.
    pub const fn handle(frame: &Frame) -> u32 {
        frame.slot
    }

    /// Gives a payload back that was held.
    pub fn release(
        &mut self,
        window: &Window,
        bus: &mut impl Bus,
        slot: u32,
    ) -> Result<(), LinkError> {
        if slot >= 64 || self.held >> slot & 1 == 0 {
            return Ok(());
        }
        self.held &= !(1 << slot);
        self.complete(window, bus, slot, 1 + (self.two >> slot & 1) as u32)
    }

    fn complete(
        &mut self,
        window: &Window,
        bus: &mut impl Bus,
        slot: u32,
        units: u32,
    ) -> Result<(), LinkError> {
        let at = self.place.completion(self.completions);
        store(window, at, slot | units << 16)?;
        store(window, at + 4, 0)?;
        store(window, at + 8, 0)?;
        bus.publish();
        store(window, at + DONE - 4, self.place.tail(self.completions))?;
        self.completions = self.completions.wrapping_add(1);
        Ok(())
    }
}
