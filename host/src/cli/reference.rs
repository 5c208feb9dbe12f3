//! What a result must be: the scalar fold in canonical order, and a nearly exact value to measure
//! rounding errors against.

use unisono::{DType, ReduceOp, Scalar};
use unisono_core::fold::leaf_merges;
use unisono_core::numeric::{self, FoldError};
use unisono_core::{Finish, Form, Source};

/// The bits that the canonical order defines: one tensor a rank into `dst`.
pub fn fold(
    dtype: DType,
    op: ReduceOp,
    tensors: &[&[u8]],
    weights: &[Scalar],
    dst: &mut [u8],
) -> Result<(), FoldError> {
    let ranks = tensors.len() as u32;
    let sources: Vec<_> = tensors
        .iter()
        .zip(weights)
        .zip(leaf_merges(ranks))
        .map(|((&mem, &weight), merges)| Source { mem, form: Form::Leaf, weight, merges })
        .collect();
    numeric::fold(dtype, Some(op), Finish::Final { ranks }, &sources, dst)
}

/// What element `i` would be without rounding, and how large the terms were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exact {
    /// The value.
    pub value: f64,
    /// Sum (product) of the absolute values: rounding errors are in proportion to it.
    pub magnitude: f64,
}

/// Element `i` in binary64, sums with Neumaier's compensation; `None` past the end and for bitwise
/// operators.
pub fn exact(
    dtype: DType,
    op: ReduceOp,
    tensors: &[&[u8]],
    weights: &[Scalar],
    i: usize,
) -> Option<Exact> {
    use ReduceOp::{Avg, Max, Min, PreMulSum, Prod, Sum};
    let mut total: Option<Exact> = None;
    let mut lost = 0.0;
    for (tensor, weight) in tensors.iter().zip(weights) {
        let mut x = numeric::read_f64(dtype, tensor, i)?;
        if op == PreMulSum {
            x *= weight_of(dtype, *weight);
        }
        let Some(Exact { value, magnitude }) = total else {
            total = Some(Exact { value: x, magnitude: x.abs() });
            continue;
        };
        total = Some(match op {
            Sum | Avg | PreMulSum => {
                let sum = value + x;
                let (big, small) = if value.abs() >= x.abs() { (value, x) } else { (x, value) };
                lost += (big - sum) + small;
                Exact { value: sum, magnitude: magnitude + x.abs() }
            }
            Prod => Exact { value: value * x, magnitude: magnitude * x.abs() },
            _ if value.is_nan() || x.is_nan() => Exact { value: f64::NAN, magnitude },
            Min => Exact { value: value.min(x), magnitude: magnitude.max(x.abs()) },
            Max => Exact { value: value.max(x), magnitude: magnitude.max(x.abs()) },
            _ => return None,
        });
    }
    let Exact { value, magnitude } = total?;
    // Of infinities nothing is lost, but the compensation would be a NaN.
    let value = if lost.is_finite() { value + lost } else { value };
    let ranks = if op == Avg { tensors.len() as f64 } else { 1.0 };
    Some(Exact { value: value / ranks, magnitude: magnitude / ranks })
}

/// A weight as it enters the products: rounded to the accumulation type.
fn weight_of(dtype: DType, weight: Scalar) -> f64 {
    match dtype.acc() {
        DType::F64 => weight.as_f64(),
        DType::F32 => f64::from(weight.as_f64() as f32),
        _ => weight.0.cast_signed() as f64,
    }
}

/// Distance between two neighbouring numbers of a floating type near `value`; `None` for integers.
pub fn ulp(dtype: DType, value: f64) -> Option<f64> {
    // Bits of the fraction, and the exponent of the smallest normal number.
    let (fraction, least) = match dtype {
        DType::F64 => (52, -1022),
        DType::F32 => (23, -126),
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        DType::F8E4M3 => (3, -6),
        DType::F8E5M2 => (2, -14),
        _ => return None,
    };
    let bits = (value.abs().to_bits() >> 52) as i32;
    let exponent = (bits - 1023).max(least);
    Some(power_of_two(exponent - fraction))
}

/// 2^e for any e whose power is a binary64, subnormals included.
fn power_of_two(e: i32) -> f64 {
    match e {
        -1022.. => f64::from_bits(((e.min(1023) + 1023) as u64) << 52),
        _ => f64::from_bits(1 << (e + 1074).max(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono::ReduceOp::{Avg, BitXor, Max, PreMulSum, Sum};

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn the_fold_is_the_canonical_tree() -> Result<(), FoldError> {
        let values = [1e8f32, 1.0, -1e8, 1.0, 3.0];
        let tensors: Vec<_> = values.iter().map(|&v| f32s(&[v])).collect();
        let tensors: Vec<_> = tensors.iter().map(Vec::as_slice).collect();
        let weights = [Scalar::one(DType::F32); 5];
        let mut got = [0; 4];
        fold(DType::F32, Sum, &tensors, &weights, &mut got)?;
        let want = ((values[0] + values[1]) + (values[2] + values[3])) + values[4];
        assert_eq!(f32::from_le_bytes(got), want);
        let exact = exact(DType::F32, Sum, &tensors, &weights, 0);
        assert_eq!(exact.map(|e| e.value), Some(5.0));
        Ok(())
    }

    #[test]
    fn exact_values_know_the_operators() {
        let (a, b) = (f32s(&[3.0]), f32s(&[-5.0]));
        let weights = [Scalar::from_f64(2.0), Scalar::from_f64(10.0)];
        let value = |op| exact(DType::F32, op, &[&a, &b], &weights, 0);
        assert_eq!(value(Avg), Some(Exact { value: -1.0, magnitude: 4.0 }));
        assert_eq!(value(PreMulSum), Some(Exact { value: -44.0, magnitude: 56.0 }));
        assert_eq!(value(Max), Some(Exact { value: 3.0, magnitude: 5.0 }));
        assert_eq!(value(BitXor), None);
        let inf = f32s(&[f32::INFINITY]);
        let sum = exact(DType::F32, Sum, &[&inf, &a, &inf], &[weights[0]; 3], 0);
        assert_eq!(sum.map(|e| e.value), Some(f64::INFINITY));
    }

    #[test]
    fn ulps_are_those_of_the_type() {
        assert_eq!(ulp(DType::F64, 1.0), Some(f64::EPSILON));
        assert_eq!(ulp(DType::F32, 1.5), Some(f64::from(f32::EPSILON)));
        assert_eq!(ulp(DType::F32, 0.0), Some(f64::from(f32::from_bits(1))));
        assert_eq!(ulp(DType::F64, 0.0), Some(f64::from_bits(1)));
        assert_eq!(ulp(DType::F8E4M3, 448.0), Some(32.0));
        assert_eq!(ulp(DType::I8, 1.0), None);
    }
}
