//! One member's end of the link to one peer.

use crate::bell::Bell;
use crate::packed::{Cargo, INLINE};
use crate::ring::Ring;
use std::collections::VecDeque;
use std::sync::Arc;
use unisono_core::wire::frame::Header;
use unisono_driver::{Arrived, HostMemory, Incoming, Link, LinkCaps, LinkError, Outgoing};

/// Marks the handle of an inline payload: it lies in the ring, so nobody can take it back and
/// locking it (a line that has to come from the other core) is not needed.
const OWN: u32 = 1 << 31;

/// The rings of one channel: the one that this end writes and the one that it reads.
type Pair<M> = (Arc<Ring<M>>, Arc<Ring<M>>);

/// What one end knows about one channel. On lines of its own: the ends of a link are made side by
/// side and used by different threads.
#[repr(align(128))]
struct Channel<M: Copy> {
    out: Arc<Ring<M>>,
    inc: Arc<Ring<M>>,
    /// Next frame to write, next frame to read.
    head: usize,
    tail: usize,
    /// Frames whose memory the peer has not released: place and token.
    lent: Vec<(usize, u32)>,
    /// Completions of payloads that went inline.
    copied: VecDeque<u32>,
}

/// One end of a link between two threads. See the crate's head for how it works.
pub struct SpanLink<M: HostMemory> {
    channels: Vec<Channel<M>>,
    peer: Arc<Bell>,
}

impl<M: HostMemory> SpanLink<M> {
    pub(crate) fn new(rings: Vec<Pair<M>>, peer: Arc<Bell>) -> Self {
        let channel = |(out, inc): Pair<M>| Channel {
            lent: Vec::with_capacity(out.depth()),
            copied: VecDeque::with_capacity(out.depth()),
            out,
            inc,
            head: 0,
            tail: 0,
        };
        Self { channels: rings.into_iter().map(channel).collect(), peer }
    }
}

impl<M: HostMemory> SpanLink<M> {
    /// Tells the peer that nothing more will come for now; what was sent stays readable.
    pub fn leave(&self) {
        self.channels.iter().for_each(|c| c.out.set_closed(true));
        self.peer.ring();
    }

    /// Comes back after [`SpanLink::leave`].
    pub fn rejoin(&self) {
        self.channels.iter().for_each(|c| c.out.set_closed(false));
    }
}

impl<M: HostMemory> Link for SpanLink<M> {
    type Mem = M;

    fn caps(&self) -> LinkCaps {
        LinkCaps { spans: true, puts: true, inline_max: INLINE, channels: self.channels.len() }
    }

    fn has_room(&mut self, channel: usize) -> bool {
        let c = &self.channels[channel];
        // A frame that is free but still in `lent` has a completion that nobody has polled for.
        c.out.is_free(c.head) && !c.lent.iter().any(|(at, _)| *at == c.head)
    }

    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<M>,
        token: u32,
    ) -> Result<(), LinkError> {
        let c = &mut self.channels[channel];
        if c.out.is_abandoned() {
            return Err(LinkError::Closed);
        }
        match payload {
            Outgoing::None => c.out.publish(c.head, header, Cargo::None, &[]),
            Outgoing::Put => c.out.publish(c.head, header, Cargo::Put, &[]),
            Outgoing::At { mem, bytes, window: None } if bytes <= INLINE => {
                // SAFETY: the caller lends `bytes` valid bytes.
                let inline = unsafe { core::slice::from_raw_parts(mem.as_ptr(), bytes) };
                c.out.publish(c.head, header, Cargo::Inline, inline);
                c.copied.push_back(token);
            }
            Outgoing::At { mem, window, .. } => {
                c.out.publish(c.head, header, Cargo::At { mem, window }, &[]);
                c.lent.push((c.head, token));
            }
        }
        c.head = (c.head + 1) % c.out.depth();
        c.out.prepare(c.head);
        self.peer.ring();
        Ok(())
    }

    fn poll_sent(&mut self, channel: usize) -> Option<u32> {
        let c = &mut self.channels[channel];
        if let Some(token) = c.copied.pop_front() {
            return Some(token);
        }
        // Nobody reads any more once the peer is gone.
        let gone = c.out.is_abandoned();
        let free = |at| c.out.is_free(at) || (gone && c.out.revoke(at));
        let at = c.lent.iter().position(|(at, _)| free(*at))?;
        Some(c.lent.swap_remove(at).1)
    }

    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<M>>, LinkError> {
        let c = &self.channels[channel];
        let Some((header, cargo)) = c.inc.peek(c.tail) else {
            if !c.inc.is_closed() {
                return Ok(None);
            }
            // What was sent before closing comes first.
            return if c.inc.is_free(c.tail) { Err(LinkError::Closed) } else { Ok(None) };
        };
        let handle = c.tail as u32;
        let payload = match cargo {
            Cargo::None => Arrived::None,
            Cargo::Put => Arrived::Put,
            Cargo::Inline => {
                let mem = M::from_ptr(c.inc.inline(c.tail));
                Arrived::Span { mem, window: None, handle: handle | OWN }
            }
            Cargo::At { mem, window } => Arrived::Span { mem, window, handle },
        };
        Ok(Some(Incoming { header, payload }))
    }

    fn take(&mut self, channel: usize) {
        let c = &mut self.channels[channel];
        if matches!(c.inc.peek(c.tail), Some((_, Cargo::None | Cargo::Put))) {
            c.inc.free(c.tail);
        }
        c.tail = (c.tail + 1) % c.inc.depth();
    }

    unsafe fn receive(&mut self, _channel: usize, _into: Option<M>) -> Result<bool, LinkError> {
        // No frame of this link is a stream.
        Err(LinkError::Garbage)
    }

    fn enter(&mut self, channel: usize, handle: u32) -> bool {
        handle & OWN != 0 || self.channels[channel].inc.enter(handle as usize)
    }

    fn exit(&mut self, channel: usize, handle: u32) {
        if handle & OWN == 0 {
            self.channels[channel].inc.exit(handle as usize);
        }
    }

    fn release(&mut self, channel: usize, handle: u32) {
        self.channels[channel].inc.free((handle & !OWN) as usize);
        self.peer.ring();
    }

    fn withdraw(&mut self, channel: usize) -> bool {
        let c = &mut self.channels[channel];
        c.lent.retain(|(at, _)| !c.out.revoke(*at));
        c.copied.clear();
        c.lent.is_empty()
    }
}

impl<M: HostMemory> Drop for SpanLink<M> {
    fn drop(&mut self) {
        for index in 0..self.channels.len() {
            // The peer's access to a span is bounded by one fold; memory must not go before.
            while !self.withdraw(index) {
                std::thread::yield_now();
            }
            self.channels[index].out.set_closed(true);
            self.channels[index].inc.set_abandoned();
        }
        self.peer.ring();
    }
}
