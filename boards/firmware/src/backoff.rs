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

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what it was asked for.
    struct Asked(std::rc::Rc<core::cell::RefCell<Vec<u32>>>);

    impl DelayNs for Asked {
        fn delay_ns(&mut self, ns: u32) {
            self.0.borrow_mut().push(ns / 1000);
        }
    }

    #[test]
    fn it_spins_then_sleeps_longer_and_longer() {
        let asked = std::rc::Rc::default();
        let mut backoff = Backoff::new(Asked(std::rc::Rc::clone(&asked)));
        (0..SPINS + 8).for_each(|_| backoff.wait());
        assert_eq!(*asked.borrow(), [5, 10, 20, 40, 80, 160, 200, 200]);
        backoff.reset();
        (0..=SPINS).for_each(|_| backoff.wait());
        assert_eq!(asked.borrow().last(), Some(&5));
    }
}
