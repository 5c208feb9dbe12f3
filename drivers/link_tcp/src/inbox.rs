//! What a channel receives: bytes that were read ahead, and the frame at the head.

use crate::segment::{CUT, MORE, Place, WHOLE, place};
use rustix::io::Errno;
use std::io::IoSliceMut;
use std::net::TcpStream;
use unisono_core::wire::PREFIX;
use unisono_core::wire::frame::{self, Body, HEADER_MAX, Header};
use unisono_driver::{Arrived, HostMemory, Incoming, LinkError};

/// Bytes that are read ahead.
const AHEAD: usize = 8 << 10;

/// The frame at the head of what has come in.
#[derive(Debug)]
struct Head {
    header: Header,
    /// Position in its payload as it lies in the stream.
    at: u64,
}

/// What is known of a stream's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    /// There may be bytes to read.
    Open,
    /// In this round it has given less than it was asked for.
    Dry,
    Over(LinkError),
}

#[derive(Debug)]
pub(crate) struct Inbox {
    ahead: Box<[u8; AHEAD]>,
    /// What of it has been read and not used.
    start: usize,
    end: usize,
    head: Option<Head>,
    stream: Stream,
    /// Somebody has asked in vain since the round began.
    wanted: bool,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        let ahead = Box::new([0; AHEAD]);
        Self { ahead, start: 0, end: 0, head: None, stream: Stream::Open, wanted: false }
    }

    /// From now on the stream may be asked again.
    pub(crate) fn begin_round(&mut self) {
        self.wanted = false;
        if self.stream == Stream::Dry {
            self.stream = Stream::Open;
        }
    }

    /// Was something asked for since the round began that has not come yet?
    pub(crate) const fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// The peer sends nothing more, or nothing that makes sense.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.stream, Stream::Over(_))
    }

    /// Bytes that were read ahead.
    fn ready(&self) -> &[u8] {
        self.ahead.get(self.start..self.end).unwrap_or_default()
    }

    /// The frame at the head, if all of its header has come.
    pub(crate) fn poll_frame<M>(
        &mut self,
        stream: &TcpStream,
    ) -> Result<Option<Incoming<M>>, LinkError> {
        while self.head.is_none() {
            if self.stream == Stream::Over(LinkError::Garbage) {
                return Err(LinkError::Garbage);
            }
            match begin(self.ready()) {
                Err(_) => return Err(self.end(LinkError::Garbage)),
                Ok(Some((header, len))) => {
                    self.start += len;
                    self.head = Some(Head { header, at: 0 });
                }
                Ok(None) if self.read(stream, &mut [])? == 0 => return Ok(None),
                Ok(None) => {}
            }
        }
        let incoming = |head: &Head| {
            let data = matches!(head.header.body, Body::Data(_));
            let payload = if data { Arrived::Stream } else { Arrived::None };
            Incoming { header: head.header, payload }
        };
        Ok(self.head.as_ref().map(incoming))
    }

    /// Drops the frame at the head, if it has no payload to be received.
    pub(crate) fn take(&mut self) {
        self.head.take_if(|head| !matches!(head.header.body, Body::Data(_)));
    }

    /// Receives payload; see [`unisono_driver::Link::receive`].
    ///
    /// # Safety
    /// `into` must be valid for writes of the frame's payload.
    pub(crate) unsafe fn receive<M: HostMemory>(
        &mut self,
        stream: &TcpStream,
        into: Option<M>,
    ) -> Result<bool, LinkError> {
        loop {
            let Some(head) = &self.head else { return Err(LinkError::Garbage) };
            let Some(now) = place(head.at, head.header.payload_len().into()) else {
                // Nothing was to come.
                self.head = None;
                return Ok(true);
            };
            let to = into.map(|into| into.as_ptr().wrapping_add((now.start + now.off) as usize));
            if self.ready().is_empty() {
                // Straight to where it belongs, and what follows into the room for reading ahead.
                let place: &mut [u8] = match to {
                    Some(to) if now.off < now.len => {
                        let len = (now.len - now.off) as usize;
                        // SAFETY: the caller's promise; the place is within the payload.
                        unsafe { std::slice::from_raw_parts_mut(to, len) }
                    }
                    _ => &mut [],
                };
                let placed = self.read(stream, place)?;
                self.advance(placed.min(place.len()) as u64);
                if placed == 0 {
                    return Ok(false);
                }
            } else if now.off < now.len {
                let part = self.ready();
                let part = part.get(..(now.len - now.off) as usize).unwrap_or(part);
                let len = part.len();
                if let Some(to) = to {
                    // SAFETY: the caller's promise; the part is no longer than what is missing.
                    unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to, len) };
                }
                self.start += len;
                self.advance(len as u64);
            } else if let Some(over) = self.mark(now)? {
                return Ok(over);
            }
        }
    }

    fn advance(&mut self, bytes: u64) {
        if let Some(head) = &mut self.head {
            head.at += bytes;
        }
    }

    /// Uses up the mark behind a segment: whether the frame is over, and whole.
    fn mark(&mut self, now: Place) -> Result<Option<bool>, LinkError> {
        let mark = self.ready().first().copied();
        self.start += 1;
        match mark {
            Some(MORE) if !now.last => {
                if let Some(head) = &mut self.head {
                    head.at = now.next();
                }
                return Ok(None);
            }
            Some(WHOLE) if now.last => self.head = None,
            Some(CUT) => self.head = None,
            _ => return Err(self.end(LinkError::Garbage)),
        }
        Ok(Some(mark == Some(WHOLE)))
    }

    /// Nothing follows that could be used, so the frame at the head, if any, never gets whole.
    const fn end(&mut self, why: LinkError) -> LinkError {
        self.head = None;
        self.stream = Stream::Over(why);
        why
    }

    /// Reads into `place`, then ahead; 0 if nothing is there now.
    fn read(&mut self, stream: &TcpStream, place: &mut [u8]) -> Result<usize, LinkError> {
        match self.stream {
            Stream::Open => {}
            Stream::Dry => {
                self.wanted = true;
                return Ok(0);
            }
            Stream::Over(error) => return Err(error),
        }
        if self.start > AHEAD - HEADER_MAX || self.start == self.end {
            self.ahead.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let room = self.ahead.get_mut(self.end..).unwrap_or_default();
        let (first, all) = (place.len(), place.len() + room.len());
        let read = if first == 0 {
            rustix::io::read(stream, room)
        } else {
            rustix::io::readv(stream, &mut [IoSliceMut::new(place), IoSliceMut::new(room)])
        };
        match read {
            Ok(0) => Err(self.end(LinkError::Closed)),
            Ok(bytes) => {
                self.end += bytes.saturating_sub(first);
                if bytes < all {
                    self.stream = Stream::Dry;
                }
                Ok(bytes)
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::NOMEM | Errno::NOBUFS) => {
                self.stream = Stream::Dry;
                self.wanted = true;
                Ok(0)
            }
            Err(_) => Err(self.end(LinkError::Closed)),
        }
    }
}

/// Reads the header at the start of `bytes`; `None` if it has not all come.
fn begin(bytes: &[u8]) -> Result<Option<(Header, usize)>, LinkError> {
    let Some(prefix) = bytes.first_chunk::<PREFIX>() else { return Ok(None) };
    let len = frame::head_len(*prefix).map_err(|_| LinkError::Garbage)?;
    if len > HEADER_MAX {
        return Err(LinkError::Garbage);
    }
    match bytes.get(..len) {
        Some(head) => frame::decode_head(head).map(Some).map_err(|_| LinkError::Garbage),
        None => Ok(None),
    }
}
