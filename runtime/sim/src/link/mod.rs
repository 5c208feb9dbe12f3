//! Three kinds of link, each as its real relatives are: packets, a stream of bytes, spans.

pub mod packet;
pub mod span;
pub mod stream;

use crate::memory::Mem;
use unisono_core::wire::frame::Header;
use unisono_driver::{Incoming, Link, LinkCaps, LinkError, Outgoing};

/// Calls in flight on a member, and so channels of a link.
pub const CHANNELS: usize = 4;

/// What two members are linked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// Packets that get lost, made reliable.
    Packet,
    /// A stream of bytes that loses nothing, as TCP.
    Stream,
    /// Memory that both can read.
    Span {
        /// Nanoseconds until the other sees what one has written.
        delay_ns: u64,
        /// May the receiver write its answer into the sender's memory?
        puts: bool,
        /// Payloads up to so many bytes ride in the frame.
        inline_max: usize,
    },
}

/// Frames of one channel that a link holds, each way. A peer has at most four frames a chunk of the
/// window under way, and a few control frames.
#[must_use]
pub const fn depth(window: usize) -> usize {
    4 * window + 16
}

/// One member's end of a link.
#[derive(Debug)]
pub enum SimLink {
    /// See [`packet`].
    Packet(packet::PacketLink),
    /// See [`stream`].
    Stream(stream::StreamLink),
    /// See [`span`].
    Span(span::SpanLink),
}

impl SimLink {
    /// This member is gone: memory that it had lent can be read no more.
    pub fn leave(&self) {
        match self {
            Self::Packet(link) => link.leave(),
            Self::Stream(link) => link.leave(),
            Self::Span(link) => link.leave(),
        }
    }
}

macro_rules! on_each {
    ($self:ident, $link:ident => $call:expr) => {
        match $self {
            SimLink::Packet($link) => $call,
            SimLink::Stream($link) => $call,
            SimLink::Span($link) => $call,
        }
    };
}

impl Link for SimLink {
    type Mem = Mem;

    fn caps(&self) -> LinkCaps {
        on_each!(self, link => link.caps())
    }

    fn has_room(&mut self, channel: usize) -> bool {
        on_each!(self, link => link.has_room(channel))
    }

    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<Mem>,
        token: u32,
    ) -> Result<(), LinkError> {
        // SAFETY: the caller's promise.
        on_each!(self, link => unsafe { link.send(channel, header, payload, token) })
    }

    fn poll_sent(&mut self, channel: usize) -> Option<u32> {
        on_each!(self, link => link.poll_sent(channel))
    }

    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<Mem>>, LinkError> {
        on_each!(self, link => link.poll_frame(channel))
    }

    fn take(&mut self, channel: usize) {
        on_each!(self, link => link.take(channel));
    }

    unsafe fn receive(&mut self, channel: usize, into: Option<Mem>) -> Result<bool, LinkError> {
        // SAFETY: the caller's promise.
        on_each!(self, link => unsafe { link.receive(channel, into) })
    }

    fn enter(&mut self, channel: usize, handle: u32) -> bool {
        on_each!(self, link => link.enter(channel, handle))
    }

    fn exit(&mut self, channel: usize, handle: u32, written: bool) {
        on_each!(self, link => link.exit(channel, handle, written));
    }

    fn release(&mut self, channel: usize, handle: u32) {
        on_each!(self, link => link.release(channel, handle));
    }

    fn withdraw(&mut self, channel: usize) -> bool {
        on_each!(self, link => link.withdraw(channel))
    }
}
