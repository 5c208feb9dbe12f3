//! What a channel sends: frames that are not all in the system's hands yet.

use crate::segment::{CUT, MORE, SEGMENT, WHOLE, place};
use heapless::{Deque, Vec};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::IoSlice;
use std::net::TcpStream;
use unisono_core::wire::frame::{self, HEADER_MAX, Header};
use unisono_driver::{HostMemory, LinkError, Outgoing};

/// Payloads up to this many bytes are copied behind their header.
pub(crate) const INLINE: usize = 256;

/// Frames of a channel that wait to be sent, or to be reported as sent.
const DEPTH: usize = 32;

/// Pieces of memory in one system call.
const PIECES: usize = 32;

/// What is sent instead of memory that has been taken back.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

type Pieces<'a> = Vec<IoSlice<'a>, PIECES>;

/// A payload that is sent from where it lies.
#[derive(Debug)]
enum Payload<M> {
    /// None, or it is in the head.
    None,
    /// The owner's memory, and what its completion says.
    Lent { mem: M, bytes: u64, token: u32 },
    /// It was taken back when a part had gone: the stream up to `end` is still owed.
    Cut { bytes: u64, end: u64 },
}

#[derive(Debug)]
struct Frame<M> {
    /// Header, and a small payload with its mark.
    head: Vec<u8, { HEADER_MAX + INLINE + 1 }>,
    payload: Payload<M>,
    /// Bytes, marks included, that the system has taken.
    done: u64,
}

impl<M: HostMemory> Frame<M> {
    /// A frame with the payload still to be added.
    fn new(header: &Header) -> Option<Self> {
        let mut room = [0; HEADER_MAX];
        let len = frame::encode_head(header, &mut room).ok()?;
        let head = Vec::from_slice(room.get(..len)?).ok()?;
        Some(Self { head, payload: Payload::None, done: 0 })
    }

    /// Position in the payload, as it lies in the stream.
    fn at(&self) -> u64 {
        self.done.saturating_sub(self.head.len() as u64)
    }

    /// Bytes in the stream.
    fn len(&self) -> u64 {
        let body = match self.payload {
            Payload::None => 0,
            Payload::Lent { bytes, .. } => bytes + bytes.div_ceil(SEGMENT),
            Payload::Cut { end, .. } => end,
        };
        self.head.len() as u64 + body
    }

    /// Adds what is left of the frame to `to`; false if that is full.
    fn pieces<'a>(&'a self, to: &mut Pieces<'a>) -> bool {
        let head = self.head.get(self.done as usize..).unwrap_or_default();
        if !head.is_empty() && to.push(IoSlice::new(head)).is_err() {
            return false;
        }
        let (bytes, end) = match self.payload {
            Payload::None => return true,
            Payload::Lent { bytes, .. } => (bytes, u64::MAX),
            Payload::Cut { bytes, end } => (bytes, end),
        };
        let mut at = self.at();
        while at < end
            && let Some(p) = place(at, bytes)
        {
            let mark: &[u8] = match self.payload {
                Payload::Cut { .. } => &[CUT],
                _ if p.last => &[WHOLE],
                _ => &[MORE],
            };
            let left = (p.len - p.off) as usize;
            let (piece, step) = match self.payload {
                _ if left == 0 => (mark, p.next() - at),
                Payload::Lent { mem, .. } => {
                    let from = mem.as_ptr().wrapping_add((p.start + p.off) as usize);
                    // SAFETY: lent and unchanged until its completion or withdrawal, and the place
                    // is within.
                    (unsafe { std::slice::from_raw_parts(from, left) }, left as u64)
                }
                _ => {
                    let zeros = ZEROS.get(..left.min(ZEROS.len())).unwrap_or_default();
                    (zeros, zeros.len() as u64)
                }
            };
            if to.push(IoSlice::new(piece)).is_err() {
                return false;
            }
            at += step;
        }
        true
    }
}

/// Frames on their way out, and completions that wait to be asked for.
#[derive(Debug)]
pub(crate) struct Outbox<M> {
    frames: Deque<Frame<M>, DEPTH>,
    sent: Deque<u32, DEPTH>,
}

impl<M: HostMemory> Outbox<M> {
    pub(crate) const fn new() -> Self {
        Self { frames: Deque::new(), sent: Deque::new() }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.frames.len() + self.sent.len() < DEPTH
    }

    /// Is there anything that the system has not taken?
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Bytes that the system has not taken.
    pub(crate) fn left(&self) -> u64 {
        self.frames.iter().map(|frame| frame.len() - frame.done).sum()
    }

    /// Adds a frame and sends it, if none waits before it.
    ///
    /// # Safety
    /// As [`unisono_driver::Link::send`].
    pub(crate) unsafe fn send(
        &mut self,
        stream: &TcpStream,
        header: &Header,
        payload: Outgoing<M>,
        token: u32,
    ) -> Result<(), LinkError> {
        let waiting = !self.is_empty();
        let mut frame = Frame::new(header).ok_or(LinkError::Garbage)?;
        let mut small = false;
        match payload {
            Outgoing::None if header.payload_len() == 0 => {}
            // A frame that does not say how long it is could not be read.
            Outgoing::At { bytes, .. } if bytes as u64 != u64::from(header.payload_len()) => {
                return Err(LinkError::Garbage);
            }
            Outgoing::At { mem, bytes, .. } if bytes <= INLINE => {
                small = true;
                if bytes > 0 {
                    // SAFETY: the caller's promise.
                    let from = unsafe { std::slice::from_raw_parts(mem.as_ptr(), bytes) };
                    // There is room for both.
                    let _ = frame.head.extend_from_slice(from);
                    let _ = frame.head.push(WHOLE);
                }
            }
            Outgoing::At { mem, bytes, .. } => {
                frame.payload = Payload::Lent { mem, bytes: bytes as u64, token };
            }
            // This link has no windows, so nobody has written into one.
            Outgoing::None | Outgoing::Put => return Err(LinkError::Garbage),
        }
        // The caller has asked for room.
        self.frames.push_back(frame).map_err(|_| LinkError::Closed)?;
        if !waiting && let Err(error) = self.flush(stream) {
            // No completion follows for what could not be sent.
            self.frames.clear();
            return Err(error);
        }
        if small {
            // `has_room` has kept a place for it.
            let _ = self.sent.push_back(token);
        }
        Ok(())
    }

    /// Gives the system what it takes now.
    pub(crate) fn flush(&mut self, stream: &TcpStream) -> Result<(), LinkError> {
        while !self.is_empty() {
            let mut pieces = Pieces::new();
            let _ = self.frames.iter().all(|frame| frame.pieces(&mut pieces));
            let all: usize = pieces.iter().map(|piece| piece.len()).sum();
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let sent = sendmsg(stream, &pieces, &mut SendAncillaryBuffer::default(), flags);
            drop(pieces);
            match sent {
                Ok(taken) => {
                    self.advance(taken as u64);
                    if taken < all {
                        return Ok(());
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return Ok(()),
                Err(_) => return Err(LinkError::Closed),
            }
        }
        Ok(())
    }

    /// The system has taken so many bytes.
    fn advance(&mut self, mut taken: u64) {
        while let Some(frame) = self.frames.front_mut() {
            let step = taken.min(frame.len() - frame.done);
            frame.done += step;
            taken -= step;
            if frame.done < frame.len() {
                return;
            }
            self.pop();
        }
    }

    /// The first frame is over: its memory is free.
    fn pop(&mut self) {
        if let Some(Frame { payload: Payload::Lent { token, .. }, .. }) = self.frames.pop_front() {
            // `has_room` has kept a place for it.
            let _ = self.sent.push_back(token);
        }
    }

    /// Nothing is sent any more: all memory is free.
    pub(crate) fn free_all(&mut self) {
        while !self.is_empty() {
            self.pop();
        }
    }

    pub(crate) fn poll_sent(&mut self) -> Option<u32> {
        self.sent.pop_front()
    }

    /// Takes back all memory; nothing is said any more about what has gone.
    pub(crate) fn withdraw(&mut self) {
        self.sent.clear();
        for _ in 0..self.frames.len() {
            let Some(mut frame) = self.frames.pop_front() else { return };
            if let Payload::Lent { bytes, .. } = frame.payload {
                let now = place(frame.at(), bytes).filter(|_| frame.done > 0);
                let Some(now) = now else { continue };
                // The mark lies behind the last byte of the segment that has begun.
                let end = now.next().min(bytes + bytes.div_ceil(SEGMENT));
                frame.payload = Payload::Cut { bytes, end };
            }
            // There is a place: one has just been taken out.
            let _ = self.frames.push_back(frame);
        }
    }
}
