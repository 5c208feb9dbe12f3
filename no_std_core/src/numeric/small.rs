//! The small floating-point formats, all four by one pair of functions.
//!
//! Sources: IEEE 754-2019 section 3.4 (binary16), "BFLOAT16 numerics definition" (Intel, 2018),
//! "OCP 8-bit floating point specification" revision 1.0 (E4M3 and E5M2, without saturation).

/// A format with a sign bit, an exponent and at most 10 fraction bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of the stored fraction.
    fraction: u32,
    /// Exponent bias.
    bias: i32,
    /// The first code above the largest finite one: what an overflow becomes.
    overflow: u16,
    /// The canonical NaN; equal to `overflow` in a format without infinities.
    nan: u16,
    /// The sign bit.
    sign: u16,
}

/// IEEE 754 binary16: largest finite value 65504, smallest subnormal 2^-24.
pub const F16: Format =
    Format { fraction: 10, bias: 15, overflow: 0x7c00, nan: 0x7e00, sign: 0x8000 };

/// bfloat16: the exponent range of binary32, smallest subnormal 2^-133.
pub const BF16: Format =
    Format { fraction: 7, bias: 127, overflow: 0x7f80, nan: 0x7fc0, sign: 0x8000 };

/// OCP E4M3: largest value 448, smallest subnormal 2^-9, no infinities.
pub const F8E4M3: Format = Format { fraction: 3, bias: 7, overflow: 0x7f, nan: 0x7f, sign: 0x80 };

/// OCP E5M2: largest finite value 57344, smallest subnormal 2^-16.
pub const F8E5M2: Format = Format { fraction: 2, bias: 15, overflow: 0x7c, nan: 0x7e, sign: 0x80 };

impl Format {
    /// The canonical NaN's code.
    #[must_use]
    pub const fn nan(self) -> u16 {
        self.nan
    }

    /// The value of a code as binary32; exact, and the canonical NaN for every NaN.
    #[must_use]
    pub fn decode(self, code: u16) -> f32 {
        let magnitude = code & (self.sign - 1);
        if magnitude > self.overflow || magnitude == self.nan {
            return f32::from_bits(0x7fc0_0000);
        }
        let exponent = i32::from(magnitude >> self.fraction);
        let stored = magnitude & ((1 << self.fraction) - 1);
        let value = if magnitude == self.overflow {
            f64::INFINITY
        } else if exponent == 0 {
            f64::from(stored) * self.ulp(1)
        } else {
            f64::from(stored | 1 << self.fraction) * self.ulp(exponent)
        };
        let value = if code & self.sign == 0 { value } else { -value };
        // Exact: every value of these formats is a binary32.
        value as f32
    }

    /// The code nearest to `value`, ties to even; NaN and overflow as the module says.
    ///
    /// Binary64 holds every binary32, so this one function rounds both, once.
    #[must_use]
    pub fn encode(self, value: f64) -> u16 {
        if value.is_nan() {
            return self.nan;
        }
        let bits = value.to_bits();
        let field = (bits >> 52 & 0x7ff) as i32;
        let stored = bits & ((1 << 52) - 1);
        // |value| = significand * 2^(exponent - 52); subnormals have no leading one.
        let (significand, exponent) =
            if field == 0 { (stored, -1022) } else { (stored | 1 << 52, field - 1023) };
        // The target's exponent field, 1 for its subnormals too.
        let target = i32::max(exponent + self.bias, 1);
        // Bits below the target's last place.
        let drop = (target - self.bias - exponent) + 52 - self.fraction as i32;
        let rounded = round(significand, drop.cast_unsigned());
        // A carry out of the fraction runs into the exponent, and from there into `overflow`.
        let code = (((target - 1) as u64) << self.fraction) + rounded;
        let magnitude = u64::min(code, u64::from(self.overflow)) as u16;
        if value.is_sign_positive() || magnitude == self.nan {
            magnitude
        } else {
            magnitude | self.sign
        }
    }

    /// The weight of the fraction's last bit under an exponent field.
    fn ulp(self, field: i32) -> f64 {
        let power = field - self.bias - self.fraction as i32;
        f64::from_bits(((power + 1023) as u64) << 52)
    }
}

/// `significand / 2^drop`, rounded to nearest, ties to even.
///
/// `significand` is below 2^53, so that everything is below a half from `drop` 54 on. `drop` is
/// at least 42 for the formats here.
fn round(significand: u64, drop: u32) -> u64 {
    if drop > 54 {
        return 0;
    }
    let floor = significand >> drop;
    let rest = significand & ((1 << drop) - 1);
    let half = (1 << drop) >> 1;
    if rest > half || (rest == half && floor & 1 == 1) { floor + 1 } else { floor }
}
