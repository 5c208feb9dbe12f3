//! A link over packets to one peer: one frame is one message of a reliable channel.

use crate::{FRAGMENTS, MTU};
use core::cell::{RefCell, RefMut};
use heapless::Deque;
use unisono_core::reliable::{Config, Reliable, Side};
use unisono_core::time::Instant;
use unisono_core::wire::TRAILER;
use unisono_core::wire::frame::{self, Header, OVERHEAD_MAX};
use unisono_driver::{Arrived, HostMemory, HostPtr, Incoming, Link, LinkCaps, LinkError, Outgoing};

/// Most bytes of a chunk.
pub const PAYLOAD_MAX: usize = 1024;
const FRAME_MAX: usize = PAYLOAD_MAX + OVERHEAD_MAX;
const _: () = assert!(FRAME_MAX <= Reliable::<FRAGMENTS, MTU>::MESSAGE_MAX);

/// What link and main loop share: the channel and the frame at its head.
pub struct End {
    channel: Reliable<FRAGMENTS, MTU>,
    frame: [u8; FRAME_MAX],
    /// Bytes of the frame, and what its header says.
    head: Option<(usize, Header)>,
    /// Payloads that have been copied, to be reported.
    sent: Deque<u32, 4>,
}

impl End {
    /// The end of `rank` of the channel to `peer`.
    #[must_use]
    pub const fn new(session: u32, rank: u16, peer: u16) -> Self {
        Self {
            channel: Reliable::new(Config::new(session, Side::of(rank, peer))),
            frame: [0; FRAME_MAX],
            head: None,
            sent: Deque::new(),
        }
    }

    /// A packet has come in.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8]) {
        self.channel.handle_packet(now, packet);
    }

    /// Writes the next packet to send, if there is one; returns its length.
    pub fn poll_transmit(&mut self, now: Instant, packet: &mut [u8; MTU]) -> Option<usize> {
        self.channel.handle_timeout(now);
        self.channel.poll_transmit(now, packet)
    }

    /// When [`End::poll_transmit`] has to be asked, if nothing happens before.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.channel.poll_timeout()
    }

    fn send(&mut self, header: &Header, payload: &[u8]) -> Result<(), LinkError> {
        let mut frame = [0; FRAME_MAX];
        let len = frame::encode(header, payload, &mut frame).map_err(|_| LinkError::Closed)?;
        let message = frame.get(..len).ok_or(LinkError::Closed)?;
        self.channel.send(message).map_err(|_| LinkError::Closed)
    }

    fn poll_frame(&mut self) -> Result<Option<Header>, LinkError> {
        if self.head.is_none() {
            if self.channel.message_len().is_none() {
                return if self.channel.fault().is_some() {
                    Err(LinkError::Closed)
                } else {
                    Ok(None)
                };
            }
            let garbage = |_| LinkError::Garbage;
            let len = self.channel.recv(&mut self.frame).map_err(|_| LinkError::Garbage)?;
            let bytes = self.frame.get(..len).ok_or(LinkError::Garbage)?;
            let (header, _) = frame::decode(bytes).map_err(garbage)?;
            self.head = Some((len, header));
        }
        Ok(self.head.as_ref().map(|(_, header)| *header))
    }

    /// The bytes of the head frame, which is taken away.
    fn payload(&mut self) -> Option<&[u8]> {
        let (len, header) = self.head.take()?;
        let end = len.checked_sub(TRAILER)?;
        self.frame.get(end.checked_sub(header.payload_len() as usize)?..end)
    }
}

/// The engine's side of an [`End`]. It has one channel and copies payloads when they are sent.
#[derive(Clone, Copy)]
pub struct PacketLink<'a>(&'a RefCell<End>);

impl<'a> PacketLink<'a> {
    /// A link over this end.
    #[must_use]
    pub const fn new(end: &'a RefCell<End>) -> Self {
        Self(end)
    }

    /// The end; always there, because nobody keeps it.
    fn end(&self) -> Result<RefMut<'a, End>, LinkError> {
        self.0.try_borrow_mut().map_err(|_| LinkError::Closed)
    }
}

impl Link for PacketLink<'_> {
    type Mem = HostPtr;

    fn caps(&self) -> LinkCaps {
        LinkCaps { spans: false, puts: false, inline_max: PAYLOAD_MAX, channels: 1 }
    }

    fn has_room(&mut self, _: usize) -> bool {
        // On a channel that has failed, sending says so.
        self.end().is_ok_and(|end| {
            let room = end.channel.send_room() >= FRAME_MAX && !end.sent.is_full();
            room || end.channel.fault().is_some()
        })
    }

    unsafe fn send(
        &mut self,
        _: usize,
        header: &Header,
        payload: Outgoing<HostPtr>,
        token: u32,
    ) -> Result<(), LinkError> {
        let mut end = self.end()?;
        match payload {
            Outgoing::None => end.send(header, &[]),
            Outgoing::At { mem, bytes, .. } => {
                // SAFETY: the caller's promise.
                let payload = unsafe { core::slice::from_raw_parts(mem.as_ptr(), bytes) };
                end.send(header, payload)?;
                end.sent.push_back(token).map_err(|_| LinkError::Closed)
            }
            // This link offers no windows.
            Outgoing::Put => Err(LinkError::Closed),
        }
    }

    fn poll_sent(&mut self, _: usize) -> Option<u32> {
        self.end().ok()?.sent.pop_front()
    }

    fn poll_frame(&mut self, _: usize) -> Result<Option<Incoming<HostPtr>>, LinkError> {
        let header = self.end()?.poll_frame()?;
        Ok(header.map(|header| {
            let bytes = matches!(header.body, frame::Body::Data(_));
            Incoming { header, payload: if bytes { Arrived::Stream } else { Arrived::None } }
        }))
    }

    fn take(&mut self, _: usize) {
        if let Ok(mut end) = self.end() {
            end.head = None;
        }
    }

    unsafe fn receive(&mut self, _: usize, into: Option<HostPtr>) -> Result<bool, LinkError> {
        let mut end = self.end()?;
        let bytes = end.payload().ok_or(LinkError::Garbage)?;
        if let Some(into) = into {
            // SAFETY: the caller's promise.
            unsafe {
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), into.as_ptr(), bytes.len());
            }
        }
        Ok(true)
    }

    fn enter(&mut self, _: usize, _: u32) -> bool {
        false
    }

    fn exit(&mut self, _: usize, _: u32, _: bool) {}

    fn release(&mut self, _: usize, _: u32) {}

    fn withdraw(&mut self, _: usize) -> bool {
        // Every payload has been copied.
        true
    }
}
