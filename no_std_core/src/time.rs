//! Time as an argument: no part of the core reads a clock.

use core::ops::{Add, Sub};
use core::time::Duration;

/// A point on the clock of whoever calls, in nanoseconds since a moment of its choice.
///
/// Two instants can be compared only if they come from the same clock; instants never travel.
/// All arithmetic saturates, so a clock that jumps back gives a duration of zero and a far deadline
/// never wraps round to the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Instant(u64);

impl Instant {
    /// The clock's zero.
    pub const ZERO: Self = Self(0);
    /// Later than everything else: 584 years after the clock's zero.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the clock's zero.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's zero.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// `self + by`, or `None` past [`Instant::MAX`].
    #[must_use]
    pub const fn checked_add(self, by: Duration) -> Option<Self> {
        let by = by.as_nanos();
        if by > (u64::MAX - self.0) as u128 { None } else { Some(Self(self.0 + by as u64)) }
    }

    /// `self - by`, or `None` before [`Instant::ZERO`].
    #[must_use]
    pub const fn checked_sub(self, by: Duration) -> Option<Self> {
        let by = by.as_nanos();
        if by > self.0 as u128 { None } else { Some(Self(self.0 - by as u64)) }
    }

    /// `self + by`, at most [`Instant::MAX`].
    #[must_use]
    pub const fn saturating_add(self, by: Duration) -> Self {
        match self.checked_add(by) {
            Some(at) => at,
            None => Self::MAX,
        }
    }

    /// `self - by`, at least [`Instant::ZERO`].
    #[must_use]
    pub const fn saturating_sub(self, by: Duration) -> Self {
        match self.checked_sub(by) {
            Some(at) => at,
            None => Self::ZERO,
        }
    }

    /// Time from `earlier` to `self`, or `None` if `earlier` is the later one.
    #[must_use]
    pub const fn checked_since(self, earlier: Self) -> Option<Duration> {
        match self.0.checked_sub(earlier.0) {
            Some(nanos) => Some(Duration::from_nanos(nanos)),
            None => None,
        }
    }

    /// Time from `earlier` to `self`, zero if `earlier` is the later one.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates at [`Instant::MAX`].
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        self.saturating_add(by)
    }
}

/// Saturates at [`Instant::ZERO`].
impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, by: Duration) -> Self {
        self.saturating_sub(by)
    }
}

/// Same as [`Instant::since`].
impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let t = Instant::from_nanos(5);
        let ns = Duration::from_nanos;
        assert_eq!((t + ns(7)).as_nanos(), 12);
        assert_eq!((t - ns(5)).as_nanos(), 0);
        assert_eq!(t - ns(6), Instant::ZERO);
        assert_eq!(t.checked_sub(ns(6)), None);
        assert_eq!(t + Duration::MAX, Instant::MAX);
        assert_eq!(t.checked_add(ns(u64::MAX - 5)), Some(Instant::MAX));
        assert_eq!(t.checked_add(ns(u64::MAX - 4)), None);
        assert_eq!(t.checked_add(Duration::MAX), None);
    }

    #[test]
    fn a_clock_that_jumps_back_gives_zero() {
        let (early, late) = (Instant::from_nanos(3), Instant::from_nanos(10));
        assert_eq!(late - early, Duration::from_nanos(7));
        assert_eq!(early - late, Duration::ZERO);
        assert_eq!(early.checked_since(late), None);
        assert_eq!(late.checked_since(early), Some(Duration::from_nanos(7)));
    }
}
