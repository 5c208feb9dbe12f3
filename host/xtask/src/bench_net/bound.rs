//! How long an all-reduce takes at least over links of these rates, and with which shares it does.
//!
//! A rank that owns a share s of a tensor of M bytes moves M (1 + (N - 2) s) bytes each way, and an
//! aggregator, which has no tensor, M N s. So within a time T a rank with a link of rate B can own
//! at most (T B / M - 1) / (N - 2), an aggregator T B / (N M), and all of them together have to own
//! the whole tensor. No rank is through before M / B.

/// Of a TCP segment on Ethernet, with time stamps: bytes that a link of limited rate counts, over
/// bytes of payload.
pub const HEADERS: f64 = 1514.0 / 1448.0;

/// The rates of the ranks' links in Mbit/s, and of those of members without data.
#[derive(Clone, Copy, Debug)]
pub struct Rates<'a> {
    pub ranks: &'a [f64],
    pub aggregators: &'a [f64],
}

impl Rates<'_> {
    /// The least number of seconds for `bytes`, headers included.
    pub fn seconds(self, bytes: u64) -> f64 {
        let bits = bytes as f64 * 8.0 * HEADERS / 1e6;
        let sum = |rates: &[f64]| rates.iter().sum::<f64>();
        let (n, least) = (self.ranks.len() as f64, self.ranks.iter().copied());
        let least = least.fold(f64::INFINITY, f64::min);
        // Two ranks move the same whatever they own.
        let others = (n - 2.0).max(0.0);
        // Times (N - 2): the tensor, and what the ranks move of it in any case.
        let room = sum(self.ranks) + others * sum(self.aggregators) / n.max(1.0);
        (bits / least).max((others + n) * bits / room.max(f64::MIN_POSITIVE))
    }

    /// Weights of the ranks, then of the aggregators, with which that is reached, in thousandths of
    /// the largest.
    pub fn shares(self) -> Vec<u32> {
        let n = self.ranks.len() as f64;
        // In units of M = 1 Mbit without headers.
        let time = self.seconds(125_000) / HEADERS;
        let of_rank = |rate: &f64| match n > 2.0 {
            true => ((time * rate - 1.0) / (n - 2.0)).max(0.0),
            false => 1.0,
        };
        let of_aggregator = |rate: &f64| time * rate / n;
        let ranks = self.ranks.iter().map(of_rank);
        let most: Vec<f64> = ranks.chain(self.aggregators.iter().map(of_aggregator)).collect();
        let largest = most.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        most.iter().map(|share| (share / largest * 1000.0).round() as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(bytes: u64, ranks: &[f64]) -> f64 {
        Rates { ranks, aggregators: &[] }.seconds(bytes)
    }

    fn shares(ranks: &[f64]) -> Vec<u32> {
        Rates { ranks, aggregators: &[] }.shares()
    }

    #[test]
    fn equal_links_have_equal_shares() {
        let rates = [200.0; 4];
        assert_eq!(shares(&rates), [1000; 4]);
        let want = 2.0 * 0.75 * 8e6 * 8.0 * HEADERS / 200e6;
        assert!((seconds(8_000_000, &rates) - want).abs() < 1e-9);
        assert_eq!(shares(&[7.0, 3.0]), [1000, 1000]);
    }

    #[test]
    fn a_slow_link_owns_nothing_and_is_the_bound() {
        let rates = [200.0, 200.0, 200.0, 50.0];
        assert_eq!(shares(&rates), [1000, 1000, 1000, 0]);
        assert!((seconds(8_000_000, &rates) - 8e6 * 8.0 * HEADERS / 50e6).abs() < 1e-9);
    }

    #[test]
    fn a_link_that_is_little_slower_owns_a_little_less() {
        // T = 6 M / 360: shares of (T B / M - 1) / 2 add up to one.
        let rates = [100.0, 100.0, 80.0, 80.0];
        assert_eq!(shares(&rates), [1000, 1000, 500, 500]);
    }

    #[test]
    fn an_aggregator_takes_a_share() {
        let rates = Rates { ranks: &[200.0; 4], aggregators: &[200.0] };
        // T = 6 M / (800 + 100): a rank owns (4/3 - 1) / 2 of it, the aggregator a third.
        assert!((rates.seconds(8_000_000) - 6.0 * 8e6 * 8.0 * HEADERS / 900e6).abs() < 1e-9);
        assert_eq!(rates.shares(), [500, 500, 500, 500, 1000]);
        // The slow rank is the bound with it and without.
        let rates = Rates { ranks: &[200.0, 200.0, 200.0, 50.0], aggregators: &[200.0] };
        assert!((rates.seconds(8_000_000) - 8e6 * 8.0 * HEADERS / 50e6).abs() < 1e-9);
        assert_eq!(rates.shares(), [1000, 1000, 1000, 0, 667]);
    }
}
