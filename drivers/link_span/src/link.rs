//! One member's end of the link to one peer.

use crate::away::{Away, Buffers};
use crate::bell::Bell;
use crate::packed::{Cargo, INLINE};
use crate::reach::{Direct, Named, Reach};
use crate::ring::{BUFFERS, Ring, SMALL};
use std::collections::VecDeque;
use std::sync::Arc;
use unisono_core::wire::frame::Header;
use unisono_driver::{Arrived, HostMemory, Incoming, Link, LinkCaps, LinkError, Outgoing};

/// Marks the handle of a payload that was copied: it lies in the ring, so nobody can take it back
/// and locking it (a line that has to come from the other core) is not needed.
const OWN: u32 = 1 << 31;

/// The rings of one channel: the one that this end writes and the one that it reads.
pub type Pair = (Ring, Ring);

/// What one end knows about one channel. On lines of its own: the ends of a link are made side by
/// side and used by different threads.
#[repr(align(128))]
struct Channel {
    out: Ring,
    inc: Ring,
    /// Next frame to write, and the first that must not be written yet.
    head: u64,
    room: u64,
    /// Next frame to read, whether it holds nothing that has to be released, and the first that is
    /// not freed yet.
    tail: u64,
    bare: bool,
    /// Bytes that the last frame read had beside it: the next one probably has as many.
    beside: usize,
    freed: u64,
    /// By place in the ring: this end is done with the frame that it has read there.
    done: Box<[bool]>,
    /// By place in the ring: the frame read there names memory that only the peer has.
    away: Box<[Option<Away>]>,
    /// Frames whose memory the peer has not released: number and token.
    lent: Vec<(u64, u32)>,
    /// Completions of payloads that went inline.
    copied: VecDeque<u32>,
}

impl Channel {
    /// The number of the frame behind a handle, which has its low 31 bits.
    const fn seq(&self, handle: u32) -> u64 {
        self.tail - ((self.tail as u32).wrapping_sub(handle) & !OWN) as u64
    }

    /// Is the buffer of the next frame to write free?
    fn has_buffer(&mut self) -> bool {
        let known = |c: &Self| c.room.wrapping_sub(c.out.depth() as u64);
        if self.head.wrapping_sub(known(self)) >= BUFFERS as u64 {
            self.room = self.out.freed().wrapping_add(self.out.depth() as u64);
        }
        self.head.wrapping_sub(known(self)) < BUFFERS as u64
    }

    /// Counts a frame as read; frames are freed in order.
    fn finish(&mut self, seq: u64) {
        self.done[self.inc.place(seq)] = true;
        let before = self.freed;
        while core::mem::take(&mut self.done[self.inc.place(self.freed)]) {
            self.freed += 1;
        }
        if self.freed != before {
            self.inc.free_before(self.freed);
        }
    }
}

/// Memory and window of a span, if there is any.
type Span<M> = Option<(M, Option<M>)>;

/// One end of a link whose ends share memory. See the crate's head for how it works.
pub struct SpanLink<M: HostMemory, R: Reach<Mem = M> = Direct<M>> {
    channels: Vec<Channel>,
    peer: Arc<Bell>,
    reach: R,
    buffers: Buffers,
    /// The peer lives, and what it has named cannot be reached.
    broken: bool,
}

impl<M: HostMemory, R: Reach<Mem = M>> SpanLink<M, R> {
    /// The end with these rings, a pair for each channel, whose other end has the bell `peer`.
    #[must_use]
    pub fn new(rings: Vec<Pair>, peer: Arc<Bell>, reach: R) -> Self {
        let channel = |(out, inc): Pair| Channel {
            lent: Vec::with_capacity(out.depth()),
            copied: VecDeque::with_capacity(out.depth()),
            head: 0,
            room: out.depth() as u64,
            tail: 0,
            bare: false,
            beside: 0,
            freed: 0,
            done: vec![false; inc.depth()].into(),
            away: (0..inc.depth()).map(|_| None).collect(),
            out,
            inc,
        };
        let channels = rings.into_iter().map(channel).collect();
        Self { channels, peer, reach, buffers: Buffers::default(), broken: false }
    }

    /// Tells the peer that nothing more will come for now; what was sent stays readable.
    pub fn leave(&self) {
        self.channels.iter().for_each(|c| c.out.set_closed(true));
        self.peer.ring();
    }

    /// Comes back after [`SpanLink::leave`].
    pub fn rejoin(&self) {
        self.channels.iter().for_each(|c| c.out.set_closed(false));
    }

    /// How memory is named to the peer.
    pub const fn reach(&self) -> &R {
        &self.reach
    }

    /// A span that the frame at the head of a channel names; `None` if there is no such memory.
    fn span(&mut self, channel: usize, (mem, window): (u64, Option<u64>), bytes: usize) -> Span<M> {
        let c = &mut self.channels[channel];
        let find = |name| self.reach.find(name, bytes);
        let (mem, window) = match (find(mem)?, window.map(find)) {
            (Named::Here(mem), None) => return Some((mem, None)),
            (Named::Here(mem), Some(Some(Named::Here(window)))) => {
                return Some((mem, Some(window)));
            }
            (_, Some(None)) => return None,
            (mem, window) => (mem, window.flatten()),
        };
        let apart = |named| if let Named::Away(at) = named { Some(at) } else { None };
        let place = &mut c.away[c.inc.place(c.tail)];
        if place.is_none() {
            *place = Away::new(apart(mem), window.and_then(apart), bytes, &mut self.buffers);
        }
        let buffer = place.as_mut()?.mem();
        let here = |named| if let Named::Here(mem) = named { mem } else { buffer };
        Some((here(mem), window.map(here)))
    }
}

impl<M: HostMemory, R: Reach<Mem = M>> Link for SpanLink<M, R> {
    type Mem = M;

    fn caps(&self) -> LinkCaps {
        LinkCaps { spans: true, puts: true, inline_max: SMALL, channels: self.channels.len() }
    }

    fn has_room(&mut self, channel: usize) -> bool {
        let c = &mut self.channels[channel];
        if c.head == c.room {
            c.room = c.out.freed().wrapping_add(c.out.depth() as u64);
        }
        // A place may be free and still in `lent`: a completion that nobody has polled for.
        let again = |(seq, _): &(u64, u32)| seq + c.out.depth() as u64 == c.head;
        c.head != c.room && !c.lent.iter().any(again)
    }

    fn copies(&mut self, channel: usize, bytes: usize) -> bool {
        bytes <= INLINE || (bytes <= SMALL && self.channels[channel].has_buffer())
    }

    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<M>,
        token: u32,
    ) -> Result<(), LinkError> {
        let c = &mut self.channels[channel];
        let unput = self.broken && matches!(payload, Outgoing::Put);
        if c.out.is_abandoned() || self.reach.is_dead() || unput {
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
            Outgoing::At { mem, bytes, window: None } if bytes <= SMALL && c.has_buffer() => {
                // SAFETY: the caller lends `bytes` valid bytes; the buffer is this frame's, whose
                // reader has not seen it yet.
                unsafe { c.out.copied(c.head).copy_from_nonoverlapping(mem.as_ptr(), bytes) };
                c.out.publish(c.head, header, Cargo::Copied, &[]);
                c.out.hand_over(c.head);
                c.copied.push_back(token);
                c.head += 1;
                self.peer.ring();
                // Asking for the next frame's lines would hold up those that are on their way.
                return Ok(());
            }
            Outgoing::At { mem, bytes, window } => {
                // The engine sends from memory that peers reach, and from no other.
                let name = |mem| self.reach.name(mem, bytes).ok_or(LinkError::Unreachable);
                let (mem, window) = (name(mem)?, window.map(name).transpose()?);
                c.out.publish(c.head, header, Cargo::At { mem, window }, &[]);
                c.lent.push((c.head, token));
            }
        }
        c.head += 1;
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
        let (gone, dead) = (c.out.is_abandoned(), self.reach.is_dead());
        let back = |seq| dead || c.out.is_back(seq) || (gone && c.out.revoke(seq));
        let at = c.lent.iter().position(|(seq, _)| back(*seq))?;
        Some(c.lent.swap_remove(at).1)
    }

    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<M>>, LinkError> {
        if self.broken {
            return Err(LinkError::Unreachable);
        }
        let c = &mut self.channels[channel];
        if !c.inc.is_sent(c.tail) {
            if !c.inc.is_closed() && !self.reach.is_dead() {
                return Ok(None);
            }
            // What was sent before closing comes first.
            return if c.inc.is_sent(c.tail) { Ok(None) } else { Err(LinkError::Closed) };
        }
        c.inc.expect(c.tail, c.beside);
        let (header, cargo) = c.inc.read(c.tail).ok_or(LinkError::Garbage)?;
        c.beside = if cargo == Cargo::Copied { header.payload_len() as usize } else { 0 };
        let handle = c.tail as u32 & !OWN;
        c.bare = matches!(cargo, Cargo::None | Cargo::Put);
        let payload = match cargo {
            Cargo::None => Arrived::None,
            Cargo::Put => Arrived::Put,
            Cargo::Inline if header.payload_len() as usize > INLINE => {
                return Err(LinkError::Garbage);
            }
            Cargo::Inline => {
                let mem = M::from_ptr(c.inc.inline(c.tail));
                Arrived::Span { mem, window: None, handle: handle | OWN }
            }
            Cargo::Copied if header.payload_len() as usize > SMALL => {
                return Err(LinkError::Garbage);
            }
            Cargo::Copied => {
                let mem = M::from_ptr(c.inc.copied(c.tail));
                Arrived::Span { mem, window: None, handle: handle | OWN }
            }
            Cargo::At { mem, window } => {
                let bytes = header.payload_len() as usize;
                let span = self.span(channel, (mem, window), bytes);
                let (mem, window) = span.ok_or(LinkError::Garbage)?;
                Arrived::Span { mem, window, handle }
            }
        };
        Ok(Some(Incoming { header, payload }))
    }

    fn take(&mut self, channel: usize) {
        let c = &mut self.channels[channel];
        if core::mem::take(&mut c.bare) {
            c.finish(c.tail);
        }
        c.tail += 1;
    }

    unsafe fn receive(&mut self, _channel: usize, _into: Option<M>) -> Result<bool, LinkError> {
        // No frame of this link is a stream.
        Err(LinkError::Garbage)
    }

    fn enter(&mut self, channel: usize, handle: u32) -> bool {
        let c = &mut self.channels[channel];
        if handle & OWN != 0 {
            return true;
        }
        let seq = c.seq(handle);
        if !c.inc.enter(seq) {
            return false;
        }
        let away = c.away[c.inc.place(seq)].as_mut();
        let here = away.is_none_or(|away| away.fetch(&self.reach));
        if !here {
            c.inc.exit(seq);
            self.broken = true;
        }
        here
    }

    fn exit(&mut self, channel: usize, handle: u32, written: bool) {
        if handle & OWN == 0 {
            let c = &self.channels[channel];
            let seq = c.seq(handle);
            let away = c.away[c.inc.place(seq)].as_ref().filter(|_| written);
            self.broken |= away.is_some_and(|away| !away.store(&self.reach));
            c.inc.exit(seq);
        }
    }

    fn release(&mut self, channel: usize, handle: u32) {
        let c = &mut self.channels[channel];
        let seq = c.seq(handle);
        if handle & OWN == 0 {
            c.inc.give_back(seq);
            if let Some(away) = c.away[c.inc.place(seq)].take() {
                self.buffers.give(away);
            }
        }
        c.finish(seq);
        self.peer.ring();
    }

    fn withdraw(&mut self, channel: usize) -> bool {
        let c = &mut self.channels[channel];
        let dead = self.reach.is_dead();
        c.lent.retain(|(seq, _)| !dead && !c.out.revoke(*seq));
        c.copied.clear();
        c.lent.is_empty()
    }
}

impl<M: HostMemory, R: Reach<Mem = M>> Drop for SpanLink<M, R> {
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
