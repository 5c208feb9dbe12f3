//! One end of the link between the board and one rank.

use crate::bus::Bus;
use crate::region::{Area, CLOSED, OPEN, Region, RegionError, Side};
use crate::ring::{Frame, In, Out, Place};
use crate::window::Window;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Release};
use heapless::{Deque, Vec};
use unisono_core::wire::frame::{Body, Header};
use unisono_driver::{Arrived, HostMemory, Incoming, Link, LinkCaps, LinkError, Outgoing};

/// Most channels of a link.
pub const CHANNELS_MAX: usize = 4;
/// Completions that wait to be polled, for each channel.
const SENT_MAX: usize = 16;

/// How an end gets at payloads that have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Copied out of the window into a slot or the output: the link is a stream of bytes. What is
    /// under way is bounded by what the receiver has granted, so any number of slots will do.
    Copied,
    /// Folded where they are, without a copy. Each chunk in flight may hold two slots of the
    /// window until it is folded (a contribution and a result), so a link needs at least twice as
    /// many slots as calls have chunks in flight.
    InPlace,
}

#[derive(Debug)]
struct Channel {
    out: Out,
    inc: In,
    /// Tokens of payloads that have been copied into the window.
    sent: Deque<u32, SENT_MAX>,
}

/// One end of a link. Payloads are copied into the window when they are sent, so they are complete
/// at once.
#[derive(Debug)]
pub struct WindowLink<M, B> {
    window: Window,
    bus: B,
    side: Side,
    /// Where the link's area is.
    at: usize,
    reading: Reading,
    channels: Vec<Channel, CHANNELS_MAX>,
    payload_max: usize,
    /// The peer has written nonsense: nothing of it is believed any more.
    broken: bool,
    mem: PhantomData<fn(M) -> M>,
}

impl<M: HostMemory, B: Bus> WindowLink<M, B> {
    /// This side's end of the link that the region has for `peer`. There may be one at a time, and
    /// its area must have been laid out, or cleared, since the last one.
    ///
    /// # Errors
    /// If the region has no such link.
    pub fn new(region: &Region, peer: u16, reading: Reading, bus: B) -> Result<Self, RegionError> {
        let wanted = |area| matches!(area, Area::Link { peer: p, .. } if p == peer);
        let (Area::Link { shape, .. }, at) = region.find(wanted)? else {
            return Err(RegionError::Missing);
        };
        let side = region.side();
        let mut channels = Vec::new();
        for channel in 0..usize::from(shape.channels) {
            let out = Out::new(Place::new(at, &shape, side, channel));
            let inc = In::new(Place::new(at, &shape, side.other(), channel));
            // A shape has at most so many.
            let _ = channels.push(Channel { out, inc, sent: Deque::new() });
        }
        let window = region.window().clone();
        let payload_max = shape.slot_bytes as usize;
        let mut link = Self {
            window,
            bus,
            side,
            at,
            reading,
            channels,
            payload_max,
            broken: false,
            mem: PhantomData,
        };
        link.set_state(OPEN);
        Ok(link)
    }

    /// Most bytes of a payload.
    #[must_use]
    pub const fn payload_max(&self) -> usize {
        self.payload_max
    }

    fn set_state(&mut self, state: u32) {
        self.bus.publish();
        if let Some(word) = self.window.word(self.at + self.side.state()) {
            word.store(state, Release);
        }
    }

    fn is_closed(&self) -> bool {
        let word = self.window.word(self.at + self.side.other().state());
        word.is_none_or(|word| word.load(Acquire) == CLOSED)
    }

    /// Notes that the peer has written nonsense.
    fn judged<T>(&mut self, result: Result<T, LinkError>) -> Result<T, LinkError> {
        self.broken |= matches!(result, Err(LinkError::Garbage));
        result
    }

    /// The head frame of a channel.
    fn peek(&mut self, channel: usize) -> Result<Option<Frame>, LinkError> {
        if self.broken {
            return Err(LinkError::Garbage);
        }
        let c = self.channels.get_mut(channel).ok_or(LinkError::Closed)?;
        let frame = c.inc.peek(&self.window, &mut self.bus);
        self.judged(frame)
    }

    fn collect(&mut self, channel: usize) -> Result<(), LinkError> {
        if self.broken {
            return Err(LinkError::Garbage);
        }
        let c = self.channels.get_mut(channel).ok_or(LinkError::Closed)?;
        let collected = c.out.collect(&self.window, &mut self.bus);
        self.judged(collected)
    }
}

/// Is the payload in the window for the receiver to read there?
fn in_place(reading: Reading, frame: &Frame) -> bool {
    reading == Reading::InPlace && frame.has_payload()
}

impl<M: HostMemory, B: Bus> Link for WindowLink<M, B> {
    type Mem = M;

    fn caps(&self) -> LinkCaps {
        LinkCaps {
            spans: self.reading == Reading::InPlace,
            puts: false,
            inline_max: self.payload_max,
            channels: self.channels.len(),
        }
    }

    fn has_room(&mut self, channel: usize) -> bool {
        if self.collect(channel).is_err() || self.is_closed() {
            // Sending says so.
            return true;
        }
        let c = self.channels.get(channel);
        c.is_some_and(|c| c.out.has_room() && !c.sent.is_full())
    }

    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<M>,
        token: u32,
    ) -> Result<(), LinkError> {
        self.collect(channel)?;
        if self.is_closed() {
            return Err(LinkError::Closed);
        }
        let (window, bus) = (&self.window, &mut self.bus);
        let c = self.channels.get_mut(channel).ok_or(LinkError::Closed)?;
        match payload {
            Outgoing::None => c.out.submit(window, bus, header, None::<fn(_)>)?,
            Outgoing::At { mem, bytes, .. } => {
                if bytes > c.out.payload_max() || c.sent.push_back(token).is_err() {
                    return Err(LinkError::Closed);
                }
                let copy = |to: core::ptr::NonNull<u8>| {
                    // SAFETY: the caller lends `bytes` valid bytes; the slot is free, and long
                    // enough.
                    unsafe { core::ptr::copy_nonoverlapping(mem.as_ptr(), to.as_ptr(), bytes) };
                };
                c.out.submit(window, bus, header, Some(copy))?;
            }
            // This link offers no windows into tensors.
            Outgoing::Put => return Err(LinkError::Closed),
        }
        self.bus.ring();
        Ok(())
    }

    fn poll_sent(&mut self, channel: usize) -> Option<u32> {
        self.channels.get_mut(channel)?.sent.pop_front()
    }

    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<M>>, LinkError> {
        let mut head = self.peek(channel)?;
        if head.is_none() {
            if !self.is_closed() {
                return Ok(None);
            }
            // What was sent before closing comes first.
            head = self.peek(channel)?;
        }
        let Some(frame) = head else { return Err(LinkError::Closed) };
        let payload = match frame.header.body {
            Body::Data(_) if in_place(self.reading, &frame) => {
                let c = self.channels.get(channel).ok_or(LinkError::Closed)?;
                let at = c.inc.payload(&self.window, &frame)?;
                let handle = In::handle(&frame);
                Arrived::Span { mem: M::from_ptr(at.as_ptr()), window: None, handle }
            }
            Body::Data(_) => Arrived::Stream,
            _ => Arrived::None,
        };
        Ok(Some(Incoming { header: frame.header, payload }))
    }

    fn take(&mut self, channel: usize) {
        let reading = self.reading;
        let Ok(Some(frame)) = self.peek(channel) else { return };
        let Some(c) = self.channels.get_mut(channel) else { return };
        if in_place(reading, &frame) {
            c.inc.hold();
            return;
        }
        let finished = c.inc.finish(&self.window, &mut self.bus);
        let _ = self.judged(finished);
        self.bus.ring();
    }

    unsafe fn receive(&mut self, channel: usize, into: Option<M>) -> Result<bool, LinkError> {
        let frame = self.peek(channel)?.ok_or(LinkError::Garbage)?;
        let c = self.channels.get_mut(channel).ok_or(LinkError::Closed)?;
        if let (Some(into), true) = (into, frame.has_payload()) {
            let from = c.inc.payload(&self.window, &frame)?;
            let bytes = frame.header.payload_len() as usize;
            // SAFETY: the slot holds at least `bytes`, which was checked; the caller's promise.
            unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), into.as_ptr(), bytes) };
        }
        let finished = c.inc.finish(&self.window, &mut self.bus);
        self.judged(finished)?;
        self.bus.ring();
        Ok(true)
    }

    fn enter(&mut self, _: usize, _: u32) -> bool {
        // What has been copied into the window stays there until it is released.
        true
    }

    fn exit(&mut self, _: usize, _: u32, _: bool) {}

    fn release(&mut self, channel: usize, handle: u32) {
        let Some(c) = self.channels.get_mut(channel) else { return };
        let released = c.inc.release(&self.window, &mut self.bus, handle);
        let _ = self.judged(released);
        self.bus.ring();
    }

    fn withdraw(&mut self, channel: usize) -> bool {
        // Every payload has been copied.
        if let Some(c) = self.channels.get_mut(channel) {
            c.sent.clear();
        }
        true
    }
}

impl<M, B> Drop for WindowLink<M, B> {
    fn drop(&mut self) {
        if let Some(word) = self.window.word(self.at + self.side.state()) {
            word.store(CLOSED, Release);
        }
    }
}
