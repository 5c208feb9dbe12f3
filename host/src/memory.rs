//! Scratch memory that starts on cache lines and is only touched where it is used.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use unisono_device_cpu::CpuMem;

const ALIGN: usize = 128;

/// A block of memory for scratch slots. Large blocks come from the system untouched, so that only
/// the slots in use take real pages.
#[derive(Debug)]
pub(crate) struct Scratch {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: a plain block of memory that this value alone owns.
unsafe impl Send for Scratch {}

impl Scratch {
    pub const fn empty() -> Self {
        Self { start: std::ptr::null_mut(), bytes: 0 }
    }

    /// At least this many bytes; what was in it is lost if it has to grow.
    pub fn at_least(&mut self, bytes: usize) -> CpuMem {
        if bytes > self.bytes {
            *self = Self::empty();
            let layout = layout(bytes);
            // SAFETY: the size is not 0.
            let start = unsafe { alloc_zeroed(layout) };
            if start.is_null() {
                handle_alloc_error(layout);
            }
            *self = Self { start, bytes };
        }
        CpuMem::new(self.start)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: it was allocated with this layout and nobody uses it any more.
            unsafe { dealloc(self.start, layout(self.bytes)) };
        }
    }
}

fn layout(bytes: usize) -> Layout {
    // Sizes here come from chunk, window and slots, which `Config` limits far below isize::MAX.
    Layout::from_size_align(bytes, ALIGN).unwrap_or(Layout::new::<[u128; 8]>())
}
