//! Time: the core's own timer, an interrupt a millisecond.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;
use unisono_core::time::Instant;
use unisono_driver::Clock;

/// The core's clock, and its ticks in a millisecond.
const HZ: u32 = 25_000_000;
const TICKS: u32 = HZ / 1000;
const NANOS_PER_TICK: u64 = 1_000_000_000 / HZ as u64;

/// Milliseconds since the start; the high half counts the low one's rounds.
static LOW: AtomicU32 = AtomicU32::new(0);
static HIGH: AtomicU32 = AtomicU32::new(0);

/// The clock since [`SysTick::start`].
#[derive(Clone, Copy, Debug)]
pub struct SysTick(());

impl SysTick {
    /// Starts the timer.
    #[must_use]
    pub fn start(mut timer: SYST) -> Self {
        timer.set_clock_source(SystClkSource::Core);
        timer.set_reload(TICKS - 1);
        timer.clear_current();
        timer.enable_interrupt();
        timer.enable_counter();
        Self(())
    }

    fn millis() -> u64 {
        loop {
            let high = HIGH.load(Relaxed);
            let low = LOW.load(Relaxed);
            // The interrupt is the only writer, and it may have come in between.
            if HIGH.load(Relaxed) == high {
                return u64::from(high) << 32 | u64::from(low);
            }
        }
    }

    /// Milliseconds, and ticks since then.
    fn read() -> (u64, u32) {
        loop {
            let millis = Self::millis();
            let passed = TICKS - 1 - SYST::get_current().min(TICKS - 1);
            if Self::millis() == millis {
                return (millis, passed);
            }
        }
    }
}

impl Clock for SysTick {
    fn now(&self) -> Instant {
        let (millis, passed) = Self::read();
        Instant::from_nanos(millis * 1_000_000 + u64::from(passed) * NANOS_PER_TICK)
    }
}

/// Microseconds since the start, for the log.
#[must_use]
pub fn micros() -> u64 {
    let (millis, ticks) = SysTick::read();
    millis * 1000 + u64::from(ticks / (HZ / 1_000_000))
}

/// A number that changes with each tick.
#[must_use]
pub fn ticks() -> u32 {
    LOW.load(Relaxed)
}

/// A millisecond has passed: called by the timer's interrupt only.
pub fn handle_tick() {
    let low = LOW.load(Relaxed).wrapping_add(1);
    LOW.store(low, Relaxed);
    if low == 0 {
        HIGH.store(HIGH.load(Relaxed).wrapping_add(1), Relaxed);
    }
}
