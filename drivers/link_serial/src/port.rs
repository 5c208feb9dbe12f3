//! A port of a line that several links share.

use crate::Line;
use core::cell::RefCell;
use embedded_io::{Read, ReadReady, Write, WriteReady};
use unisono_driver::{LinkError, PacketLink};

/// A line that several ports use: a reference to a cell in firmware, a mutex between threads.
pub trait Share<IO, const LINE: usize, const INBOX: usize> {
    /// Uses the line; `None` if it is gone.
    fn with<R>(&self, f: impl FnOnce(&mut Line<IO, LINE, INBOX>) -> R) -> Option<R>;
}

impl<IO, const LINE: usize, const INBOX: usize> Share<IO, LINE, INBOX>
    for &RefCell<Line<IO, LINE, INBOX>>
{
    fn with<R>(&self, f: impl FnOnce(&mut Line<IO, LINE, INBOX>) -> R) -> Option<R> {
        self.try_borrow_mut().ok().map(|mut line| f(&mut line))
    }
}

#[cfg(feature = "std")]
impl<IO, const LINE: usize, const INBOX: usize> Share<IO, LINE, INBOX>
    for std::sync::Arc<std::sync::Mutex<Line<IO, LINE, INBOX>>>
{
    fn with<R>(&self, f: impl FnOnce(&mut Line<IO, LINE, INBOX>) -> R) -> Option<R> {
        self.lock().ok().map(|mut line| f(&mut line))
    }
}

/// One port of a line. It is open as long as this lives.
#[derive(Debug)]
pub struct Port<S: Share<IO, LINE, INBOX>, IO, const LINE: usize, const INBOX: usize> {
    line: S,
    number: u8,
    io: core::marker::PhantomData<fn() -> IO>,
}

impl<S: Share<IO, LINE, INBOX>, IO, const LINE: usize, const INBOX: usize>
    Port<S, IO, LINE, INBOX>
{
    /// Opens a port, a number below [`crate::PORTS`]. Each number is opened once at a time.
    pub fn open(line: S, number: u8) -> Self {
        let _ = line.with(|line| line.set_open(number, true));
        Self { line, number, io: core::marker::PhantomData }
    }
}

impl<S: Share<IO, LINE, INBOX>, IO, const LINE: usize, const INBOX: usize> Drop
    for Port<S, IO, LINE, INBOX>
{
    fn drop(&mut self) {
        let _ = self.line.with(|line| line.set_open(self.number, false));
    }
}

impl<S, IO, const LINE: usize, const INBOX: usize> PacketLink for Port<S, IO, LINE, INBOX>
where
    S: Share<IO, LINE, INBOX>,
    IO: Read + ReadReady + Write + WriteReady,
{
    fn mtu(&self) -> usize {
        self.line.with(|line| line.mtu()).unwrap_or(0)
    }

    fn has_room(&mut self) -> bool {
        // Sending into a line that is gone says so.
        self.line.with(|line| line.has_room() || line.is_closed()).unwrap_or(true)
    }

    fn send(&mut self, datagram: &[u8]) -> Result<(), LinkError> {
        self.line.with(|line| line.send(self.number, datagram)).ok_or(LinkError::Closed)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        let receive = |line: &mut Line<IO, LINE, INBOX>| match line.receive(self.number, into) {
            None if line.is_closed() => Err(LinkError::Closed),
            received => Ok(received),
        };
        self.line.with(receive).unwrap_or(Err(LinkError::Closed))
    }
}
