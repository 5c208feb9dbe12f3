//! Round-trip time and the retransmission time-out that follows from it (RFC 6298).

use core::time::Duration;

/// Smoothed round-trip time, its variation, and the exponential back-off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtt {
    /// Smoothed round-trip time and its mean deviation, in nanoseconds, once there is a sample.
    smooth: Option<(u64, u64)>,
    /// Time-outs in a row: each doubles the next one.
    backoff: u32,
    initial: u64,
    min: u64,
    max: u64,
}

const fn nanos(d: Duration) -> u64 {
    let n = d.as_nanos();
    if n > u64::MAX as u128 { u64::MAX } else { n as u64 }
}

impl Rtt {
    pub(super) const fn new(initial: Duration, min: Duration, max: Duration) -> Self {
        // A time-out of zero would fire again at once, for ever.
        let (min, max) = (nanos(min), nanos(max));
        let min = if min == 0 { 1 } else { min };
        let max = if max < min { min } else { max };
        Self { smooth: None, backoff: 0, initial: nanos(initial), min, max }
    }

    /// A measured round trip. Rules (2.2) and (2.3): alpha = 1/8, beta = 1/4.
    pub(super) fn sample(&mut self, rtt: Duration) {
        let r = nanos(rtt);
        self.smooth = Some(match self.smooth {
            None => (r, r / 2),
            Some((srtt, var)) => {
                let var = var - var / 4 + srtt.abs_diff(r) / 4;
                (srtt - srtt / 8 + r / 8, var)
            }
        });
    }

    /// The peer made progress: the path is alive, whatever it lost before.
    pub(super) const fn progress(&mut self) {
        self.backoff = 0;
    }

    /// A time-out passed: rule (5.5).
    pub(super) const fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// The retransmission time-out as of now: rule (2.3), (2.4), (2.5), doubled by the back-off.
    pub(super) fn timeout(&self) -> Duration {
        let base = match self.smooth {
            None => self.initial,
            Some((srtt, var)) => srtt.saturating_add(var.saturating_mul(4)),
        };
        let factor = 1u64.checked_shl(self.backoff).unwrap_or(u64::MAX);
        let rto = base.max(self.min).min(self.max).saturating_mul(factor);
        Duration::from_nanos(rto.min(self.max))
    }

    /// The smoothed round-trip time.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smooth.map(|(srtt, _)| Duration::from_nanos(srtt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn follows_the_rfc() {
        let mut rtt = Rtt::new(ms(100), ms(1), ms(900));
        assert_eq!(rtt.timeout(), ms(100));
        rtt.sample(ms(16));
        // SRTT = R, RTTVAR = R/2: RTO = R + 4 * R/2.
        assert_eq!(rtt.timeout(), ms(48));
        rtt.sample(ms(32));
        // RTTVAR = 3/4 * 8 + 1/4 * 16 = 10, SRTT = 7/8 * 16 + 1/8 * 32 = 18.
        assert_eq!(rtt.smoothed(), Some(ms(18)));
        assert_eq!(rtt.timeout(), ms(58));
    }

    #[test]
    fn backs_off_within_bounds() {
        let mut rtt = Rtt::new(ms(100), ms(1), ms(900));
        for want in [100, 200, 400, 800, 900, 900] {
            assert_eq!(rtt.timeout(), ms(want));
            rtt.back_off();
        }
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout(), ms(900));
        rtt.progress();
        assert_eq!(rtt.timeout(), ms(100));
    }

    #[test]
    fn extreme_values_stay_in_bounds() {
        let mut rtt = Rtt::new(Duration::MAX, Duration::ZERO, ms(5));
        assert_eq!(rtt.timeout(), ms(5));
        for _ in 0..100 {
            rtt.sample(Duration::ZERO);
        }
        assert!(rtt.timeout() > Duration::ZERO);
        for _ in 0..100 {
            rtt.sample(Duration::MAX);
        }
        assert_eq!(rtt.timeout(), ms(5));
    }
}
