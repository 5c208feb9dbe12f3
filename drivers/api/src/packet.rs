//! What a link over packets stands on: something that carries datagrams, and a clock.

use crate::LinkError;
use unisono_core::time::Instant;

/// Carries datagrams to one peer and back.
///
/// Datagrams may get lost, doubled, overtaken or damaged; what arrives whole is at most
/// [`PacketLink::mtu`] bytes long. Nothing blocks.
pub trait PacketLink {
    /// Most bytes of a datagram.
    fn mtu(&self) -> usize;

    /// Is there room for one more datagram now?
    fn has_room(&mut self) -> bool;

    /// Sends a datagram of at most [`PacketLink::mtu`] bytes. Call only after
    /// [`PacketLink::has_room`]. `Ok` does not mean that it will arrive.
    ///
    /// # Errors
    /// If no datagram will ever be carried again.
    fn send(&mut self, datagram: &[u8]) -> Result<(), LinkError>;

    /// Moves the next datagram that has come in to the start of `into`, and returns its length.
    /// One that is longer than `into` counts as lost.
    ///
    /// # Errors
    /// If no datagram will ever come again.
    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, LinkError>;
}

/// A clock that never runs backwards. Its zero is its own affair.
pub trait Clock {
    /// The time now.
    fn now(&self) -> Instant;
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Instant {
        (**self).now()
    }
}
