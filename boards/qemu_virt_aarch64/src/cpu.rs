//! The cores: page table, clock, sleep, barriers, the second core.

use crate::pins;
use aarch64_rt::{InitialPagetable, Stack, initial_pagetable};
use core::arch::asm;
use embedded_hal::delay::DelayNs;
use unisono_core::time::Instant;
use unisono_driver::Clock;
use unisono_firmware::LONGEST_US;
use unisono_link_window::Bus;

/// Blocks of 1 GiB: valid, accessed, not executable.
const BLOCK: usize = 1 | 1 << 10 | 0b11 << 53;
/// Attribute 0 of the run-time's MAIR is device memory, 1 normal memory.
const DEVICE: usize = BLOCK;
const NORMAL: usize = BLOCK | 1 << 2 | 0b11 << 8;
const EXECUTABLE: usize = !(1 << 53);

const GIB: usize = 1 << 30;
/// Where the first GiB is mapped once more, as normal memory.
pub const NORMAL_ALIAS: usize = 3 * GIB;

initial_pagetable!({
    let mut table = [0; 512];
    table[0] = DEVICE;
    table[1] = (NORMAL & EXECUTABLE) | GIB;
    // The window is memory behind a bus that keeps caches coherent. Only its part of this block is
    // ever touched, and never by the device mapping.
    table[NORMAL_ALIAS / GIB] = NORMAL;
    table[256] = DEVICE | 256 * GIB;
    InitialPagetable(table)
});

/// The interrupt controller (GICv2): distributor and CPU interface.
const GICD: usize = 0x0800_0000;
const GICC: usize = 0x0801_0000;
/// Interrupts of the virtual timer, which each core has, and of the device with the pins.
const TIMER: u32 = 27;
const PINS: usize = 39;

fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: reads a counter.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack, nomem)) };
    ticks
}

fn hz() -> u64 {
    let hz: u64;
    // SAFETY: reads a constant.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nostack, nomem)) };
    hz.max(1)
}

/// Time since the machine was switched on.
#[must_use]
pub fn now() -> Instant {
    let (ticks, hz) = (ticks(), hz());
    let nanos = ticks / hz * 1_000_000_000 + ticks % hz * 1_000_000_000 / hz;
    Instant::from_nanos(nanos)
}

/// The same as a [`Clock`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SinceOn;

impl Clock for SinceOn {
    fn now(&self) -> Instant {
        now()
    }
}

/// Sleep of this core until its timer wakes it. Interrupts stay masked: one that is pending ends
/// the sleep and nothing more.
#[derive(Debug)]
pub struct Sleep {
    /// Does the doorbell end long ones?
    rung: bool,
}

impl Sleep {
    /// Sets up what wakes this core; call it on the core itself.
    #[must_use]
    pub fn new() -> Self {
        let registers = [(GICD, 1), (GICD + 0x100, 1 << TIMER), (GICC + 4, 0xff), (GICC, 1)];
        for (at, value) in registers {
            // SAFETY: registers of the interrupt controller, mapped as device memory.
            unsafe { (at as *mut u32).write_volatile(value) };
        }
        Self { rung: false }
    }

    /// The same for core 0, which the doorbell wakes from a sleep of [`LONGEST_US`] or more, which
    /// then ends early.
    #[must_use]
    pub fn until_rung() -> Self {
        pins::listen();
        // SAFETY: registers of the interrupt controller: a byte that says which cores an interrupt
        // goes to, and 32 bits that let as many through.
        unsafe {
            ((GICD + 0x800 + PINS) as *mut u8).write_volatile(1);
            ((GICD + 0x100 + PINS / 32 * 4) as *mut u32).write_volatile(1 << (PINS % 32));
        }
        Self { rung: true, ..Self::new() }
    }
}

impl Default for Sleep {
    fn default() -> Self {
        Self::new()
    }
}

impl DelayNs for Sleep {
    fn delay_ns(&mut self, ns: u32) {
        let end = ticks() + (u64::from(ns) * hz()).div_ceil(1_000_000_000);
        // A look at the device takes as long as a short sleep.
        let rung = self.rung && ns >= LONGEST_US * 1000;
        // SAFETY: the timer belongs to this core and to nobody else.
        unsafe { asm!("msr cntv_cval_el0, {}", "msr cntv_ctl_el0, {}", in(reg) end, in(reg) 1u64) };
        while ticks() < end && !(rung && pins::has_woken()) {
            // SAFETY: waits.
            unsafe { asm!("wfi", options(nostack, nomem)) };
        }
        // SAFETY: as above.
        unsafe { asm!("msr cntv_ctl_el0, xzr") };
    }
}

/// The fences towards the host, which is outside of the cores' inner shareable domain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outer;

impl Bus for Outer {
    fn publish(&mut self) {
        // SAFETY: a barrier. Not `nomem`: the compiler keeps the order too.
        unsafe { asm!("dmb osh", options(nostack)) };
    }

    fn observe(&mut self) {
        // SAFETY: as above.
        unsafe { asm!("dmb oshld", options(nostack)) };
    }
}

/// Pages of the second core's stack.
const PAGES: usize = 16;
#[unsafe(link_section = ".stack.second")]
static mut STACK: Stack<PAGES> = Stack::new();

/// Starts the second core; false if the firmware below will not.
pub fn start_second(run: impl FnOnce() + Send + 'static) -> bool {
    // SAFETY: nothing else uses this stack; the core is started once, and a second start fails
    // before the stack is written (the power controller says that it is on).
    unsafe { aarch64_rt::start_core::<smccc::Hvc, _, PAGES>(1, &raw mut STACK, run).is_ok() }
}
