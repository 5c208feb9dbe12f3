//! How long an all-reduce takes at least over links of these rates, and with which shares it does.
//!
//! A rank that owns a share s of a tensor of M bytes moves M (1 + (N - 2) s) bytes each way. No
//! algorithm takes less than M / min B, nor less than 2 (N - 1) M / sum B, and one that gives rank
//! i no more than (T B / M - 1) / (N - 2) reaches the larger of the two.

/// Of a TCP segment on Ethernet, with time stamps: bytes that a link of limited rate counts, over
/// bytes of payload.
pub const HEADERS: f64 = 1514.0 / 1448.0;

/// The least number of seconds for `bytes` over links of so many Mbit/s, headers included.
pub fn seconds(bytes: u64, rates: &[f64]) -> f64 {
    let bits = bytes as f64 * 8.0 * HEADERS / 1e6;
    let (least, sum) = (rates.iter().copied().fold(f64::INFINITY, f64::min), rates.iter().sum());
    let peers = rates.len().saturating_sub(1) as f64;
    (bits / least).max(2.0 * peers * bits / f64::max(sum, f64::MIN_POSITIVE))
}

/// Weights of the ranks with which [`seconds`] can be reached, in thousandths of the largest.
pub fn shares(rates: &[f64]) -> Vec<u32> {
    let others = rates.len() as f64 - 2.0;
    // In units of M = 1 Mbit without headers.
    let time = seconds(125_000, rates) / HEADERS;
    let most: Vec<f64> = match others > 0.0 {
        true => rates.iter().map(|rate| ((time * rate - 1.0) / others).max(0.0)).collect(),
        // Two ranks move the same whatever they own.
        false => vec![1.0; rates.len()],
    };
    let largest = most.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    most.iter().map(|share| (share / largest * 1000.0).round() as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
