//! Division of many integers by one number of ranks.

use unisono_core::numeric::RANKS_MAX;

/// A number of ranks, 1 to [`RANKS_MAX`], prepared for division.
#[derive(Clone, Copy, Debug)]
pub struct Divisor {
    /// The number itself; exact in binary32.
    pub ranks: u32,
    /// `ceil(2^(64 + shift) / ranks) - 2^64`, see [`Divisor::divide`].
    magic: u64,
    /// `ceil(log2(ranks))`.
    shift: u32,
}

impl Divisor {
    /// Prepares `ranks`.
    pub const fn new(ranks: u32) -> Self {
        debug_assert!(1 <= ranks && ranks <= RANKS_MAX);
        let shift = ranks.next_power_of_two().trailing_zeros();
        let wide = (1u128 << (64 + shift)).div_ceil(ranks as u128);
        Self { ranks, magic: (wide - (1 << 64)) as u64, shift }
    }

    /// `x / ranks` by a multiplication (Granlund and Montgomery, "Division by invariant integers
    /// using multiplication", 1994, figure 4.1): `x * (2^64 + magic) >> (64 + shift)`, with the sum
    /// of 65 bits halved on the way.
    #[inline(always)]
    pub const fn divide(self, x: u64) -> u64 {
        let high = ((x as u128 * self.magic as u128) >> 64) as u64;
        if self.shift == 0 {
            return x;
        }
        (high + ((x - high) >> 1)) >> (self.shift - 1)
    }

    /// `x / ranks`, truncated toward zero.
    #[inline(always)]
    pub const fn divide_signed(self, x: i64) -> i64 {
        let quotient = self.divide(x.unsigned_abs()).cast_signed();
        if x < 0 { quotient.wrapping_neg() } else { quotient }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_exact() {
        let mut x = 1u64;
        for ranks in (1..3000).chain(RANKS_MAX - 3000..=RANKS_MAX) {
            let divisor = Divisor::new(ranks);
            let n = u64::from(ranks);
            for k in 0..300 {
                x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                for y in [x, x >> (k % 64), (x / n).wrapping_mul(n), u64::MAX - k, k, 1 << (k % 64)]
                {
                    for y in [y, y.wrapping_sub(1)] {
                        assert_eq!(divisor.divide(y), y / n, "{y} / {n}");
                        let signed = y.cast_signed();
                        assert_eq!(divisor.divide_signed(signed), signed / i64::from(ranks));
                    }
                }
            }
        }
    }
}
