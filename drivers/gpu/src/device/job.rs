//! One piece of work that the engine submitted: any number of steps, one completion.

use crate::backend::Limits;
use crate::error::GpuError;
use crate::kernel::{self, Arithmetic, DESTS_MAX, Params, SOURCES_MAX, Variant};
use heapless::Vec;
use unisono_core::numeric::{self, FoldError};
use unisono_core::{DType, Finish, Form, ReduceOp};
use unisono_driver::{Fold, HostMemory, HostPtr, Memory, Token};

/// A source or a destination of a fold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    /// Where its first element is.
    pub start: HostPtr,
    /// Bytes of an element.
    pub size: usize,
    /// The kernel may not work on it where it lies.
    pub staged: bool,
}

impl Operand {
    /// Where element `i` is.
    pub fn at(&self, i: usize) -> HostPtr {
        self.start.offset((i * self.size) as u64)
    }

    /// What its address in a buffer must be a multiple of for a kernel.
    pub const fn align(&self) -> u64 {
        if self.size < 4 { self.size as u64 } else { 4 }
    }
}

/// What is to be done.
#[expect(clippy::large_enum_variant, reason = "a job is made without an allocation")]
pub(super) enum Work<K> {
    Fold {
        kernel: K,
        variant: Variant,
        /// All but the count of elements and the starts, which differ from step to step.
        params: Params,
        /// Sources, then destinations.
        operands: Vec<Operand, { SOURCES_MAX + DESTS_MAX }>,
    },
    Copy {
        from: HostPtr,
        to: Vec<HostPtr, DESTS_MAX>,
    },
}

/// A job under way.
pub(super) struct Job<K> {
    pub token: Token,
    pub work: Work<K>,
    /// Elements, or bytes of a copy.
    pub count: usize,
    /// How many of them are done, or part of a step.
    pub issued: usize,
    /// Steps under way.
    pub steps: usize,
    /// The first error; no more steps are made then.
    pub error: Option<GpuError>,
}

impl<K> Job<K> {
    pub const fn new(token: Token, work: Work<K>, count: usize) -> Self {
        Self { token, work, count, issued: 0, steps: 0, error: None }
    }

    /// Are all steps made that there will be?
    pub const fn is_issued(&self) -> bool {
        self.issued == self.count || self.error.is_some()
    }
}

/// The kernel for a fold. Folds that need the same arithmetic get the same kernel, because each
/// costs compile time: `Avg` of partial results is a sum, and what makes no difference for a type
/// or an operator is left out.
pub(super) fn variant<M>(work: &Fold<'_, M>, arithmetic: Arithmetic, group_size: u32) -> Variant {
    let (mut dtype, mut op) = (work.dtype, work.op);
    let mut partial = work.finish == Finish::Partial;
    let (mut partials, mut merges) = (0u16, 0u64);
    for (i, source) in work.sources.iter().enumerate().take(SOURCES_MAX) {
        partials |= u16::from(source.form == Form::Partial) << i;
        merges |= u64::from(source.merges & 15) << (4 * i);
    }
    let all = ((1u32 << work.sources.len().min(SOURCES_MAX)) - 1) as u16;
    if (op == Some(ReduceOp::Avg) && partial)
        || (op == Some(ReduceOp::PreMulSum) && partials == all)
    {
        op = Some(ReduceOp::Sum);
    }
    if dtype.acc() == dtype {
        partial = false;
        if op != Some(ReduceOp::PreMulSum) {
            partials = 0;
        }
    }
    let signed = matches!(op, Some(ReduceOp::Min | ReduceOp::Max | ReduceOp::Avg));
    if !signed {
        dtype = match dtype {
            DType::I8 => DType::U8,
            DType::I16 => DType::U16,
            DType::I32 => DType::U32,
            DType::I64 => DType::U64,
            other => other,
        };
    }
    let (sources, dests) = (work.sources.len() as u8, work.dests.len() as u8);
    Variant { dtype, op, partial, sources, dests, partials, merges, arithmetic, group_size }
}

/// Checks a fold and says where its operands are.
pub(super) fn operands(
    work: &Fold<'_, HostPtr>,
) -> Result<Vec<Operand, { SOURCES_MAX + DESTS_MAX }>, GpuError> {
    let mut operands: Vec<Operand, { SOURCES_MAX + DESTS_MAX }> = Vec::new();
    let full = |_| GpuError::Spans(SOURCES_MAX, DESTS_MAX);
    for source in work.sources {
        let size = numeric::form_size(work.dtype, source.form);
        operands.push(Operand { start: source.mem, size, staged: false }).map_err(full)?;
    }
    let size = numeric::dest_size(work.dtype, work.op, work.finish, work.sources);
    for &start in work.dests {
        let mut staged = false;
        for source in operands.iter().take(work.sources.len()) {
            if source.start == start && source.size != size {
                // Elements of another size are not at the same place, and a kernel reads and
                // writes them in any order. Smaller ones can be written when all are read.
                if source.size < size {
                    return Err(GpuError::Fold(FoldError::Size));
                }
                staged = true;
            }
        }
        operands.push(Operand { start, size, staged }).map_err(full)?;
    }
    Ok(operands)
}

/// What all steps of a fold tell the kernel.
pub(super) fn params(work: &Fold<'_, HostPtr>) -> Params {
    let ranks = match work.finish {
        Finish::Final { ranks } => ranks,
        Finish::Partial => 1,
    };
    let mut params = Params::new(0, ranks);
    for (weight, source) in params.weights.iter_mut().zip(work.sources) {
        *weight = kernel::weight(work.dtype, source.weight);
    }
    params
}

/// Most elements that one dispatch can make.
pub(super) fn elements_max(variant: &Variant, limits: &Limits) -> usize {
    let side = u64::from(limits.groups_max);
    let items = side.saturating_mul(side).saturating_mul(u64::from(limits.group_size));
    let per_item = u64::from(variant.elements_per_item());
    // One item less where the first word is not whole.
    let most = items.saturating_mul(per_item) - (per_item - 1);
    most.min(u64::from(u32::MAX)) as usize
}

/// Bytes of a fold's spans fit the address space.
pub(super) fn check_count(count: usize) -> Result<(), GpuError> {
    let fits = count.checked_mul(8).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if fits { Ok(()) } else { Err(GpuError::Fold(FoldError::Size)) }
}

/// A copy of `bytes` bytes to several places; those that are the source itself are left out.
pub(super) fn copy<K>(from: HostPtr, to: &[HostPtr]) -> Result<Work<K>, GpuError> {
    let mut others = Vec::new();
    for &to in to.iter().filter(|to| to.as_ptr() != from.as_ptr()) {
        others.push(to).map_err(|_| GpuError::Spans(SOURCES_MAX, DESTS_MAX))?;
    }
    Ok(Work::Copy { from, to: others })
}
