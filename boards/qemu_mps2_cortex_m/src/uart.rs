//! The UARTs of Arm's Cortex-M System Design Kit: one byte each way, polled.

use core::convert::Infallible;
use embedded_io::{ErrorType, Read, ReadReady, Write, WriteReady};

/// Base addresses of the UARTs of an AN386.
pub const UART0: usize = 0x4000_4000;
/// The second one.
pub const UART1: usize = 0x4000_5000;
/// The third one.
pub const UART2: usize = 0x4000_6000;

const DATA: usize = 0x0;
const STATE: usize = 0x4;
const CTRL: usize = 0x8;
const BAUDDIV: usize = 0x10;
/// In STATE: the one byte of the buffer is taken.
const OUT_FULL: u32 = 1;
const IN_FULL: u32 = 2;
/// In CTRL: both directions are on.
const ENABLE: u32 = 3;
/// 25 MHz / 217 = 115 200 Bd.
const DIVIDER: u32 = 217;

/// One UART.
#[derive(Debug)]
pub struct Uart {
    base: usize,
}

impl Uart {
    /// Takes a UART and turns it on.
    ///
    /// # Safety
    /// `base` is one of this module's addresses, and nothing else uses this UART.
    #[must_use]
    pub unsafe fn new(base: usize) -> Self {
        let uart = Self { base };
        uart.set(BAUDDIV, DIVIDER);
        uart.set(CTRL, ENABLE);
        uart
    }

    fn get(&self, register: usize) -> u32 {
        // SAFETY: a register of the device that `new` was promised.
        unsafe { ((self.base + register) as *const u32).read_volatile() }
    }

    fn set(&self, register: usize, value: u32) {
        // SAFETY: a register of the device that `new` was promised.
        unsafe { ((self.base + register) as *mut u32).write_volatile(value) }
    }

    fn has_input(&self) -> bool {
        self.get(STATE) & IN_FULL != 0
    }

    fn has_room(&self) -> bool {
        self.get(STATE) & OUT_FULL == 0
    }
}

impl ErrorType for Uart {
    type Error = Infallible;
}

impl ReadReady for Uart {
    fn read_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.has_input())
    }
}

impl Read for Uart {
    /// What is there, at most `into`; waits for nothing.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Infallible> {
        let mut len = 0;
        while let Some(place) = into.get_mut(len).filter(|_| self.has_input()) {
            *place = self.get(DATA) as u8;
            len += 1;
        }
        Ok(len)
    }
}

impl WriteReady for Uart {
    fn write_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.has_room())
    }
}

impl Write for Uart {
    /// What there is room for; waits for nothing.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        let mut len = 0;
        while let Some(&byte) = bytes.get(len).filter(|_| self.has_room()) {
            self.set(DATA, byte.into());
            len += 1;
        }
        Ok(len)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        while !self.has_room() {}
        Ok(())
    }
}
