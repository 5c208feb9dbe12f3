//! What lies between the two sides: fences and a doorbell.

use core::sync::atomic::{Ordering, fence};
use embedded_hal::digital::StatefulOutputPin;

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

/// A bus with a doorbell: a pin, or whatever is driven like one, that is high while there may be
/// something for the other side. Whoever owns the pin lowers it once the other side has taken all;
/// until then, more that is written rings no more.
#[derive(Clone, Copy, Debug, Default)]
pub struct PinBell<B, P> {
    bus: B,
    pin: P,
}

impl<B: Bus, P: StatefulOutputPin> PinBell<B, P> {
    /// Rings with this pin, which is low until then.
    #[must_use]
    pub const fn new(bus: B, pin: P) -> Self {
        Self { bus, pin }
    }
}

impl<B: Bus, P: StatefulOutputPin> Bus for PinBell<B, P> {
    fn publish(&mut self) {
        self.bus.publish();
    }

    fn observe(&mut self) {
        self.bus.observe();
    }

    fn ring(&mut self) {
        if self.pin.is_set_high().unwrap_or(false) {
            return;
        }
        // A doorbell may overtake the writes that it announces without a full fence. The other
        // side polls as well, so a pin that fails costs time and nothing else.
        self.bus.publish();
        fence(Ordering::SeqCst);
        let _ = self.pin.set_high();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Area, PipeReader, PipeWriter, Region, Window};
    use core::ptr::NonNull;
    use embedded_hal::digital::OutputPin;
    use embedded_hal_mock::eh1::MockError;
    use embedded_hal_mock::eh1::digital::{Mock, State, Transaction};
    use embedded_io::{Read, Write};
    use std::io::ErrorKind;
    use std::vec;

    /// Once for what is written until it is lowered; a pin that fails is no error of the pipe.
    #[test]
    fn a_pin_rings_once_until_all_is_taken() {
        let [is, set] = [Transaction::get_state, Transaction::set];
        let broken = set(State::High).with_error(MockError::Io(ErrorKind::NotConnected));
        let rings = [is(State::Low), set(State::High), is(State::High)];
        let again = [set(State::Low), is(State::Low), broken];
        let mut pin = Mock::new(&rings.into_iter().chain(again).collect::<vec::Vec<_>>());
        let areas = [Area::ToHost(64)];
        let bytes = Region::needed(&areas).expect("few") as usize;
        let mut memory = vec![0_u64; bytes / 8 + 1];
        let base = NonNull::new(memory.as_mut_ptr().cast()).expect("memory");
        // SAFETY: the memory outlives the window, and is used through it only.
        let region = Region::format(unsafe { Window::new(base, bytes) }, &areas).expect("room");
        let is_it = |area| matches!(area, Area::ToHost(_));
        let bell = PinBell::new(Coherent, pin.clone());
        let mut to = PipeWriter::new(&region, is_it, bell).expect("a pipe");
        let mut from = PipeReader::new(&region, is_it, Coherent).expect("a pipe");
        let mut read = [0; 4];
        assert_eq!(to.is_taken(), Ok(true));
        for part in [&b"on"[..], b"ce"] {
            assert_eq!(to.write(part).expect("room"), 2);
            assert_eq!(to.is_taken(), Ok(false));
        }
        assert_eq!(from.read(&mut read).expect("sound"), 4);
        assert_eq!((&read, to.is_taken()), (b"once", Ok(true)));
        pin.set_low().expect("it works");
        assert_eq!(to.write(b"!").expect("room"), 1);
        pin.done();
    }
}
