//! The least device: the scalar reference of the core, a block of bytes at a time.
//!
//! For cores with little flash: the CPU device's kernels are far faster and take three times as
//! much.
#![no_std]

use heapless::Vec;
use unisono_core::Source;
use unisono_core::numeric::{self, FoldError};
use unisono_driver::{Copy, Device, DeviceCaps, Done, Fold, HostMemory, HostPtr, Memory, Token};

/// Most sources and destinations of a fold.
const SPANS: usize = 8;
/// Results are collected here before they are stored: a destination may be one of the sources.
const BLOCK: usize = 256;

/// Folds at once, in the calling thread.
#[derive(Debug, Default)]
pub struct ScalarDevice {
    done: Option<Token>,
}

/// Why a job was not started.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ScalarError {
    /// There is a completion to be polled, or too many spans.
    #[error("the device has no room for this job")]
    Room,
    /// The fold makes no sense.
    #[error(transparent)]
    Fold(#[from] FoldError),
}

impl Device for ScalarDevice {
    type Mem = HostPtr;
    type Error = ScalarError;

    fn caps(&self) -> DeviceCaps {
        DeviceCaps { sources_max: SPANS, dests_max: SPANS }
    }

    fn has_room(&self) -> bool {
        self.done.is_none()
    }

    unsafe fn fold(&mut self, work: &Fold<'_, HostPtr>, token: Token) -> Result<(), ScalarError> {
        numeric::check(work.dtype, work.op, work.finish, work.sources)?;
        let size = numeric::dest_size(work.dtype, work.op, work.finish, work.sources);
        let mut block = [0; BLOCK];
        let mut first = 0;
        while first < work.count {
            let count = (work.count - first).min(BLOCK / 8);
            let mut sources: Vec<Source<&[u8]>, SPANS> = Vec::new();
            for s in work.sources {
                let each = numeric::form_size(work.dtype, s.form);
                let at = s.mem.offset((first * each) as u64).as_ptr();
                // SAFETY: the caller's promise; destinations are written after the fold.
                let mem = unsafe { core::slice::from_raw_parts(at, count * each) };
                let source = Source { mem, form: s.form, weight: s.weight, merges: s.merges };
                sources.push(source).map_err(|_| ScalarError::Room)?;
            }
            let out = block.get_mut(..count * size).ok_or(ScalarError::Room)?;
            numeric::fold(work.dtype, work.op, work.finish, &sources, out)?;
            for to in work.dests {
                let to = to.offset((first * size) as u64).as_ptr();
                // SAFETY: the caller's promise; the block is the device's own.
                unsafe { core::ptr::copy_nonoverlapping(out.as_ptr(), to, out.len()) };
            }
            first += count;
        }
        self.done = Some(token);
        Ok(())
    }

    unsafe fn copy(&mut self, work: &Copy<HostPtr>, token: Token) -> Result<(), ScalarError> {
        let (from, to) = (work.from.as_ptr(), work.to.as_ptr());
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(from, to, work.bytes) };
        self.done = Some(token);
        Ok(())
    }

    fn poll_done(&mut self) -> Option<Done<ScalarError>> {
        self.done.take().map(|token| Done { token, result: Ok(()) })
    }
}
