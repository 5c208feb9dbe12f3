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
