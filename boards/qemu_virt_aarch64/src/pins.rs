//! Pins of the machine's PL061. Bits of the address say which of them a load or store of its data
//! register is about, so none needs a look at the others. Core 0 alone uses them.

use core::convert::Infallible;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use embedded_hal::digital::{ErrorType, InputPin, OutputPin, StatefulOutputPin};

/// The device.
const BASE: usize = 0x0903_0000;
/// Its registers: directions, which edge or level interrupts (rising edges if the first two have a
/// zero and the third a one), which pins may, which do, and what forgets that they have.
const DIRECTIONS: usize = 0x400;
const LEVELS: usize = 0x404;
const BOTH_EDGES: usize = 0x408;
const RISING: usize = 0x40c;
const MAY: usize = 0x410;
const DO: usize = 0x418;
const FORGET: usize = 0x41c;

/// The machine's power key, which QEMU presses for a tenth of a second at `system_powerdown`.
const DOORBELL: u32 = 1 << 3;
/// The machine itself has nothing on these.
const STATUS: u8 = 1 << 4;
const ATTENTION: u8 = 1 << 5;

fn load(register: usize) -> u32 {
    // SAFETY: a register of the device.
    unsafe { ((BASE + register) as *const u32).read_volatile() }
}

fn store(register: usize, value: u32) {
    // SAFETY: a register of the device; none of them touches memory.
    unsafe { ((BASE + register) as *mut u32).write_volatile(value) };
}

/// Makes outputs of status and attention. Before that they are none, and stay low.
pub fn set_up() {
    store(DIRECTIONS, u32::from(STATUS | ATTENTION));
}

/// Has the device interrupt when the doorbell is rung.
pub fn listen() {
    for register in [LEVELS, BOTH_EDGES] {
        store(register, load(register) & !DOORBELL);
    }
    store(RISING, load(RISING) | DOORBELL);
    store(FORGET, DOORBELL);
    store(MAY, DOORBELL);
}

/// Has the doorbell interrupted since this was last asked?
pub fn has_woken() -> bool {
    let woken = load(DO) & DOORBELL != 0;
    if woken {
        store(FORGET, DOORBELL);
    }
    woken
}

/// What the outputs are set to: asking the device takes longer.
static SET: AtomicU8 = AtomicU8::new(0);

/// An output; it may have more than one user.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output<const BIT: u8>;

/// High while the board is in a group.
pub type Status = Output<STATUS>;
/// High while there is something for the host.
pub type Attention = Output<ATTENTION>;

impl<const BIT: u8> Output<BIT> {
    fn set(set: u8) {
        store(usize::from(BIT) << 2, set.into());
        SET.store(SET.load(Relaxed) & !BIT | set, Relaxed);
    }
}

impl<const BIT: u8> ErrorType for Output<BIT> {
    type Error = Infallible;
}

impl<const BIT: u8> OutputPin for Output<BIT> {
    fn set_low(&mut self) -> Result<(), Infallible> {
        Self::set(0);
        Ok(())
    }

    fn set_high(&mut self) -> Result<(), Infallible> {
        Self::set(BIT);
        Ok(())
    }
}

impl<const BIT: u8> StatefulOutputPin for Output<BIT> {
    fn is_set_high(&mut self) -> Result<bool, Infallible> {
        Ok(SET.load(Relaxed) & BIT != 0)
    }

    fn is_set_low(&mut self) -> Result<bool, Infallible> {
        self.is_set_high().map(|is_high| !is_high)
    }
}

/// The doorbell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Key;

impl ErrorType for Key {
    type Error = Infallible;
}

impl InputPin for Key {
    fn is_high(&mut self) -> Result<bool, Infallible> {
        Ok(load((DOORBELL as usize) << 2) != 0)
    }

    fn is_low(&mut self) -> Result<bool, Infallible> {
        self.is_high().map(|is_high| !is_high)
    }
}
