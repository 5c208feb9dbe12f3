//! The congestion window: additive increase, multiplicative decrease.
//!
//! A window of at most 64 packets between two ranks is harmless, but all ranks of a group send to
//! a chunk's owner at the same time, and a switch port or a small NIC then drops what it cannot
//! queue. A fixed window would send all of it again at the same pace. So the window halves (nearly:
//! 0.7, as CUBIC does, because a loss on a wireless or serial link says nothing about queues) at
//! most once a round trip, and grows by a packet a round trip.
//!
//! It never falls below [`FLOOR`] packets, also after a time-out: fewer in flight could not give
//! the three later arrivals that prove a loss, so each loss would cost a time-out, and a link with
//! much random loss would stand still most of the time. The back-off of the time-out still thins
//! out what is sent into a path that delivers nothing.

/// Least packets in flight.
const FLOOR: u32 = 4;
/// Packets in flight before anything is known (RFC 6928).
const START: u32 = 10;
/// One packet, in the fixed-point arithmetic of this file.
const ONE: u32 = 256;

/// The window, in 1/256 packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aimd {
    window: u32,
    /// Below this the window doubles each round trip.
    threshold: u32,
    max: u32,
}

const fn min(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

impl Aimd {
    /// A window that grows up to `max` packets.
    pub(super) const fn new(max: u32) -> Self {
        let max = max * ONE;
        Self { window: min(START * ONE, max), threshold: max, max }
    }

    /// Packets that may be in flight, at least 1.
    pub(super) const fn packets(&self) -> u32 {
        self.window / ONE
    }

    /// A packet has newly arrived.
    pub(super) const fn arrived(&mut self) {
        let step = match (ONE * ONE).checked_div(self.window) {
            Some(step) if self.window >= self.threshold => step,
            _ => ONE,
        };
        self.window = min(self.window + step, self.max);
    }

    /// The first loss of a round trip.
    pub(super) fn lost(&mut self) {
        self.window = (self.window * 7 / 10).max(self.floor());
        self.threshold = self.window;
    }

    /// Nothing has arrived for a whole time-out.
    pub(super) fn timed_out(&mut self) {
        self.threshold = (self.window / 2).max(self.floor());
        self.window = self.floor();
    }

    fn floor(&self) -> u32 {
        min(FLOOR * ONE, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_between_floor_and_limit() {
        for max in [1, 2, 4, 8, 64] {
            let mut window = Aimd::new(max);
            for _ in 0..100_000 {
                window.arrived();
            }
            assert_eq!(window.packets(), max);
            for _ in 0..100 {
                window.lost();
                assert!((1..=max).contains(&window.packets()));
            }
            assert_eq!(window.packets(), max.min(4));
            window.timed_out();
            assert_eq!(window.packets(), max.min(4));
        }
    }

    #[test]
    fn grows_by_a_packet_a_round_trip_after_a_loss() {
        let mut window = Aimd::new(64);
        (0..100).for_each(|_| window.arrived());
        window.lost();
        assert_eq!(window.packets(), 44);
        (0..45).for_each(|_| window.arrived());
        assert_eq!(window.packets(), 45);
    }
}
