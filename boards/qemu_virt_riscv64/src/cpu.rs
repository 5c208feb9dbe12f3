//! The hart: entry, clock, sleep, fences.

use core::arch::{asm, global_asm};
use embedded_hal::delay::DelayNs;
use unisono_core::time::Instant;
use unisono_driver::Clock;
use unisono_link_window::Bus;

global_asm!(
    ".section .init.entry, \"ax\"",
    ".global entry",
    "entry:",
    // No interrupt is ever taken; a pending one ends a sleep.
    "csrw mie, zero",
    "csrw mstatus, zero",
    "la t0, 4f",
    "csrw mtvec, t0",
    "la sp, stack_end",
    "la t0, data_load",
    "la t1, data_begin",
    "la t2, data_end",
    "0: bgeu t1, t2, 1f",
    "ld t3, 0(t0)",
    "sd t3, 0(t1)",
    "addi t0, t0, 8",
    "addi t1, t1, 8",
    "j 0b",
    "1: la t1, bss_begin",
    "la t2, bss_end",
    "2: bgeu t1, t2, 3f",
    "sd zero, 0(t1)",
    "addi t1, t1, 8",
    "j 2b",
    "3: tail main",
    ".align 2",
    "4: la sp, stack_end",
    "csrr a0, mcause",
    "csrr a1, mepc",
    "tail {trap}",
    trap = sym trap,
);

/// An exception: there is none that the program could go on after.
extern "C" fn trap(cause: usize, at: usize) -> ! {
    defmt::error!("exception {=usize} at {=usize:#x}", cause, at);
    panic!("exception");
}

/// The timer (CLINT): its clock and this hart's alarm.
const TIME: *const u64 = 0x0200_bff8 as *const u64;
const ALARM: *mut u64 = 0x0200_4000 as *mut u64;
const NANOS_PER_TICK: u64 = 100;
/// The timer's bit among the interrupts.
const TIMER: usize = 1 << 7;

fn ticks() -> u64 {
    // SAFETY: a register of the machine.
    unsafe { TIME.read_volatile() }
}

/// Time since the machine was switched on.
#[must_use]
pub fn now() -> Instant {
    Instant::from_nanos(ticks().saturating_mul(NANOS_PER_TICK))
}

/// The same as a [`Clock`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SinceOn;

impl Clock for SinceOn {
    fn now(&self) -> Instant {
        now()
    }
}

/// Sleep until the timer's alarm. Interrupts stay masked: one that is pending ends the sleep and
/// nothing more.
#[derive(Debug, Default)]
pub struct Sleep;

impl DelayNs for Sleep {
    fn delay_ns(&mut self, ns: u32) {
        let end = ticks() + u64::from(ns).div_ceil(NANOS_PER_TICK);
        // SAFETY: a register of the machine, and this hart's own.
        unsafe {
            ALARM.write_volatile(end);
            asm!("csrs mie, {}", in(reg) TIMER, options(nostack));
        }
        while ticks() < end {
            // SAFETY: waits.
            unsafe { asm!("wfi", options(nostack)) };
        }
        // SAFETY: this hart's own.
        unsafe { asm!("csrc mie, {}", in(reg) TIMER, options(nostack)) };
    }
}

/// The fences towards the host: the window is reached as a device is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outer;

impl Bus for Outer {
    fn publish(&mut self) {
        // SAFETY: a fence. Not `nomem`: the compiler keeps the order too.
        unsafe { asm!("fence iorw, ow", options(nostack)) };
    }

    fn observe(&mut self) {
        // SAFETY: as above.
        unsafe { asm!("fence ir, iorw", options(nostack)) };
    }
}
