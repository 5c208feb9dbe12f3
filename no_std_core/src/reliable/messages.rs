//! Messages into a channel and out of it.

use super::{RecvError, Reliable, SendError};

impl<const WINDOW: usize, const MTU: usize> Reliable<WINDOW, MTU> {
    /// Length of the longest message that [`Reliable::send`] takes now.
    #[must_use]
    pub const fn send_room(&self) -> usize {
        if self.fault.is_some() { 0 } else { self.sender.free() * Self::FRAGMENT }
    }

    /// Queues a copy of a message; call [`Reliable::poll_transmit`] afterwards.
    ///
    /// # Errors
    /// See [`SendError`]; then nothing has been taken.
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        match self.fault {
            Some(fault) => Err(SendError::Failed(fault)),
            None => self.sender.push(message),
        }
    }

    /// Queues a message of `len` bytes, at most [`Reliable::FRAGMENT`], that `fill` writes where it
    /// is kept until the peer has it: for callers that would have to put it together first.
    ///
    /// # Errors
    /// See [`SendError`]; then `fill` has not been called.
    pub fn send_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        match self.fault {
            Some(fault) => Err(SendError::Failed(fault)),
            None => self.sender.push_with(len, fill),
        }
    }

    /// The next message where it lies, if it is whole and came in one packet; [`Reliable::pass`]
    /// drops it. A longer one can only be taken by [`Reliable::recv`].
    #[must_use]
    pub fn peek(&self) -> Option<&[u8]> {
        self.receiver.peek()
    }

    /// Drops the message that [`Reliable::peek`] shows; does nothing if it shows none.
    ///
    /// Call [`Reliable::poll_transmit`] afterwards, as after [`Reliable::recv`].
    pub fn pass(&mut self) {
        self.receiver.pass();
        self.ack_due |= self.receiver.has_news();
    }

    /// Length of the next message, once it is whole.
    #[must_use]
    pub fn message_len(&self) -> Option<usize> {
        self.receiver.message_len()
    }

    /// Moves the next message to the start of `out`; returns its length.
    ///
    /// Call [`Reliable::poll_transmit`] afterwards: the peer may be waiting for the room.
    ///
    /// # Errors
    /// See [`RecvError`]; then nothing has changed.
    pub fn recv(&mut self, out: &mut [u8]) -> Result<usize, RecvError> {
        let len = self.receiver.take(out)?;
        self.ack_due |= self.receiver.has_news();
        Ok(len)
    }
}
