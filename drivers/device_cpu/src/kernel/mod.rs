//! The kernels: one generic fold, compiled for every element type, operator and instruction set.
//!
//! * [`vector`]: arithmetic on 64 bytes of accumulators at a time;
//! * [`elem`], [`small`]: how 64 bytes of accumulators are loaded from and stored as elements;
//! * [`op`]: the merges;
//! * [`fold`]: the loops over memory;
//! * [`table`]: from a type and an operator to the compiled kernel.
//!
//! Nothing here names a vector instruction (but for f16): all is written as loops of fixed length
//! over small arrays, inlined into functions that are compiled for one instruction set, and turned
//! into vector code by the compiler. So the same text serves AVX-512, AVX2, SSE2, NEON and cores
//! without vectors.

mod divisor;
mod elem;
mod fold;
mod op;
mod small;
mod table;
mod vector;

use crate::device::{CpuMem, SPANS_MAX};
use crate::isa::Isa;
use divisor::Divisor;
use unisono_core::{DType, Finish, ReduceOp, Source};
use unisono_driver::Fold;

/// A checked fold.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// 1 to [`SPANS_MAX`] sources with a sound merge program.
    sources: &'a [Source<CpuMem>],
    /// 1 to [`SPANS_MAX`] destinations.
    dests: &'a [CpuMem],
    /// Elements.
    count: usize,
    /// Store in the accumulation type?
    partial: bool,
    /// Divide before storing?
    divide: Option<Divisor>,
}

impl<'a> Job<'a> {
    /// The job of a fold that [`unisono_core::numeric::check`] has passed.
    pub fn new(op: ReduceOp, work: &Fold<'a, CpuMem>) -> Self {
        let divide = match work.finish {
            Finish::Final { ranks } if op == ReduceOp::Avg => Some(Divisor::new(ranks)),
            _ => None,
        };
        Self {
            sources: work.sources,
            dests: work.dests,
            count: work.count,
            partial: matches!(work.finish, Finish::Partial),
            divide,
        }
    }
}

/// Runs a job.
///
/// # Safety
/// The CPU has `isa`; the spans are as [`unisono_driver::Device::fold`] demands; the operator
/// exists for the type.
pub unsafe fn run(isa: Isa, dtype: DType, op: ReduceOp, job: &Job<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => table::avx512::run(dtype, op, job),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => table::avx2::run(dtype, op, job),
            _ => table::baseline::run(dtype, op, job),
        }
    }
}
