//! Random bit patterns in which the rare ones are frequent.

use unisono_core::DType;

/// A generator of bit patterns (xorshift64*): the same ones for the same seed.
#[derive(Clone, Debug)]
pub struct Bits(u64);

impl Bits {
    /// A generator.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// `count` elements of `dtype`: half of them any bits, half of them zeros, subnormals,
    /// infinities, NaNs of all kinds, largest and smallest values.
    pub fn elements(&mut self, dtype: DType, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count * dtype.size());
        for _ in 0..count {
            let bits = self.element(dtype);
            bytes.extend_from_slice(&bits.to_le_bytes()[..dtype.size()]);
        }
        bytes
    }

    /// Partial sums, in the accumulation type, of a tensor of `dtype`: as [`Bits::elements`], and
    /// for the small floating types also values next to the ties of the final rounding.
    pub fn partials(&mut self, dtype: DType, count: usize) -> Vec<u8> {
        let acc = dtype.acc();
        let Some(fraction) = fraction(dtype).filter(|_| acc != dtype) else {
            return self.elements(acc, count);
        };
        let mut bytes = Vec::with_capacity(count * 4);
        for _ in 0..count {
            let bits = if self.next() & 1 == 0 {
                self.element(acc) as u32
            } else {
                self.tie(dtype, fraction)
            };
            bytes.extend_from_slice(&bits.to_le_bytes());
        }
        bytes
    }

    /// A binary32 in the range of `dtype`, on or next to a tie.
    fn tie(&mut self, dtype: DType, fraction: u32) -> u32 {
        let exponents: &[u32] = match dtype {
            DType::F8E4M3 => &[115, 116, 117, 118, 119, 120, 121, 122, 127, 134, 135, 136],
            DType::F8E5M2 => &[109, 110, 111, 112, 113, 114, 127, 141, 142, 143],
            DType::F16 => &[101, 102, 103, 104, 107, 111, 112, 113, 127, 141, 142, 143],
            _ => &[0, 1, 2, 100, 127, 200, 253, 254],
        };
        let random = self.next();
        // Below the smallest normal number fewer bits are kept.
        let kept = self.below(fraction as usize + 1) as u32;
        let kept = if random & 1 == 0 { fraction } else { kept };
        let half = 1u32 << (22 - kept);
        let low = self.pick(&[0, 1, half - 1, half, half + 1, 2 * half - 1]);
        let high = (random >> 32) as u32 & 0x807f_ffff & !(2 * half - 1);
        high | self.pick(exponents) << 23 | low
    }

    /// The bits of one element.
    fn element(&mut self, dtype: DType) -> u64 {
        let random = self.next();
        if random & 1 == 0 {
            return self.next();
        }
        let width = dtype.size() as u32 * 8;
        let Some(fraction) = fraction(dtype) else {
            let small = self.next() % 5;
            return match random >> 1 & 3 {
                0 => small,
                1 => small.wrapping_neg(),
                2 => (1 << (width - 1)) + small,
                _ => (1u64 << (width - 1)).wrapping_sub(1 + small),
            };
        };
        let exponents = 1u64 << (width - 1 - fraction);
        let one = exponents / 2 - 1;
        let near = one.wrapping_add(self.next() % 5).saturating_sub(2);
        let exponent = self.pick(&[0, 0, 1, one, near, exponents - 2, exponents - 1]);
        let ones = (1u64 << fraction) - 1;
        let stored = self.next() & ones;
        let quiet = 1 << (fraction - 1);
        let stored = self.pick(&[0, 0, 1, ones, quiet, stored, stored]);
        let sign = random >> 1 & 1;
        sign << (width - 1) | exponent << fraction | stored
    }
}

/// Stored bits of the fraction of a floating type.
const fn fraction(dtype: DType) -> Option<u32> {
    match dtype {
        DType::F64 => Some(52),
        DType::F32 => Some(23),
        DType::F16 => Some(10),
        DType::BF16 => Some(7),
        DType::F8E4M3 => Some(3),
        DType::F8E5M2 => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::numeric::read_f64;

    #[test]
    fn rare_values_are_frequent() {
        let mut bits = Bits::new(1);
        for dtype in DType::ALL.into_iter().filter(|d| d.is_float()) {
            let bytes = bits.elements(dtype, 4000);
            let values: Vec<f64> = (0..4000).map(|i| read_f64(dtype, &bytes, i).unwrap()).collect();
            let count = |f: fn(f64) -> bool| values.iter().filter(|&&x| f(x)).count();
            assert!(count(f64::is_nan) > 30, "{dtype}");
            assert!(count(|x| x == 0.0 && x.is_sign_negative()) > 30, "{dtype}");
            assert!(count(|x| x == 0.0 && x.is_sign_positive()) > 30, "{dtype}");
            assert!(dtype == DType::F8E4M3 || count(f64::is_infinite) > 30, "{dtype}");
            assert!(count(|x| x.is_finite() && x != 0.0) > 1000, "{dtype}");
        }
    }
}
