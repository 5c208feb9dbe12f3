//! The rule about fork: what a GPU driver gave to a process is of no use to a child of it.
//!
//! Some drivers hang in the child as soon as they are called, even to free something. So whatever
//! belongs to a driver is [`Kept`], which the child neither uses nor drops.

use crate::error::GpuError;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks lie between this process and the first that asked. Counted, because asking the
/// system for the process's number at every step would cost more than the step.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process that opened a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// This one.
    #[must_use]
    pub fn this() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the handler does nothing that is not allowed in the child of a fork. It
            // fails only without memory for the handler; then a child is not recognised.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
            if failed != 0 {
                tracing::warn!("forks cannot be noticed: no memory for the handler");
            }
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Is it this one, or has it forked since?
    #[must_use]
    pub fn is_this(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    /// Refuses to use `device` in a child of the process that opened it.
    pub(crate) fn check(self, device: &str) -> Result<(), GpuError> {
        if self.is_this() { Ok(()) } else { Err(GpuError::Forked(device.to_owned())) }
    }
}

/// A value that is only dropped by the process that made it.
pub(crate) struct Kept<T> {
    value: ManuallyDrop<T>,
    process: Process,
}

impl<T> Kept<T> {
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), process: Process::this() }
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Kept<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if self.process.is_this() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
