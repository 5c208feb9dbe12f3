//! Waiting without work.

use embedded_hal::delay::DelayNs;

/// Rounds that a loop spins before it sleeps: work often comes within microseconds.
const SPINS: u32 = 200;
/// The first sleep.
const FIRST_US: u32 = 5;
/// The longest one, in microseconds.
pub const LONGEST_US: u32 = 200;
/// The longest one for a host that rings a doorbell.
const RUNG_US: u32 = 10_000;

/// Spins for a while, then sleeps, longer and longer.
#[derive(Debug)]
pub struct Backoff<D> {
    delay: D,
    idle: u32,
    sleep_us: u32,
    longest_us: u32,
}

impl<D: DelayNs> Backoff<D> {
    /// Sleeps with this.
    #[must_use]
    pub const fn new(delay: D) -> Self {
        Self { delay, idle: 0, sleep_us: FIRST_US, longest_us: LONGEST_US }
    }

    /// There was work.
    pub const fn reset(&mut self) {
        // It came after a long rest, and nobody has rung for it: who does not ring is looked after
        // more often.
        if self.sleep_us > LONGEST_US {
            self.longest_us = LONGEST_US;
        }
        self.wake();
    }

    /// The host has rung, so that there will be work: who rings may be rested longer for.
    pub const fn rung(&mut self) {
        self.longest_us = RUNG_US;
        self.wake();
    }

    const fn wake(&mut self) {
        self.idle = 0;
        self.sleep_us = FIRST_US;
    }

    /// Is it idle for so long that a look at a doorbell costs little beside its rests?
    #[must_use]
    pub const fn is_long(&self) -> bool {
        self.sleep_us >= LONGEST_US
    }

    /// There was none.
    pub fn wait(&mut self) {
        if self.idle < SPINS {
            self.idle += 1;
            core::hint::spin_loop();
            return;
        }
        self.delay.delay_us(self.sleep_us);
        self.sleep_us = self.sleep_us.saturating_mul(2).min(self.longest_us);
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
        assert!(backoff.is_long());
        backoff.reset();
        (0..=SPINS).for_each(|_| backoff.wait());
        assert!(!backoff.is_long());
        assert_eq!(asked.borrow().last(), Some(&5));
    }

    #[test]
    fn it_rests_longer_for_a_host_that_rings_as_long_as_it_does() {
        let asked = std::rc::Rc::default();
        let mut backoff = Backoff::new(Asked(std::rc::Rc::clone(&asked)));
        let longest = |backoff: &mut Backoff<Asked>| {
            (0..SPINS + 20).for_each(|_| backoff.wait());
            asked.borrow().last().copied()
        };
        assert_eq!(longest(&mut backoff), Some(LONGEST_US));
        for _ in 0..2 {
            // The ring, and then the work that it was for.
            backoff.rung();
            backoff.reset();
            assert_eq!(longest(&mut backoff), Some(RUNG_US));
        }
        // Work that nobody has rung for.
        backoff.reset();
        assert_eq!(longest(&mut backoff), Some(LONGEST_US));
    }
}
