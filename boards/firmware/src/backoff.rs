//! Waiting without work.

use embedded_hal::delay::DelayNs;

/// Rounds that a loop spins before it sleeps: work often comes within microseconds.
const SPINS: u32 = 200;
/// The first sleep and the longest one.
const FIRST_US: u32 = 5;
const LONGEST_US: u32 = 200;

/// Spins for a while, then sleeps, longer and longer.
#[derive(Debug)]
pub struct Backoff<D> {
    delay: D,
    idle: u32,
    sleep_us: u32,
}

impl<D: DelayNs> Backoff<D> {
    /// Sleeps with this.
    #[must_use]
    pub const fn new(delay: D) -> Self {
        Self { delay, idle: 0, sleep_us: FIRST_US }
    }

    /// There was work.
    pub const fn reset(&mut self) {
        self.idle = 0;
        self.sleep_us = FIRST_US;
    }

    /// There was none.
    pub fn wait(&mut self) {
        if self.idle < SPINS {
            self.idle += 1;
            core::hint::spin_loop();
            return;
        }
        self.delay.delay_us(self.sleep_us);
        self.sleep_us = self.sleep_us.saturating_mul(2).min(LONGEST_US);
    }
}
