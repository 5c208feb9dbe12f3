//! The scalar reference: the code in this folder *defines* the bits of every result.
//!
//! [`fold`] runs the stack program of [`crate::fold`] one element at a time, with no regard for
//! speed. A device driver is right if it gives the same bytes; `docs/NUMERICS.md` says the same in
//! words. The parts:
//!
//! * [`small`]: f16, bf16 and the two fp8 types, to and from binary32, rounded once;
//! * [`acc`]: arithmetic in the accumulation types (binary64, binary32, the integers);
//! * [`access`]: single elements as binary64 or integer, for statistics and test data.
//!
//! The code assumes the floating-point environment that Rust assumes everywhere: round to nearest
//! even, subnormals kept (no flush-to-zero), no contraction to fused multiply-add.

pub mod acc;
pub mod access;
mod element;
pub mod small;

#[cfg(test)]
mod tests;

pub use access::{read_f64, read_int, write_f64};

use crate::bytes::copy;
use crate::{DType, Finish, Form, ReduceOp, Source};
use acc::Acc;
use element::{Bf16, Element, F8e4m3, F8e5m2, F16};

/// Most values that a fold program may hold at a time: enough for 2^32 leaves.
pub const DEPTH: usize = 32;

/// Most ranks that `Avg` divides by: up to here the count is exact in binary32.
pub const RANKS_MAX: u32 = 1 << 24;

/// Why a fold was refused. Nothing was written then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum FoldError {
    /// The merges pop an empty stack, or do not leave exactly one value.
    #[error("the merge program does not leave exactly one value")]
    Program,
    /// More than [`DEPTH`] values at a time.
    #[error("the merge program needs more than {DEPTH} accumulators")]
    Depth,
    /// A source's form does not fit: a finished value in a reduction.
    #[error("a finished value cannot be folded again")]
    Form,
    /// The operator does not exist for the element type.
    #[error("a bitwise operator on a floating-point type")]
    Op,
    /// A span is not a whole number of elements, or spans differ in elements.
    #[error("the spans of a fold differ in length")]
    Size,
    /// `Avg` over 0 ranks, or over more than [`RANKS_MAX`].
    #[error("an average over no rank, or over too many")]
    Ranks,
}

/// Bytes of one element of a span in the given form.
#[must_use]
pub const fn form_size(dtype: DType, form: Form) -> usize {
    match form {
        Form::Partial => dtype.acc().size(),
        Form::Leaf | Form::Final => dtype.size(),
    }
}

/// Bytes of one element that a fold stores.
///
/// A plain copy (`op` is `None`) stores what its source holds, whatever `finish` says.
#[must_use]
pub fn dest_size<M>(
    dtype: DType,
    op: Option<ReduceOp>,
    finish: Finish,
    sources: &[Source<M>],
) -> usize {
    match (op, finish, sources.first()) {
        (None, _, Some(source)) => form_size(dtype, source.form),
        (_, Finish::Partial, _) => dtype.acc().size(),
        (_, Finish::Final { .. }, _) => dtype.size(),
    }
}

/// Checks all of a fold but the lengths of its spans. Drivers and the reference share this.
///
/// # Errors
/// Every [`FoldError`] except [`FoldError::Size`].
pub fn check<M>(
    dtype: DType,
    op: Option<ReduceOp>,
    finish: Finish,
    sources: &[Source<M>],
) -> Result<(), FoldError> {
    if !crate::fold::check_merges(sources.iter().map(|s| s.merges)) {
        return Err(FoldError::Program);
    }
    let Some(op) = op else {
        return if sources.len() == 1 { Ok(()) } else { Err(FoldError::Program) };
    };
    let mut depth = 0;
    for source in sources {
        depth += 1;
        if depth > DEPTH {
            return Err(FoldError::Depth);
        }
        depth -= usize::from(source.merges);
        if source.form == Form::Final {
            return Err(FoldError::Form);
        }
    }
    if !op.supports(dtype) {
        return Err(FoldError::Op);
    }
    match finish {
        Finish::Final { ranks } if op == ReduceOp::Avg && !(1..=RANKS_MAX).contains(&ranks) => {
            Err(FoldError::Ranks)
        }
        _ => Ok(()),
    }
}

/// Folds `sources` into `dst`, element by element, as [`crate::fold`] describes.
///
/// Spans are little-endian and may start at any address. Leaves and finished values take
/// `dtype.size()` bytes an element, partial ones `dtype.acc().size()`; the number of elements
/// follows from `dst`. With `op` `None` the bytes of the single source are copied unchanged.
/// Otherwise every NaN that is stored, partial ones included, is the canonical one of its type.
///
/// # Errors
/// See [`FoldError`]; `dst` is untouched then.
pub fn fold(
    dtype: DType,
    op: Option<ReduceOp>,
    finish: Finish,
    sources: &[Source<&[u8]>],
    dst: &mut [u8],
) -> Result<(), FoldError> {
    check(dtype, op, finish, sources)?;
    let size = dest_size(dtype, op, finish, sources);
    if !dst.len().is_multiple_of(size) {
        return Err(FoldError::Size);
    }
    let count = dst.len() / size;
    for source in sources {
        if Some(source.mem.len()) != form_size(dtype, source.form).checked_mul(count) {
            return Err(FoldError::Size);
        }
    }
    let Some(op) = op else {
        for source in sources {
            copy(dst, source.mem);
        }
        return Ok(());
    };
    match dtype {
        DType::F64 => run::<f64>(op, finish, sources, dst),
        DType::F32 => run::<f32>(op, finish, sources, dst),
        DType::F16 => run::<F16>(op, finish, sources, dst),
        DType::BF16 => run::<Bf16>(op, finish, sources, dst),
        DType::F8E4M3 => run::<F8e4m3>(op, finish, sources, dst),
        DType::F8E5M2 => run::<F8e5m2>(op, finish, sources, dst),
        DType::I8 => run::<i8>(op, finish, sources, dst),
        DType::I16 => run::<i16>(op, finish, sources, dst),
        DType::I32 => run::<i32>(op, finish, sources, dst),
        DType::I64 => run::<i64>(op, finish, sources, dst),
        DType::U8 => run::<u8>(op, finish, sources, dst),
        DType::U16 => run::<u16>(op, finish, sources, dst),
        DType::U32 => run::<u32>(op, finish, sources, dst),
        DType::U64 => run::<u64>(op, finish, sources, dst),
    }
}

/// The program for every element of `dst`; all spans have been checked.
fn run<E: Element>(
    op: ReduceOp,
    finish: Finish,
    sources: &[Source<&[u8]>],
    dst: &mut [u8],
) -> Result<(), FoldError> {
    let size = match finish {
        Finish::Partial => E::Acc::SIZE,
        Finish::Final { .. } => E::BYTES,
    };
    for (i, out) in dst.chunks_exact_mut(size).enumerate() {
        let value = element::<E>(op, sources, i)?;
        match finish {
            Finish::Partial => value.canonical().write(out),
            Finish::Final { ranks } if op == ReduceOp::Avg => E::store(value.divide(ranks), out),
            Finish::Final { .. } => E::store(value, out),
        }
    }
    Ok(())
}

/// The bytes of element `i`; there, because the spans have been checked.
#[inline]
fn nth(bytes: &[u8], i: usize, size: usize) -> Result<&[u8], FoldError> {
    bytes.get(i * size..).and_then(|rest| rest.get(..size)).ok_or(FoldError::Size)
}

/// The value that the program leaves for element `i`.
fn element<E: Element>(
    op: ReduceOp,
    sources: &[Source<&[u8]>],
    i: usize,
) -> Result<E::Acc, FoldError> {
    let mut stack: heapless::Vec<E::Acc, DEPTH> = heapless::Vec::new();
    for source in sources {
        let value = match source.form {
            Form::Partial => E::Acc::read(nth(source.mem, i, E::Acc::SIZE)?),
            _ if op == ReduceOp::PreMulSum => {
                E::load(nth(source.mem, i, E::BYTES)?).multiply(E::Acc::weight(source.weight))
            }
            _ => E::load(nth(source.mem, i, E::BYTES)?),
        };
        stack.push(value).map_err(|_| FoldError::Depth)?;
        for _ in 0..source.merges {
            let (Some(b), Some(a)) = (stack.pop(), stack.pop()) else {
                return Err(FoldError::Program);
            };
            stack.push(a.combine(op, b)).map_err(|_| FoldError::Depth)?;
        }
    }
    stack.pop().ok_or(FoldError::Program)
}
