//! Pins of the machine's PL061. Bits of the address say which of them a store to its data register
//! changes, so none needs a look at the others.

use core::convert::Infallible;
use embedded_hal::digital::{ErrorType, OutputPin};

/// The device, and its register of directions.
const BASE: usize = 0x0903_0000;
const DIRECTIONS: *mut u32 = (BASE + 0x400) as *mut u32;

/// A pin that is an output.
#[derive(Debug)]
pub struct Pin(u32);

impl Pin {
    /// Pins 4 and 5: the machine itself uses some of the lower ones.
    ///
    /// # Safety
    /// Called once, before anything else uses the device.
    #[must_use]
    pub unsafe fn take_two() -> [Self; 2] {
        let pins = [Self(1 << 4), Self(1 << 5)];
        // SAFETY: a register of the device, which nobody else uses.
        unsafe { DIRECTIONS.write_volatile(DIRECTIONS.read_volatile() | 0b11 << 4) };
        pins
    }

    fn set(&self, bits: u32) {
        let data = (BASE + ((self.0 as usize) << 2)) as *mut u32;
        // SAFETY: a register of the device, for this pin alone.
        unsafe { data.write_volatile(bits) };
    }
}

impl ErrorType for Pin {
    type Error = Infallible;
}

impl OutputPin for Pin {
    fn set_low(&mut self) -> Result<(), Infallible> {
        self.set(0);
        Ok(())
    }

    fn set_high(&mut self) -> Result<(), Infallible> {
        self.set(self.0);
        Ok(())
    }
}
