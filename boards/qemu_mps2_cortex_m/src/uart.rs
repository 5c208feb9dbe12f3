//! The UARTs of Arm's Cortex-M System Design Kit. They hold one byte each way, so an interrupt
//! moves what comes in to a ring in RAM; what goes out is polled.

use crate::clock;
use core::cell::RefCell;
use core::convert::Infallible;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use cortex_m::interrupt::{self, Mutex};
use embedded_io::{ErrorType, Read, ReadReady, Write, WriteReady};
use heapless::Deque;

/// UARTs of an AN386 that can be used here: their base addresses.
const BASES: [usize; 3] = [0x4000_4000, 0x4000_5000, 0x4000_6000];
/// What ends a frame on every line here (COBS).
const END: u8 = 0;
/// Bytes that wait to be read.
const RING: usize = 128;

type Ring = Mutex<RefCell<Deque<u8, RING>>>;
/// Ends of frames in all rings; touched with interrupts held back only.
static ENDS: AtomicU32 = AtomicU32::new(0);
static RINGS: [Ring; BASES.len()] = [const { Mutex::new(RefCell::new(Deque::new())) }; BASES.len()];

const DATA: usize = 0x0;
const STATE: usize = 0x4;
const CTRL: usize = 0x8;
const CLEAR: usize = 0xc;
const BAUDDIV: usize = 0x10;
/// In STATE: the one byte of the buffer is taken.
const OUT_FULL: u32 = 1;
const IN_FULL: u32 = 2;
/// In CTRL: both directions are on; input interrupts.
const ENABLE: u32 = 3;
const INTERRUPTS: u32 = 8;
/// In CLEAR: the interrupt of input.
const INPUT: u32 = 2;
/// 25 MHz / 217 = 115 200 Bd.
const DIVIDER: u32 = 217;

/// One UART.
#[derive(Debug)]
pub struct Uart {
    index: usize,
}

fn get(index: usize, register: usize) -> u32 {
    // SAFETY: a register of the device.
    BASES.get(index).map_or(0, |base| unsafe { ((base + register) as *const u32).read_volatile() })
}

fn set(index: usize, register: usize, value: u32) {
    if let Some(base) = BASES.get(index) {
        // SAFETY: a register of the device.
        unsafe { ((base + register) as *mut u32).write_volatile(value) }
    }
}

/// Number of the interrupt of a UART's input.
#[must_use]
pub const fn input_interrupt(index: usize) -> i16 {
    2 * index as i16
}

/// An interrupt has come; moves what it was for to the ring. A byte that finds no room stays in the
/// device and silences it until the ring is read.
pub fn handle_interrupt(number: i16) {
    let of = |index: &usize| input_interrupt(*index) == number;
    let Some(index) = (0..BASES.len()).find(of) else { return };
    set(index, CLEAR, INPUT);
    interrupt::free(|cs| {
        if let Some(Ok(mut ring)) = RINGS.get(index).map(|ring| ring.borrow(cs).try_borrow_mut()) {
            fill(index, &mut ring);
        }
    });
}

/// Moves what has come in to the ring. The interrupt is on before the device is looked at: what
/// comes later than the last look raises it.
fn fill(index: usize, ring: &mut Deque<u8, RING>) {
    set(index, CTRL, ENABLE | INTERRUPTS);
    while get(index, STATE) & IN_FULL != 0 {
        if ring.is_full() {
            set(index, CTRL, ENABLE);
            return;
        }
        let byte = get(index, DATA) as u8;
        // There is room.
        let _ = ring.push_back(byte);
        if byte == END {
            ENDS.store(ENDS.load(Relaxed) + 1, Relaxed);
        }
    }
}

/// Sleeps until a frame has come, a ring is half full, or the clock ticks. A round of the
/// super-loop costs a thousand instructions: far more than the byte that woke the core.
pub fn wait() {
    let tick = clock::ticks();
    loop {
        let is_over = interrupt::free(|cs| {
            let is_low =
                |ring: &Ring| ring.borrow(cs).try_borrow().is_ok_and(|r| r.len() < RING / 2);
            let is_quiet = ENDS.load(Relaxed) == 0 && RINGS.iter().all(is_low);
            let is_over = !is_quiet || clock::ticks() != tick;
            if !is_over {
                // Wakes also by an interrupt that is held back here, and that is served after this.
                cortex_m::asm::wfi();
            }
            is_over
        });
        if is_over {
            return;
        }
    }
}

impl Uart {
    /// Takes UART 0, 1 or 2 and turns it on. Its input interrupt must lead to
    /// [`handle_interrupt`].
    ///
    /// # Safety
    /// Nothing else uses this UART.
    #[must_use]
    pub unsafe fn new(index: usize) -> Self {
        set(index, BAUDDIV, DIVIDER);
        set(index, CTRL, ENABLE | INTERRUPTS);
        Self { index }
    }

    fn has_room(&self) -> bool {
        get(self.index, STATE) & OUT_FULL == 0
    }

    fn with_ring<R: Default>(&self, f: impl FnOnce(&mut Deque<u8, RING>) -> R) -> R {
        interrupt::free(|cs| {
            let ring = RINGS.get(self.index).map(|ring| ring.borrow(cs).try_borrow_mut());
            // The interrupt holds it only while it is served.
            let Some(Ok(mut ring)) = ring else { return R::default() };
            f(&mut ring)
        })
    }
}

impl ErrorType for Uart {
    type Error = Infallible;
}

impl ReadReady for Uart {
    fn read_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.with_ring(|ring| !ring.is_empty()))
    }
}

impl Read for Uart {
    /// What is there, at most `into` and not beyond the end of a frame: what is left keeps the core
    /// awake. Waits for nothing.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Infallible> {
        Ok(self.with_ring(|ring| {
            let mut len = 0;
            while let Some(place) = into.get_mut(len)
                && let Some(byte) = ring.pop_front()
            {
                *place = byte;
                len += 1;
                if byte == END {
                    ENDS.store(ENDS.load(Relaxed).saturating_sub(1), Relaxed);
                    break;
                }
            }
            // The device may have been silenced.
            fill(self.index, ring);
            len
        }))
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
            set(self.index, DATA, byte.into());
            len += 1;
        }
        Ok(len)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        while !self.has_room() {}
        Ok(())
    }
}
