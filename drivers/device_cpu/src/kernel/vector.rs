//! Arithmetic on 64 bytes of accumulators.

use super::divisor::Divisor;
use unisono_core::Scalar;
use unisono_core::numeric::acc::Acc;

/// An array of numbers for which every bit pattern is a value.
///
/// # Safety
/// All zero bytes, and any other bytes, are a valid value; there is no padding.
pub unsafe trait Plain: Copy {}

// SAFETY: arrays of primitive numbers.
unsafe impl<const N: usize> Plain for [u8; N] {}
// SAFETY: as above.
unsafe impl<const N: usize> Plain for [u16; N] {}

/// 64 bytes of accumulators.
pub trait Vector: Plain {
    /// One accumulator.
    type Lane: Copy;
    /// How many.
    const LANES: usize;

    /// A weight, and the weight that changes nothing.
    fn weight(scalar: Option<Scalar>) -> Self::Lane;
    /// Lane by lane `self + other`; integers wrap.
    fn add(self, other: Self) -> Self;
    /// Lane by lane `self * other`; integers wrap.
    fn mul(self, other: Self) -> Self;
    /// Lane by lane IEEE 754-2019 `minimum`.
    fn min(self, other: Self) -> Self;
    /// Lane by lane IEEE 754-2019 `maximum`.
    fn max(self, other: Self) -> Self;
    /// Every lane times `weight`.
    fn scale(self, weight: Self::Lane) -> Self;
    /// Every lane divided by the number of ranks.
    fn divide(self, divisor: Divisor) -> Self;
    /// Every NaN the canonical one.
    fn canonical(self) -> Self;
}

/// Integers.
pub trait Bits: Vector {
    /// Lane by lane `self & other`.
    fn and(self, other: Self) -> Self;
    /// Lane by lane `self | other`.
    fn or(self, other: Self) -> Self;
    /// Lane by lane `self ^ other`.
    fn xor(self, other: Self) -> Self;
}

/// A method with one expression for every lane, of `self` and another vector.
macro_rules! zip {
    ($name:ident($a:ident, $b:ident) $body:expr) => {
        #[inline(always)]
        fn $name(mut self, other: Self) -> Self {
            for i in 0..Self::LANES {
                let ($a, $b) = (self[i], other[i]);
                self[i] = $body;
            }
            self
        }
    };
}

/// A method with one expression for every lane, of `self` and values common to all lanes.
macro_rules! map {
    ($name:ident($a:ident $(, $common:ident: $type:ty)?) $body:expr) => {
        #[inline(always)]
        fn $name(mut self $(, $common: $type)?) -> Self {
            for i in 0..Self::LANES {
                let $a = self[i];
                self[i] = $body;
            }
            self
        }
    };
}

macro_rules! float {
    ($lane:ident $lanes:literal $nan:literal) => {
        // SAFETY: an array of primitive numbers.
        unsafe impl Plain for [$lane; $lanes] {}

        impl Vector for [$lane; $lanes] {
            type Lane = $lane;
            const LANES: usize = $lanes;

            #[inline(always)]
            fn weight(scalar: Option<Scalar>) -> $lane {
                scalar.map_or(1.0, <$lane as Acc>::weight)
            }

            zip!(add(a, b) a + b);
            zip!(mul(a, b) a * b);
            zip!(min(a, b) {
                // `less` is the minps instruction: b if one is NaN. Equal operands differ at most
                // in the sign of zero.
                let less = if a < b { a } else { b };
                let less = if a == b { $lane::from_bits(a.to_bits() | b.to_bits()) } else { less };
                if a.is_nan() { a } else { less }
            });
            zip!(max(a, b) {
                let more = if a > b { a } else { b };
                let more = if a == b { $lane::from_bits(a.to_bits() & b.to_bits()) } else { more };
                if a.is_nan() { a } else { more }
            });
            map!(scale(a, weight: $lane) a * weight);
            map!(divide(a, divisor: Divisor) a / divisor.ranks as $lane);
            map!(canonical(a) if a.is_nan() { $lane::from_bits($nan) } else { a });
        }
    };
}

macro_rules! integer {
    ($lane:ident $lanes:literal |$a:ident, $ranks:ident| $quotient:expr) => {
        impl Vector for [$lane; $lanes] {
            type Lane = $lane;
            const LANES: usize = $lanes;

            #[inline(always)]
            fn weight(scalar: Option<Scalar>) -> $lane {
                scalar.map_or(1, <$lane as Acc>::weight)
            }

            zip!(add(a, b) a.wrapping_add(b));
            zip!(mul(a, b) a.wrapping_mul(b));
            zip!(min(a, b) if a < b { a } else { b });
            zip!(max(a, b) if a > b { a } else { b });
            map!(scale(a, weight: $lane) a.wrapping_mul(weight));
            map!(divide($a, $ranks: Divisor) $quotient);

            #[inline(always)]
            fn canonical(self) -> Self {
                self
            }
        }

        impl Bits for [$lane; $lanes] {
            zip!(and(a, b) a & b);
            zip!(or(a, b) a | b);
            zip!(xor(a, b) a ^ b);
        }
    };
}

macro_rules! plain {
    ($($lane:ident $lanes:literal)*) => {$(
        // SAFETY: an array of primitive numbers.
        unsafe impl Plain for [$lane; $lanes] {}
    )*};
}

/// Truncated quotient of at most 16 bits, by binary32: a quotient that is no integer lies at least
/// `1 / ranks` from the next one, its rounding error is below `2^16 / ranks * 2^-24`.
#[inline(always)]
fn by_f32(a: f32, divisor: Divisor) -> i32 {
    // SAFETY: not NaN, and no larger than `a`, a 16-bit integer.
    unsafe { (a / divisor.ranks as f32).to_int_unchecked() }
}

/// The same for 32 bits, by binary64: error below `2^32 / ranks * 2^-53`.
#[inline(always)]
fn by_f64(a: f64, divisor: Divisor) -> f64 {
    a / f64::from(divisor.ranks)
}

plain!(i8 64 i16 32 i32 16 u32 16 i64 8 u64 8);
float!(f64 8 0x7ff8_0000_0000_0000);
float!(f32 16 0x7fc0_0000);
integer!(i8 64 |a, ranks| by_f32(f32::from(a), ranks) as i8);
integer!(u8 64 |a, ranks| by_f32(f32::from(a), ranks) as u8);
integer!(i16 32 |a, ranks| by_f32(f32::from(a), ranks) as i16);
integer!(u16 32 |a, ranks| by_f32(f32::from(a), ranks) as u16);
// SAFETY: a quotient is not NaN, and no larger than its numerator.
integer!(i32 16 |a, ranks| unsafe { by_f64(f64::from(a), ranks).to_int_unchecked() });
// SAFETY: as above.
integer!(u32 16 |a, ranks| unsafe { by_f64(f64::from(a), ranks).to_int_unchecked() });
integer!(i64 8 |a, ranks| ranks.divide_signed(a));
integer!(u64 8 |a, ranks| ranks.divide(a));
