//! One channel: frames on their way into a reliable machine, and the frame at the head of what
//! comes out of it.

use crate::Bytes;
use heapless::{Deque, Vec};
use unisono_core::reliable::{Config, Fault, Reliable, Side};
use unisono_core::wire::frame::{self, Body, HEADER_MAX, Header};
use unisono_driver::{Arrived, Incoming, LinkError, Outgoing};

/// A frame that has not gone completely.
#[derive(Debug)]
struct Outbound<M> {
    head: Vec<u8, HEADER_MAX>,
    payload: Option<(M, usize)>,
    /// Of a payload: what its completion says.
    token: u32,
    /// Bytes of head and payload that the machine has taken.
    done: usize,
    /// The payload was taken back after its first bytes had gone.
    cut: bool,
}

impl<M: Copy> Outbound<M> {
    fn len(&self) -> usize {
        self.head.len() + self.payload.map_or(0, |(_, len)| len)
    }

    /// Writes the next bytes of the frame, as many as `room` has.
    ///
    /// # Safety
    /// The payload must be valid.
    unsafe fn piece(&self, bytes: &mut impl Bytes<Mem = M>, room: &mut [u8]) {
        let head = self.head.get(self.done..).unwrap_or_default();
        let (first, rest) = room.split_at_mut(head.len().min(room.len()));
        first.iter_mut().zip(head).for_each(|(place, byte)| *place = *byte);
        if let Some((mem, _)) = self.payload {
            let at = self.done.saturating_sub(self.head.len());
            // SAFETY: `room` ends where the frame ends, or before.
            unsafe { bytes.read(mem, at, rest) };
        }
    }
}

/// The frame at the head of what has come in.
#[derive(Debug)]
struct Head {
    header: Header,
    /// Bytes of the message at the head that are used up already.
    skip: usize,
    /// Bytes of payload received.
    got: usize,
}

/// Storage of one channel of a [`ReliableLink`](crate::ReliableLink); see the crate's head for the
/// constants.
#[derive(Debug)]
pub struct Channel<M, const WINDOW: usize, const MTU: usize, const DEPTH: usize> {
    pub(crate) arq: Reliable<WINDOW, MTU>,
    out: Deque<Outbound<M>, DEPTH>,
    sent: Deque<u32, DEPTH>,
    head: Option<Head>,
    garbage: bool,
}

impl<M: Copy, const WINDOW: usize, const MTU: usize, const DEPTH: usize>
    Channel<M, WINDOW, MTU, DEPTH>
{
    /// Bytes of a frame in one message.
    const PIECE: usize = Reliable::<WINDOW, MTU>::FRAGMENT;

    /// Storage that no link uses.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(Self::PIECE >= HEADER_MAX, "a frame's header must fit one packet") };
        const { assert!(DEPTH > 0, "a channel must have room for a frame") };
        let arq = Reliable::new(Config::new(0, Side::Low));
        Self { arq, out: Deque::new(), sent: Deque::new(), head: None, garbage: false }
    }

    /// Forgets everything and begins a session.
    pub(crate) fn reset(&mut self, config: Config) {
        self.arq.reset(config);
        self.out.clear();
        self.sent.clear();
        (self.head, self.garbage) = (None, false);
    }

    /// Why nothing more can be sent, if so.
    pub(crate) fn broken(&self) -> Option<LinkError> {
        match self.arq.fault() {
            _ if self.garbage => Some(LinkError::Garbage),
            Some(Fault::PeerSilent) => Some(LinkError::Closed),
            Some(Fault::Protocol) => Some(LinkError::Garbage),
            None => None,
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.out.len() + self.sent.len() < DEPTH
    }

    /// Is there anything for the engine: frames, bytes, completions?
    pub(crate) fn has_news(&self) -> bool {
        self.arq.message_len().is_some() || !self.sent.is_empty()
    }

    pub(crate) fn push(
        &mut self,
        header: &Header,
        payload: Outgoing<M>,
        token: u32,
    ) -> Result<(), LinkError> {
        let mut room = [0; HEADER_MAX];
        let len = frame::encode_head(header, &mut room).map_err(|_| LinkError::Garbage)?;
        let head = room.get(..len).and_then(|head| Vec::from_slice(head).ok());
        let payload = match payload {
            Outgoing::None => None,
            Outgoing::At { mem, bytes, .. } => Some((mem, bytes)),
            // This link has no windows, so nobody has written into one.
            Outgoing::Put => return Err(LinkError::Closed),
        };
        let head = head.ok_or(LinkError::Garbage)?;
        let frame = Outbound { head, payload, token, done: 0, cut: false };
        // The caller has asked for room.
        self.out.push_back(frame).map_err(|_| LinkError::Closed)
    }

    /// Moves frames into the machine as far as there is room.
    pub(crate) fn fill(&mut self, bytes: &mut impl Bytes<Mem = M>) {
        while let Some(frame) = self.out.front_mut() {
            let end = if frame.cut { frame.done } else { frame.len() };
            while frame.done < end || frame.cut {
                let len = (end - frame.done).min(Self::PIECE);
                // SAFETY: payload is valid until its completion or withdrawal.
                let put = |room: &mut [u8]| unsafe { frame.piece(bytes, room) };
                if self.arq.send_with(len, put).is_err() {
                    return;
                }
                frame.done += len;
                frame.cut = false;
            }
            let Some(frame) = self.out.pop_front() else { return };
            self.complete(&frame);
        }
    }

    pub(crate) fn is_sending(&self) -> bool {
        !self.out.is_empty()
    }

    /// The memory of a frame is free.
    fn complete(&mut self, frame: &Outbound<M>) {
        if frame.payload.is_some() {
            // `has_room` has kept a place for it.
            let _ = self.sent.push_back(frame.token);
        }
    }

    /// Nothing is sent any more: all memory is free.
    pub(crate) fn free_all(&mut self) {
        while let Some(frame) = self.out.pop_front() {
            self.complete(&frame);
        }
    }

    pub(crate) fn poll_sent(&mut self) -> Option<u32> {
        self.sent.pop_front()
    }

    /// Takes back what has not gone; nothing is said about what has.
    pub(crate) fn withdraw(&mut self) {
        self.sent.clear();
        for _ in 0..self.out.len() {
            let Some(mut frame) = self.out.pop_front() else { return };
            if frame.payload.take().is_some() {
                // The peer waits for the rest of a frame that has begun.
                frame.cut = frame.done > 0;
                if !frame.cut {
                    continue;
                }
            }
            // There is a place: one has just been taken out.
            let _ = self.out.push_back(frame);
        }
    }

    /// The frame at the head, if there is one; `closed` if no more will come.
    pub(crate) fn poll_frame(&mut self, closed: bool) -> Result<Option<Incoming<M>>, LinkError> {
        if self.head.is_none() {
            match self.arq.peek() {
                _ if self.garbage => return Err(LinkError::Garbage),
                Some(message) => match begin(message) {
                    Some(head) => self.head = Some(head),
                    None => return Err(self.give_up()),
                },
                None => self.check_empty(closed)?,
            }
        }
        let incoming = |head: &Head| {
            let data = matches!(head.header.body, Body::Data(_));
            let payload = if data { Arrived::Stream } else { Arrived::None };
            Incoming { header: head.header, payload }
        };
        Ok(self.head.as_ref().map(incoming))
    }

    /// There is no message of one packet: is that for good?
    fn check_empty(&mut self, closed: bool) -> Result<(), LinkError> {
        if self.arq.message_len().is_some() {
            // No end sends messages of several packets.
            return Err(self.give_up());
        }
        match self.broken() {
            Some(error) => Err(error),
            None if closed => Err(LinkError::Closed),
            None => Ok(()),
        }
    }

    fn give_up(&mut self) -> LinkError {
        self.garbage = true;
        self.head = None;
        LinkError::Garbage
    }

    /// Drops the frame at the head, which has no payload.
    pub(crate) fn take(&mut self) {
        if self.head.take().is_some() {
            self.arq.pass();
        }
    }

    /// Receives payload; see [`unisono_driver::Link::receive`].
    ///
    /// # Safety
    /// `into` must be valid for writes of the frame's payload.
    pub(crate) unsafe fn receive(
        &mut self,
        bytes: &mut impl Bytes<Mem = M>,
        into: Option<M>,
        closed: bool,
    ) -> Result<bool, LinkError> {
        let Some(head) = &mut self.head else { return Err(LinkError::Garbage) };
        let want = head.header.payload_len() as usize;
        while let Some(message) = self.arq.peek() {
            if message.is_empty() {
                // Withdrawn.
                self.head = None;
                self.arq.pass();
                return Ok(false);
            }
            let part = message.get(head.skip..).unwrap_or_default();
            if part.len() > want - head.got {
                return Err(self.give_up());
            }
            if let Some(into) = into {
                // SAFETY: the caller's promise, and the part is no longer than what is missing.
                unsafe { bytes.write(into, head.got, part) };
            }
            head.got += part.len();
            head.skip = 0;
            self.arq.pass();
            if head.got == want {
                self.head = None;
                return Ok(true);
            }
        }
        self.check_empty(closed).map(|()| false)
    }
}

impl<M: Copy, const WINDOW: usize, const MTU: usize, const DEPTH: usize> Default
    for Channel<M, WINDOW, MTU, DEPTH>
{
    fn default() -> Self {
        Self::new()
    }
}

/// Reads the header at the start of a frame's first message.
fn begin(message: &[u8]) -> Option<Head> {
    let (header, skip) = frame::decode_head(message).ok()?;
    let more = message.len() - skip;
    let fits = more <= header.payload_len() as usize;
    fits.then_some(Head { header, skip, got: 0 })
}
