//! Single elements as binary64 or as integers: for error statistics, test data and messages.

use super::small::{BF16, F8E4M3, F8E5M2, F16};
use crate::DType;

/// Bytes of element `i`, if it lies in `bytes`.
fn span(dtype: DType, i: usize) -> Option<core::ops::Range<usize>> {
    let at = i.checked_mul(dtype.size())?;
    Some(at..at.checked_add(dtype.size())?)
}

/// Up to eight little-endian bytes as an integer.
fn raw(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// Element `i` as binary64, `None` past the end.
///
/// Exact for all types but 64-bit integers, which are rounded to nearest even.
#[must_use]
pub fn read_f64(dtype: DType, bytes: &[u8], i: usize) -> Option<f64> {
    let code = raw(bytes.get(span(dtype, i)?)?);
    Some(match dtype {
        DType::F64 => f64::from_bits(code),
        DType::F32 => f64::from(f32::from_bits(code as u32)),
        DType::F16 => f64::from(F16.decode(code as u16)),
        DType::BF16 => f64::from(BF16.decode(code as u16)),
        DType::F8E4M3 => f64::from(F8E4M3.decode(code as u16)),
        DType::F8E5M2 => f64::from(F8E5M2.decode(code as u16)),
        _ => integer(dtype, code)? as f64,
    })
}

/// Element `i` of an integer type, exact; `None` past the end and for floating types.
#[must_use]
pub fn read_int(dtype: DType, bytes: &[u8], i: usize) -> Option<i128> {
    integer(dtype, raw(bytes.get(span(dtype, i)?)?))
}

/// An integer from its zero-extended bits.
fn integer(dtype: DType, code: u64) -> Option<i128> {
    Some(match dtype {
        DType::I8 => i128::from(code as i8),
        DType::I16 => i128::from(code as i16),
        DType::I32 => i128::from(code as i32),
        DType::I64 => i128::from(code as i64),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => i128::from(code),
        _ => return None,
    })
}

/// Writes `value` to element `i`, rounded once; `None` past the end.
///
/// Floating types round to nearest even, NaN becomes the canonical one. Integers truncate toward
/// zero and saturate, NaN becomes 0.
pub fn write_f64(dtype: DType, bytes: &mut [u8], i: usize, value: f64) -> Option<()> {
    let out = bytes.get_mut(span(dtype, i)?)?;
    let code = match dtype {
        DType::F64 if value.is_nan() => 0x7ff8_0000_0000_0000,
        DType::F64 => value.to_bits(),
        DType::F32 if value.is_nan() => 0x7fc0_0000,
        DType::F32 => u64::from((value as f32).to_bits()),
        DType::F16 => u64::from(F16.encode(value)),
        DType::BF16 => u64::from(BF16.encode(value)),
        DType::F8E4M3 => u64::from(F8E4M3.encode(value)),
        DType::F8E5M2 => u64::from(F8E5M2.encode(value)),
        DType::I8 => (value as i8) as u64,
        DType::I16 => (value as i16) as u64,
        DType::I32 => (value as i32) as u64,
        DType::I64 => (value as i64) as u64,
        DType::U8 => (value as u8) as u64,
        DType::U16 => (value as u16) as u64,
        DType::U32 => (value as u32) as u64,
        DType::U64 => value as u64,
    };
    out.copy_from_slice(&code.to_le_bytes()[..dtype.size()]);
    Some(())
}
