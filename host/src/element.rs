//! Element types of typed tensors, and reductions with their weights.

use half::{bf16, f16};
use unisono_core::{DType, ReduceOp, Scalar};

/// A type whose slices are tensors.
///
/// # Safety
/// The type has exactly the size and layout of `DTYPE`, every bit pattern is a value, and it has
/// no padding.
pub unsafe trait Element: Copy + Send + Sync + Default + 'static {
    /// What it is on the wire.
    const DTYPE: DType;
}

/// OCP FP8 E4M3 ("fn"), by its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F8E4M3(pub u8);

/// OCP FP8 E5M2, by its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F8E5M2(pub u8);

macro_rules! elements {
    ($($t:ty => $d:ident),* $(,)?) => {
        $(
            // SAFETY: plain old data of the type's size, every bit pattern valid.
            unsafe impl Element for $t {
                const DTYPE: DType = DType::$d;
            }
        )*
    };
}

elements! {
    f64 => F64, f32 => F32, f16 => F16, bf16 => BF16, F8E4M3 => F8E4M3, F8E5M2 => F8E5M2,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64,
}

/// An operator and, for `PreMulSum`, this rank's weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    /// The operator.
    pub op: ReduceOp,
    /// The weight; `None` is 1.
    pub weight: Option<Weight>,
}

/// A weight as the caller has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weight {
    /// For floating types (rounded to the accumulation type) and integers (must be whole).
    Float(f64),
    /// For integers (from -2^63 to 2^63 - 1, for `u64` to 2^64 - 1) and floating types alike.
    Int(i128),
}

/// `PreMulSum`: this rank's contribution times a weight, then the sum over the ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighted(pub f64);

impl From<ReduceOp> for Reduction {
    fn from(op: ReduceOp) -> Self {
        Self { op, weight: None }
    }
}

impl From<Weighted> for Reduction {
    fn from(weight: Weighted) -> Self {
        Self { op: ReduceOp::PreMulSum, weight: Some(Weight::Float(weight.0)) }
    }
}

impl Reduction {
    /// The weight as the core wants it for this type; `None` if it is no whole number, or none of
    /// 64 bits, and the type is an integer.
    #[must_use]
    pub fn scalar(&self, dtype: DType) -> Option<Scalar> {
        match (self.weight, dtype.is_float()) {
            (None, _) => Some(Scalar::one(dtype)),
            (Some(Weight::Float(w)), true) => Some(Scalar::from_f64(w)),
            (Some(Weight::Int(w)), true) => Some(Scalar::from_f64(w as f64)),
            (Some(Weight::Int(w)), false) => integer(w, dtype),
            (Some(Weight::Float(w)), false) => {
                let whole = w as i128;
                // What does not fit 128 bits became another number, too large for 64 bits as well.
                if whole as f64 == w { integer(whole, dtype) } else { None }
            }
        }
    }
}

/// A whole weight for an integer type. Every type takes the integers of 64 bits with a sign, modulo
/// its width; larger ones would change their sign in all types but one.
fn integer(weight: i128, dtype: DType) -> Option<Scalar> {
    match (i64::try_from(weight), u64::try_from(weight)) {
        (Ok(weight), _) => Some(Scalar::from_i64(weight)),
        (_, Ok(weight)) if dtype == DType::U64 => Some(Scalar(weight)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_weights_have_64_bits() {
        let scalar = |weight, dtype| {
            Reduction { op: ReduceOp::PreMulSum, weight: Some(weight) }.scalar(dtype)
        };
        let two_63 = 9_223_372_036_854_775_808.0;
        for weight in [Weight::Float(two_63), Weight::Int(1 << 63)] {
            assert_eq!(scalar(weight, DType::U64), Some(Scalar(1 << 63)));
            for dtype in [DType::I64, DType::U32, DType::I8] {
                assert_eq!(scalar(weight, dtype), None, "{dtype}");
            }
        }
        for weight in [Weight::Float(-two_63), Weight::Int(-1 << 63)] {
            assert_eq!(scalar(weight, DType::I64), Some(Scalar(1 << 63)));
        }
        for float in [0.5, -2.0 * two_63, 2.0 * two_63, 1e300, f64::INFINITY, f64::NAN] {
            assert_eq!(scalar(Weight::Float(float), DType::U64), None, "{float}");
            let same = scalar(Weight::Float(float), DType::F64);
            assert_eq!(same, Some(Scalar::from_f64(float)));
        }
        assert_eq!(scalar(Weight::Int(1 << 64), DType::U64), None);
    }
}
