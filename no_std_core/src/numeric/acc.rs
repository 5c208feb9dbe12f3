//! Arithmetic in the accumulation types: binary64, binary32 and the integers.

use crate::{ReduceOp, Scalar};

/// A type that sums are kept in.
pub trait Acc: Copy {
    /// Bytes of one value.
    const SIZE: usize;

    /// Reads a little-endian value from the first `SIZE` bytes; 0 if there are fewer.
    fn read(bytes: &[u8]) -> Self;

    /// Writes the value to the first `SIZE` bytes, little-endian; nothing if there are fewer.
    fn write(self, bytes: &mut [u8]);

    /// A rank's weight: rounded once to nearest even, or taken modulo the integer's width.
    fn weight(scalar: Scalar) -> Self;

    /// `self * other`, rounded to nearest even; integers wrap.
    #[must_use]
    fn multiply(self, other: Self) -> Self;

    /// One merge. `Avg` and `PreMulSum` merge as `Sum` does.
    #[must_use]
    fn combine(self, op: ReduceOp, other: Self) -> Self;

    /// `self / ranks`: correctly rounded; integers truncate toward zero. `ranks` is at least 1.
    #[must_use]
    fn divide(self, ranks: u32) -> Self;

    /// The canonical NaN for every NaN, `self` otherwise.
    #[must_use]
    fn canonical(self) -> Self;
}

macro_rules! float {
    ($float:ident, $bits:ident, $nan:literal) => {
        impl Acc for $float {
            const SIZE: usize = size_of::<Self>();

            fn read(bytes: &[u8]) -> Self {
                Self::from_bits(<$bits as Acc>::read(bytes))
            }

            fn write(self, bytes: &mut [u8]) {
                <$bits as Acc>::write(self.to_bits(), bytes);
            }

            fn weight(scalar: Scalar) -> Self {
                scalar.as_f64() as Self
            }

            fn multiply(self, other: Self) -> Self {
                self * other
            }

            fn combine(self, op: ReduceOp, other: Self) -> Self {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum => self + other,
                    ReduceOp::Prod => self * other,
                    // Equal operands have equal bits but for the zeros, and there the sign bit
                    // decides: -0 | +0 = -0, the smaller one.
                    ReduceOp::Min if self == other => {
                        Self::from_bits(self.to_bits() | other.to_bits())
                    }
                    ReduceOp::Max if self == other => {
                        Self::from_bits(self.to_bits() & other.to_bits())
                    }
                    ReduceOp::Min if self < other => self,
                    ReduceOp::Max if self > other => self,
                    ReduceOp::Min | ReduceOp::Max if !self.is_nan() => other,
                    // A NaN; the bitwise operators, refused by `check`, end here as well.
                    _ => Self::from_bits($nan),
                }
            }

            fn divide(self, ranks: u32) -> Self {
                self / ranks as Self
            }

            fn canonical(self) -> Self {
                if self.is_nan() { Self::from_bits($nan) } else { self }
            }
        }
    };
}

macro_rules! integer {
    ($($int:ident)*) => {$(
        impl Acc for $int {
            const SIZE: usize = size_of::<Self>();

            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.first_chunk().copied().unwrap_or_default())
            }

            fn write(self, bytes: &mut [u8]) {
                if let Some(place) = bytes.first_chunk_mut() {
                    *place = self.to_le_bytes();
                }
            }

            fn weight(scalar: Scalar) -> Self {
                scalar.0 as Self
            }

            fn multiply(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn combine(self, op: ReduceOp, other: Self) -> Self {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum => {
                        self.wrapping_add(other)
                    }
                    ReduceOp::Prod => self.wrapping_mul(other),
                    ReduceOp::Min => Ord::min(self, other),
                    ReduceOp::Max => Ord::max(self, other),
                    ReduceOp::BitAnd => self & other,
                    ReduceOp::BitOr => self | other,
                    ReduceOp::BitXor => self ^ other,
                }
            }

            fn divide(self, ranks: u32) -> Self {
                // Wide enough for every type and every count of ranks; the quotient fits again.
                (i128::from(self) / i128::from(ranks.max(1))) as Self
            }

            fn canonical(self) -> Self {
                self
            }
        }
    )*};
}

float!(f64, u64, 0x7ff8_0000_0000_0000);
float!(f32, u32, 0x7fc0_0000);
integer!(i8 i16 i32 i64 u8 u16 u32 u64);
