//! Element types, reduction operators and the scalar that `PreMulSum` multiplies by.

use serde::{Deserialize, Serialize};

/// Type of one tensor element. Multi-byte values are little-endian everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum DType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// OCP FP8 E4M3 "fn": no infinities, one NaN pattern (0x7f / 0xff), largest value 448.
    F8E4M3,
    /// OCP FP8 E5M2: infinities and NaN as in IEEE 754, largest finite value 57344.
    F8E5M2,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
}

impl DType {
    /// Every type, in the order of their wire codes.
    pub const ALL: [Self; 14] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::F8E4M3,
        Self::F8E5M2,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
    ];

    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::F8E4M3 | Self::F8E5M2 | Self::I8 | Self::U8 => 1,
        }
    }

    /// The type that sums are kept in until the final rounding (`docs/NUMERICS.md`).
    #[must_use]
    pub const fn acc(self) -> Self {
        match self {
            Self::F16 | Self::BF16 | Self::F8E4M3 | Self::F8E5M2 => Self::F32,
            other => other,
        }
    }

    /// Is this one of the floating-point types?
    #[must_use]
    pub const fn is_float(self) -> bool {
        (self as u8) < (Self::I8 as u8)
    }

    /// Is this a signed integer type?
    #[must_use]
    pub const fn is_signed_int(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }

    /// Short name: `f64 f32 f16 bf16 f8e4m3 f8e5m2 i8 … u64`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F8E4M3 => "f8e4m3",
            Self::F8E5M2 => "f8e5m2",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
        }
    }
}

impl core::fmt::Display for DType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

/// How elements of the same index are combined over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum ReduceOp {
    /// Sum; integers wrap.
    Sum,
    /// Product; integers wrap.
    Prod,
    /// IEEE 754-2019 `minimum`: NaN wins, -0 < +0.
    Min,
    /// IEEE 754-2019 `maximum`: NaN wins, -0 < +0.
    Max,
    /// Sum, then one correctly rounded division by the number of contributing ranks.
    Avg,
    /// Sum of products with one weight a rank; each product is rounded to the accumulation type.
    PreMulSum,
    /// Bitwise and (integers only).
    BitAnd,
    /// Bitwise or (integers only).
    BitOr,
    /// Bitwise exclusive or (integers only).
    BitXor,
}

impl ReduceOp {
    /// Every operator, in the order of their wire codes.
    pub const ALL: [Self; 9] = [
        Self::Sum,
        Self::Prod,
        Self::Min,
        Self::Max,
        Self::Avg,
        Self::PreMulSum,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
    ];

    /// Bitwise operators exist for integers only; everything else for every type.
    #[must_use]
    pub const fn supports(self, dtype: DType) -> bool {
        match self {
            Self::BitAnd | Self::BitOr | Self::BitXor => !dtype.is_float(),
            _ => true,
        }
    }

    /// Does every order of the fold give the same bits (integers, min, max, bitwise)?
    #[must_use]
    pub const fn is_exact(self, dtype: DType) -> bool {
        !dtype.is_float() || matches!(self, Self::Min | Self::Max)
    }

    /// Name as nccl-tests prints it, plus the bitwise operators: `sum prod min max avg mulsum …`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::PreMulSum => "mulsum",
            Self::BitAnd => "and",
            Self::BitOr => "or",
            Self::BitXor => "xor",
        }
    }
}

impl core::fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

/// A rank's `PreMulSum` weight, 64 bits whatever the tensor's type.
///
/// For floating types it is a binary64 that is rounded once to the accumulation type; for integers
/// it is a two's complement integer, taken modulo the type's width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Scalar(pub u64);

impl Scalar {
    /// A weight for floating types.
    #[must_use]
    pub const fn from_f64(value: f64) -> Self {
        Self(value.to_bits())
    }

    /// A weight for integer types.
    #[must_use]
    pub const fn from_i64(value: i64) -> Self {
        Self(value.cast_unsigned())
    }

    /// The neutral weight of `dtype`.
    #[must_use]
    pub const fn one(dtype: DType) -> Self {
        if dtype.is_float() { Self::from_f64(1.0) } else { Self::from_i64(1) }
    }

    /// The weight as a binary64 (meaningful for floating types).
    #[must_use]
    pub const fn as_f64(self) -> f64 {
        f64::from_bits(self.0)
    }
}
