//! One of two links, for members whose peers are reached in different ways.

use crate::link::{Incoming, Link, LinkCaps, LinkError, Outgoing};
use unisono_core::wire::frame::Header;

/// A link of one kind or of another.
#[derive(Debug)]
pub enum Either<A, B> {
    /// Of the first kind.
    A(A),
    /// Of the second kind.
    B(B),
}

/// The same call on whichever it is.
macro_rules! on {
    ($self:ident, $link:ident => $call:expr) => {
        match $self {
            Self::A($link) => $call,
            Self::B($link) => $call,
        }
    };
}

impl<A: Link, B: Link<Mem = A::Mem>> Link for Either<A, B> {
    type Mem = A::Mem;

    fn caps(&self) -> LinkCaps {
        on!(self, link => link.caps())
    }

    fn poll(&mut self) {
        on!(self, link => link.poll());
    }

    fn has_room(&mut self, channel: usize) -> bool {
        on!(self, link => link.has_room(channel))
    }

    fn copies(&mut self, channel: usize, bytes: usize) -> bool {
        on!(self, link => link.copies(channel, bytes))
    }

    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<Self::Mem>,
        token: u32,
    ) -> Result<(), LinkError> {
        // SAFETY: the caller's promise is passed on.
        on!(self, link => unsafe { link.send(channel, header, payload, token) })
    }

    fn poll_sent(&mut self, channel: usize) -> Option<u32> {
        on!(self, link => link.poll_sent(channel))
    }

    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<Self::Mem>>, LinkError> {
        on!(self, link => link.poll_frame(channel))
    }

    fn take(&mut self, channel: usize) {
        on!(self, link => link.take(channel));
    }

    unsafe fn receive(
        &mut self,
        channel: usize,
        into: Option<Self::Mem>,
    ) -> Result<bool, LinkError> {
        // SAFETY: the caller's promise is passed on.
        on!(self, link => unsafe { link.receive(channel, into) })
    }

    fn enter(&mut self, channel: usize, handle: u32) -> bool {
        on!(self, link => link.enter(channel, handle))
    }

    fn exit(&mut self, channel: usize, handle: u32, written: bool) {
        on!(self, link => link.exit(channel, handle, written));
    }

    fn release(&mut self, channel: usize, handle: u32) {
        on!(self, link => link.release(channel, handle));
    }

    fn withdraw(&mut self, channel: usize) -> bool {
        on!(self, link => link.withdraw(channel))
    }
}
