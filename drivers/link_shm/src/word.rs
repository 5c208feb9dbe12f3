//! A number that all processes see.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// On cache lines for itself, since others look at it.
#[repr(C, align(128))]
struct Apart(AtomicU32);

/// A number in an arena, 0 at first, that belongs to a member: all members of processes that are
/// near may read and write it, for whatever they have agreed on.
#[derive(Clone)]
pub struct Word {
    at: NonNull<Apart>,
    /// What the memory belongs to.
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: an atomic that lives as long as what it belongs to.
unsafe impl Send for Word {}
// SAFETY: as above.
unsafe impl Sync for Word {}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::ops::Deref::deref(self).fmt(f)
    }
}

impl Word {
    /// Bytes that it takes.
    pub(crate) const BYTES: usize = size_of::<Apart>();

    /// The word at `start`.
    ///
    /// # Safety
    /// There are [`Word::BYTES`] bytes, on a pair of cache lines, that all use as a word, and they
    /// stay mapped as long as `keep` exists.
    pub(crate) unsafe fn at(start: NonNull<u8>, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { at: start.cast(), _keep: keep }
    }
}

impl Default for Word {
    /// One that only this process sees.
    fn default() -> Self {
        let owned = Arc::new(Apart(AtomicU32::new(0)));
        Self { at: NonNull::from(&*owned), _keep: owned }
    }
}

impl std::ops::Deref for Word {
    type Target = AtomicU32;

    fn deref(&self) -> &AtomicU32 {
        // SAFETY: it lives as long as what it belongs to, and any bits are a number.
        unsafe { &self.at.as_ref().0 }
    }
}
