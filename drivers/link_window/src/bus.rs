//! What lies between the two sides: fences and a doorbell.

use core::sync::atomic::{Ordering, fence};
use embedded_hal::digital::OutputPin;

/// One side's way to the window. The defaults are right where both sides are cores with coherent
/// caches; a board whose window lies further out brings its own fences.
pub trait Bus {
    /// Everything written before is there before what is written after.
    fn publish(&mut self) {
        fence(Ordering::Release);
    }

    /// Nothing that is read after was read before what was read before.
    fn observe(&mut self) {
        fence(Ordering::Acquire);
    }

    /// Wakes the other side, if it can be woken; otherwise it polls.
    fn ring(&mut self) {}
}

/// Coherent memory, both sides poll.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coherent;

impl Bus for Coherent {}

/// Coherent memory and a doorbell: a pulse on a pin, or on whatever is driven like one.
///
/// For boards whose host can be woken: no machine of QEMU's has a pin that ends at the host, so the
/// boards here have both sides poll.
#[derive(Clone, Copy, Debug)]
pub struct PinBell<P>(P);

impl<P: OutputPin> PinBell<P> {
    /// Rings with this pin, which is low until then.
    #[must_use]
    pub const fn new(pin: P) -> Self {
        Self(pin)
    }

    /// Gives the pin back.
    #[must_use]
    pub fn into_pin(self) -> P {
        self.0
    }
}

impl<P: OutputPin> Bus for PinBell<P> {
    fn ring(&mut self) {
        // A doorbell may overtake the writes that it announces without a full fence. The other
        // side polls as well, so a pin that fails costs time and nothing else.
        fence(Ordering::SeqCst);
        let _ = self.0.set_high().and_then(|()| self.0.set_low());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Area, PipeReader, PipeWriter, Region, Window};
    use core::ptr::NonNull;
    use embedded_hal_mock::eh1::MockError;
    use embedded_hal_mock::eh1::digital::{Mock, State, Transaction};
    use embedded_io::{Read, Write};
    use std::io::ErrorKind;
    use std::vec;

    /// A pulse for each write and none otherwise; a pin that fails is no error of the pipe.
    #[test]
    fn a_pin_rings_once_for_what_is_written() {
        let set = |level| Transaction::set(level);
        let broken = set(State::High).with_error(MockError::Io(ErrorKind::NotConnected));
        let pulses = [State::High, State::Low, State::High, State::Low].map(set);
        let mut pin = Mock::new(&pulses.into_iter().chain([broken]).collect::<vec::Vec<_>>());
        let areas = [Area::ToHost(64)];
        let bytes = Region::needed(&areas).expect("few") as usize;
        let mut memory = vec![0_u64; bytes / 8 + 1];
        let base = NonNull::new(memory.as_mut_ptr().cast()).expect("memory");
        // SAFETY: the memory outlives the window, and is used through it only.
        let region = Region::format(unsafe { Window::new(base, bytes) }, &areas).expect("room");
        let is_it = |area| matches!(area, Area::ToHost(_));
        let mut to = PipeWriter::new(&region, is_it, PinBell::new(pin.clone())).expect("a pipe");
        let mut from = PipeReader::new(&region, is_it, Coherent).expect("a pipe");
        let mut read = [0; 6];
        for part in [&b"on"[..], b"ce", b"!!"] {
            assert_eq!(to.write(part).expect("room"), 2);
        }
        assert_eq!(from.read(&mut read).expect("sound"), 6);
        assert_eq!(&read, b"once!!");
        pin.done();
    }
}
