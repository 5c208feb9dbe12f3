//! Static memory that is given away once.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering};

/// Memory for a value in a static, zeroed: it takes RAM, but no flash.
pub struct Global<T> {
    taken: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: `put` gives the value to one caller only.
unsafe impl<T> Sync for Global<T> {}

impl<T> Global<T> {
    /// Empty memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { taken: AtomicU8::new(0), value: UnsafeCell::new(MaybeUninit::zeroed()) }
    }

    /// Puts a value there, once; `None` if there is one already.
    ///
    /// For a start without interrupts and other cores (a load and a store, which every target has).
    #[expect(clippy::mut_from_ref, reason = "the flag makes the reference the only one")]
    pub fn put(&'static self, value: T) -> Option<&'static mut T> {
        if self.taken.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.taken.store(1, Ordering::Relaxed);
        // SAFETY: nobody has got here before, so there is no other reference.
        Some(unsafe { (*self.value.get()).write(value) })
    }
}

impl<T> Default for Global<T> {
    fn default() -> Self {
        Self::new()
    }
}
