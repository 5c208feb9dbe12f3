//! The memory itself: every access is checked against its length.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

/// Memory that both sides see.
#[derive(Clone, Debug)]
pub struct Window {
    base: NonNull<u8>,
    bytes: usize,
    /// Keeps a mapped file there.
    #[cfg(feature = "std")]
    pub(crate) map: Option<std::sync::Arc<memmap2::MmapRaw>>,
}

// SAFETY: words are accessed as atomics; payload is accessed by whoever a ring gives it to, as the
// crate's head says.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// The window of `bytes` bytes at `base`.
    ///
    /// # Safety
    /// The memory must be valid for reads and writes as long as this value, its clones and
    /// everything made of them exist, and nobody else in this process may use it otherwise than
    /// through windows.
    #[must_use]
    pub const unsafe fn new(base: NonNull<u8>, bytes: usize) -> Self {
        Self {
            base,
            bytes,
            #[cfg(feature = "std")]
            map: None,
        }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the window is; tensors may be placed in a region's memory area.
    #[must_use]
    pub fn span(&self, at: usize, bytes: usize) -> Option<NonNull<u8>> {
        let end = at.checked_add(bytes)?;
        // SAFETY: within the window.
        (end <= self.bytes).then(|| unsafe { self.base.add(at) })
    }

    /// The word at a byte offset.
    pub(crate) fn word(&self, at: usize) -> Option<&AtomicU32> {
        let word = self.span(at, 4)?.cast::<AtomicU32>();
        if !word.is_aligned() {
            return None;
        }
        // SAFETY: valid by `new`, aligned, and any bits are a number.
        Some(unsafe { word.as_ref() })
    }
}
