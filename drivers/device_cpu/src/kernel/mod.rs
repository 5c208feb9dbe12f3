//! The kernels.
//!
//! * [`number`], [`op`]: arithmetic and merges, one lane at a time, without branches;
//! * [`loops`]: loops over them, which the compiler turns into vector code;
//! * [`small`], [`convert`], [`x86`]: the small floating types;
//! * [`table`]: all loops, compiled for each instruction set;
//! * [`tile`]: runs a fold program with them, and knows no instruction set.
//!
//! Only the conversions of f16 and fp8 on x86-64 name vector instructions. The rest is the same
//! text for AVX-512, AVX2, SSE2, NEON and cores without vectors.

mod convert;
mod divisor;
mod loops;
mod number;
mod op;
mod small;
mod table;
mod tile;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::device::SPANS_MAX;
use crate::isa::Isa;
use divisor::Divisor;
use unisono_core::{DType, Finish, ReduceOp, Source};
use unisono_driver::{Fold, HostPtr};

/// A checked fold.
pub struct Job<'a> {
    /// 1 to [`SPANS_MAX`] sources with a sound merge program.
    sources: &'a [Source<HostPtr>],
    /// 1 to [`SPANS_MAX`] destinations.
    dests: &'a [HostPtr],
    /// Elements.
    count: usize,
    /// Store in the accumulation type?
    partial: bool,
    /// Multiply leaves by their weights?
    weighted: bool,
    /// Divide before storing?
    divide: Option<Divisor>,
}

impl<'a> Job<'a> {
    /// The job of a fold that [`unisono_core::numeric::check`] has passed.
    pub fn new(op: ReduceOp, work: &Fold<'a, HostPtr>) -> Self {
        let divide = match work.finish {
            Finish::Final { ranks } if op == ReduceOp::Avg => Some(Divisor::new(ranks)),
            _ => None,
        };
        Self {
            sources: work.sources,
            dests: work.dests,
            count: work.count,
            partial: matches!(work.finish, Finish::Partial),
            weighted: op == ReduceOp::PreMulSum,
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
