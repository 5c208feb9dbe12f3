//! Scratch memory that starts on cache lines and is only touched where it is used.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use unisono_driver::HostPtr;

/// Where slots start.
const ALIGN: usize = 128;

/// A block of memory for scratch slots.
///
/// It is allocated with a small alignment, and aligned here: then zeros come from the system
/// untouched (`calloc`), and only the slots that are really used take real pages.
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

    /// At least this many bytes; what was in it is lost if it has to grow, so nobody may be using
    /// it then. `None` if there is no memory for it.
    pub fn at_least(&mut self, bytes: usize) -> Option<HostPtr> {
        if bytes > self.bytes {
            *self = Self::empty();
            let layout = layout(bytes)?;
            // SAFETY: the size is not 0.
            let start = unsafe { alloc_zeroed(layout) };
            if start.is_null() {
                return None;
            }
            *self = Self { start, bytes };
        }
        Some(HostPtr::new(self.start.wrapping_add(self.start.align_offset(ALIGN))))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let (false, Some(layout)) = (self.start.is_null(), layout(self.bytes)) {
            // SAFETY: it was allocated with this layout and nobody uses it any more.
            unsafe { dealloc(self.start, layout) };
        }
    }
}

/// Room for `bytes` bytes from an aligned address on.
fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_add(ALIGN)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_driver::HostMemory;

    #[test]
    fn it_is_aligned_and_grows_and_says_no() {
        let mut scratch = Scratch::empty();
        for bytes in [1, 100, 5000, 1 << 20] {
            let start = scratch.at_least(bytes).expect("a little memory").as_ptr();
            assert_eq!(start.addr() % ALIGN, 0);
            // SAFETY: the block is at least this long, and zero.
            let last = unsafe { start.add(bytes - 1).read() };
            assert_eq!(last, 0);
        }
        assert!(scratch.at_least(usize::MAX).is_none());
        assert!(scratch.at_least(usize::MAX / 2).is_none());
        assert!(scratch.at_least(10).is_some());
    }
}
