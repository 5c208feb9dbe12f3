//! Test data: random elements that repeat after a prime number of them.
//!
//! As every rank's tensor repeats, so does the result: one period of the reference is enough for
//! tensors of any size, and as the period shares no factor with chunks or blocks, a chunk in the
//! wrong place does not pass.

use super::super::reference;
use std::sync::Arc;
use unisono::{DType, Kind, ReduceOp, Scalar};
use unisono_core::numeric::{self, FoldError};

/// Elements after which the data repeat.
pub const PERIOD: usize = 65_521;

/// One period of every rank's data and of their reduction.
pub struct Tables {
    dtype: DType,
    /// The operator of the reduction; `None` where nothing is reduced.
    pub op: Option<ReduceOp>,
    /// By rank; the same for every operator.
    pub ranks: Arc<[Vec<u8>]>,
    /// Of all ranks, in canonical order.
    pub reduced: Vec<u8>,
    /// Every rank's `PreMulSum` weight: 1 for even ranks, 2 for odd ones.
    pub weights: Vec<Scalar>,
}

impl Tables {
    /// The data of runs with these operators.
    pub fn all(
        dtype: DType,
        ops: &[Option<ReduceOp>],
        ranks: usize,
    ) -> Result<Vec<Self>, FoldError> {
        let tables: Arc<[_]> = (0..ranks).map(|rank| table(dtype, rank)).collect();
        ops.iter().map(|&op| Self::new(dtype, op, tables.clone())).collect()
    }

    fn new(dtype: DType, op: Option<ReduceOp>, tables: Arc<[Vec<u8>]>) -> Result<Self, FoldError> {
        let weight = |rank: usize| match (rank % 2, dtype.is_float()) {
            (0, _) => Scalar::one(dtype),
            (_, true) => Scalar::from_f64(2.0),
            (_, false) => Scalar::from_i64(2),
        };
        let weights: Vec<_> = (0..tables.len()).map(weight).collect();
        let mut reduced = Vec::new();
        if let Some(op) = op {
            let sources: Vec<_> = tables.iter().map(Vec::as_slice).collect();
            reduced = vec![0; PERIOD * dtype.size()];
            reference::fold(dtype, op, &sources, &weights, &mut reduced)?;
        }
        Ok(Self { dtype, op, ranks: tables, reduced, weights })
    }

    /// Fills `bytes` with a rank's data, which begin with element `first`.
    pub fn fill(&self, rank: usize, first: u64, bytes: &mut [u8]) {
        for (span, table) in segments(self.dtype, first, bytes.len()) {
            bytes[span].copy_from_slice(&self.ranks[rank][table]);
        }
    }

    /// Elements of `got` that are not those of `table` from element `first` on.
    pub fn differ(&self, table: &[u8], first: u64, got: &[u8]) -> u64 {
        let size = self.dtype.size();
        let mut differ = 0;
        for (span, want) in segments(self.dtype, first, got.len()) {
            let (got, want) = (&got[span], &table[want]);
            if got != want {
                let both = got.chunks_exact(size).zip(want.chunks_exact(size));
                differ += both.filter(|(a, b)| a != b).count() as u64;
            }
        }
        differ
    }

    /// Elements of `got` that are too far from the exact value: more than n roundings of the sum of
    /// the absolute values, and one of the result.
    pub fn far(&self, op: ReduceOp, first: u64, got: &[u8]) -> u64 {
        let sources: Vec<_> = self.ranks.iter().map(Vec::as_slice).collect();
        let limit = |i: usize| {
            let exact = reference::exact(self.dtype, op, &sources, &self.weights, i)?;
            let ulp = |dtype, value| reference::ulp(dtype, value).unwrap_or(0.0);
            let terms = sources.len() as f64 * ulp(self.dtype.acc(), exact.magnitude);
            Some((exact.value, terms + ulp(self.dtype, exact.value)))
        };
        let limits: Vec<_> = (0..PERIOD).map(limit).collect();
        let count = got.len() / self.dtype.size();
        let is_far = |&i: &usize| {
            let at = ((first + i as u64) % PERIOD as u64) as usize;
            let got = numeric::read_f64(self.dtype, got, i);
            match (got, limits[at]) {
                (Some(got), Some((exact, limit))) if exact.is_finite() => {
                    got.is_nan() || (got - exact).abs() > limit
                }
                // The exact value overflows, so what is left of it depends on the order.
                (Some(_), Some(_)) => false,
                _ => true,
            }
        };
        (0..count).filter(is_far).count() as u64
    }

    /// Which table, and which element of it, block `block` of `rank`'s result begins with.
    pub fn expected(&self, kind: Kind, rank: usize, block: usize, count: u64) -> (&[u8], u64) {
        let start = |block: usize| block as u64 * count;
        match kind {
            Kind::ReduceScatter => (&self.reduced, start(rank)),
            Kind::AllGather => (&self.ranks[block], start(block)),
            Kind::AllToAll => (&self.ranks[block], start(rank)),
            Kind::Broadcast => (&self.ranks[block], 0),
            Kind::AllReduce | Kind::Reduce | Kind::Barrier => (&self.reduced, 0),
        }
    }
}

/// Cuts a tensor of so many bytes at the ends of periods: spans of it and of the table.
fn segments(
    dtype: DType,
    first: u64,
    bytes: usize,
) -> impl Iterator<Item = (std::ops::Range<usize>, std::ops::Range<usize>)> {
    let period = PERIOD * dtype.size();
    let mut table = (first % PERIOD as u64) as usize * dtype.size();
    let mut at = 0;
    std::iter::from_fn(move || {
        let length = (period - table).min(bytes - at);
        let segment = (at..at + length, table..table + length);
        at += length;
        table = 0;
        (length > 0).then_some(segment)
    })
}

/// One period of a rank's data: floats in -1..1, any integers.
fn table(dtype: DType, rank: usize) -> Vec<u8> {
    let size = dtype.size();
    let mut bytes = vec![0; PERIOD * size];
    for i in 0..PERIOD {
        let random = mix((rank as u64) << 32 | i as u64);
        if dtype.is_float() {
            let value = (random >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
            // The index is within the table.
            let _ = numeric::write_f64(dtype, &mut bytes, i, value);
        } else {
            bytes[i * size..(i + 1) * size].copy_from_slice(&random.to_le_bytes()[..size]);
        }
    }
    bytes
}

/// The finaliser of SplitMix64.
const fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted() -> Result<(), FoldError> {
        let tables = &Tables::all(DType::F32, &[Some(ReduceOp::Sum)], 3)?[0];
        let mut tensor = vec![0; 4 * (2 * PERIOD + 10)];
        tables.fill(1, 5, &mut tensor);
        assert_eq!(tables.differ(&tables.ranks[1], 5, &tensor), 0);
        assert!(tables.differ(&tables.ranks[1], 6, &tensor) > PERIOD as u64);
        assert!(tables.differ(&tables.ranks[2], 5, &tensor) > PERIOD as u64);
        tensor[4 * PERIOD] ^= 1;
        tensor[4 * PERIOD + 3] ^= 1;
        tensor[8 * PERIOD] ^= 1;
        assert_eq!(tables.differ(&tables.ranks[1], 5, &tensor), 2);
        Ok(())
    }

    #[test]
    fn rounding_is_near_and_wrong_data_are_far() -> Result<(), FoldError> {
        for dtype in [DType::F64, DType::F32, DType::BF16, DType::F8E4M3] {
            for op in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Prod, ReduceOp::PreMulSum] {
                let tables = &Tables::all(dtype, &[Some(op)], 5)?[0];
                let mut result = tables.reduced.clone();
                assert_eq!(tables.far(op, 0, &result), 0, "{dtype} {op}");
                result.rotate_left(dtype.size());
                assert!(tables.far(op, 0, &result) > PERIOD as u64 / 2, "{dtype} {op}");
                result.fill(0xff);
                assert_eq!(tables.far(op, 0, &result), PERIOD as u64, "NaN as {dtype} {op}");
            }
        }
        Ok(())
    }
}
