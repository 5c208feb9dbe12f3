//! The driver: checks a fold, runs it, and keeps the completion until it is asked for.

use crate::isa::Isa;
use crate::kernel::{self, Job};
use heapless::Deque;
use unisono_core::numeric::{self, FoldError};
use unisono_driver::{Copy, Device, DeviceCaps, Done, Fold, HostMemory, HostPtr, Token};

/// Most sources, and most destinations, of one fold.
pub(crate) const SPANS_MAX: usize = 32;

/// Completions that wait to be polled.
const DONE_MAX: usize = 8;

/// Why a fold or a copy was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CpuError {
    /// [`Device::has_room`] would have said no: completions wait to be polled.
    #[error("the CPU device has unpolled completions and no room for another")]
    Busy,
    /// More spans than [`Device::caps`] allows, or no destination.
    #[error("a fold takes 1 to {SPANS_MAX} sources and 1 to {SPANS_MAX} destinations")]
    Spans,
    /// The fold makes no sense.
    #[error(transparent)]
    Fold(#[from] FoldError),
}

/// The CPU as a synchronous device: work is done when the call returns.
#[derive(Debug)]
pub struct CpuDevice {
    isa: Isa,
    done: Deque<Token, DONE_MAX>,
}

impl CpuDevice {
    /// A device with the best kernels for this CPU.
    #[must_use]
    pub fn new() -> Self {
        Self { isa: Isa::best(), done: Deque::new() }
    }

    /// A device with the kernels of `isa`; `None` if this CPU cannot run them.
    #[must_use]
    pub fn with_isa(isa: Isa) -> Option<Self> {
        isa.is_available().then_some(Self { isa, done: Deque::new() })
    }

    /// The instruction set that is used.
    #[must_use]
    pub const fn isa(&self) -> Isa {
        self.isa
    }
}

impl Default for CpuDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl Device for CpuDevice {
    type Mem = HostPtr;
    type Error = CpuError;

    fn caps(&self) -> DeviceCaps {
        DeviceCaps { sources_max: SPANS_MAX, dests_max: SPANS_MAX }
    }

    fn has_room(&self) -> bool {
        !self.done.is_full()
    }

    unsafe fn fold(&mut self, work: &Fold<'_, HostPtr>, token: Token) -> Result<(), CpuError> {
        let spans = 1..=SPANS_MAX;
        if !spans.contains(&work.sources.len()) || !spans.contains(&work.dests.len()) {
            return Err(CpuError::Spans);
        }
        numeric::check(work.dtype, work.op, work.finish, work.sources)?;
        if work.count.checked_mul(8).is_none() {
            return Err(CpuError::Fold(FoldError::Size));
        }
        self.done.push_back(token).map_err(|_| CpuError::Busy)?;
        let Some(op) = work.op else {
            let size = numeric::dest_size(work.dtype, work.op, work.finish, work.sources);
            for &to in work.dests {
                // SAFETY: the caller's promise; a destination that is the source itself is
                // allowed for a fold, so this must be able to overlap.
                unsafe {
                    core::ptr::copy(work.sources[0].mem.as_ptr(), to.as_ptr(), work.count * size)
                };
            }
            return Ok(());
        };
        let job = Job::new(op, work);
        // SAFETY: the caller's promise about the spans; the ISA was found to be available.
        unsafe { kernel::run(self.isa, work.dtype, op, &job) };
        Ok(())
    }

    unsafe fn copy(&mut self, work: &Copy<HostPtr>, token: Token) -> Result<(), CpuError> {
        self.done.push_back(token).map_err(|_| CpuError::Busy)?;
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(work.from.as_ptr(), work.to.as_ptr(), work.bytes) };
        Ok(())
    }

    fn poll_done(&mut self) -> Option<Done<CpuError>> {
        self.done.pop_front().map(|token| Done { token, result: Ok(()) })
    }
}
