//! Accumulators, one lane at a time: branch-free, so that loops over them become vector code.

use super::divisor::Divisor;
use unisono_core::Scalar;
use unisono_core::numeric::acc::Acc;

/// An accumulation type.
///
/// # Safety
/// Any bytes are a value; there is no padding.
pub unsafe trait Number: Copy + 'static {
    /// As many numbers as fit into 64 bytes.
    type Vector: AsRef<[Self]> + AsMut<[Self]> + Copy;

    /// Can it be NaN?
    const FLOAT: bool;

    /// A rank's weight.
    fn weight(scalar: Scalar) -> Self;
    /// `self + other`; integers wrap.
    fn add(self, other: Self) -> Self;
    /// `self * other`; integers wrap.
    fn mul(self, other: Self) -> Self;
    /// IEEE 754-2019 `minimum`.
    fn min(self, other: Self) -> Self;
    /// IEEE 754-2019 `maximum`.
    fn max(self, other: Self) -> Self;
    /// Divided by the number of ranks.
    fn divide(self, divisor: Divisor) -> Self;
    /// The canonical NaN for every NaN.
    fn canonical(self) -> Self;
}

/// Integers.
pub trait Bits: Number {
    /// `self & other`.
    fn and(self, other: Self) -> Self;
    /// `self | other`.
    fn or(self, other: Self) -> Self;
    /// `self ^ other`.
    fn xor(self, other: Self) -> Self;
}

/// Methods that are one expression each.
macro_rules! methods {
    ($($name:ident($a:ident $(, $b:ident: $type:ty)?) -> $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self $(, $b: $type)?) -> Self {
            let $a = self;
            $body
        }
    )*};
}

macro_rules! float {
    ($float:ident, $nan:literal) => {
        // SAFETY: a primitive number.
        unsafe impl Number for $float {
            type Vector = [$float; 64 / size_of::<$float>()];
            const FLOAT: bool = true;

            #[inline(always)]
            fn weight(scalar: Scalar) -> Self {
                <Self as Acc>::weight(scalar)
            }

            methods! {
                add(a, b: Self) -> a + b;
                mul(a, b: Self) -> a * b;
                min(a, b: Self) -> {
                    // The instruction minps: b if one is NaN. Equal operands differ at most in the
                    // sign of zero.
                    let less = if a < b { a } else { b };
                    let both = Self::from_bits(a.to_bits() | b.to_bits());
                    let less = if a == b { both } else { less };
                    if a.is_nan() { a } else { less }
                };
                max(a, b: Self) -> {
                    let more = if a > b { a } else { b };
                    let both = Self::from_bits(a.to_bits() & b.to_bits());
                    let more = if a == b { both } else { more };
                    if a.is_nan() { a } else { more }
                };
                divide(a, divisor: Divisor) -> a / divisor.ranks as Self;
                canonical(a) -> if a.is_nan() { Self::from_bits($nan) } else { a };
            }
        }
    };
}

macro_rules! integer {
    ($($int:ident |$a:ident, $ranks:ident| $quotient:expr;)*) => {$(
        // SAFETY: a primitive number.
        unsafe impl Number for $int {
            type Vector = [$int; 64 / size_of::<$int>()];
            const FLOAT: bool = false;

            #[inline(always)]
            fn weight(scalar: Scalar) -> Self {
                <Self as Acc>::weight(scalar)
            }

            methods! {
                add(a, b: Self) -> a.wrapping_add(b);
                mul(a, b: Self) -> a.wrapping_mul(b);
                min(a, b: Self) -> if a < b { a } else { b };
                max(a, b: Self) -> if a > b { a } else { b };
                divide($a, $ranks: Divisor) -> $quotient;
                canonical(a) -> a;
            }
        }

        impl Bits for $int {
            methods! {
                and(a, b: Self) -> a & b;
                or(a, b: Self) -> a | b;
                xor(a, b: Self) -> a ^ b;
            }
        }
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

float!(f64, 0x7ff8_0000_0000_0000);
float!(f32, 0x7fc0_0000);
integer! {
    i8 |a, ranks| by_f32(f32::from(a), ranks) as i8;
    u8 |a, ranks| by_f32(f32::from(a), ranks) as u8;
    i16 |a, ranks| by_f32(f32::from(a), ranks) as i16;
    u16 |a, ranks| by_f32(f32::from(a), ranks) as u16;
    // SAFETY: a quotient is not NaN, and no larger than its numerator.
    i32 |a, ranks| unsafe { by_f64(f64::from(a), ranks).to_int_unchecked() };
    // SAFETY: as above.
    u32 |a, ranks| unsafe { by_f64(f64::from(a), ranks).to_int_unchecked() };
    i64 |a, ranks| ranks.divide_signed(a);
    u64 |a, ranks| ranks.divide(a);
}
