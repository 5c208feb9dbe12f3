//! The board's two user LEDs, as pins.

use core::convert::Infallible;
use embedded_hal::digital::{ErrorType, OutputPin, StatefulOutputPin};

/// The register of the LEDs in the board's FPGA, a bit each.
const LEDS: *mut u32 = 0x4002_8000 as *mut u32;

/// An LED.
#[derive(Debug)]
pub struct Led {
    bit: u32,
    /// What was set; it is dark at the start.
    is_lit: bool,
}

impl Led {
    /// The LED with this number, 0 or 1.
    ///
    /// # Safety
    /// All of them are used by one thread of execution only.
    #[must_use]
    pub const unsafe fn new(number: u8) -> Self {
        Self { bit: 1 << (number & 1), is_lit: false }
    }

    fn change(&self, to: impl Fn(u32) -> u32) {
        // SAFETY: the register is always there; by `new` nobody is between load and store.
        unsafe { LEDS.write_volatile(to(LEDS.read_volatile())) };
    }
}

impl ErrorType for Led {
    type Error = Infallible;
}

impl OutputPin for Led {
    fn set_low(&mut self) -> Result<(), Infallible> {
        self.change(|leds| leds & !self.bit);
        self.is_lit = false;
        Ok(())
    }

    fn set_high(&mut self) -> Result<(), Infallible> {
        self.change(|leds| leds | self.bit);
        self.is_lit = true;
        Ok(())
    }
}

impl StatefulOutputPin for Led {
    fn is_set_high(&mut self) -> Result<bool, Infallible> {
        Ok(self.is_lit)
    }

    fn is_set_low(&mut self) -> Result<bool, Infallible> {
        Ok(!self.is_lit)
    }
}
