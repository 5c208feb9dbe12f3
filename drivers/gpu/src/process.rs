//! The rule about fork: what a GPU driver gave to a process is of no use to a child of it.
//!
//! Some drivers hang in the child as soon as they are called, even to free something. So whatever
//! belongs to a driver is [`Kept`], which the child neither uses nor drops.

use crate::error::GpuError;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// The process that opened a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// This one.
    #[must_use]
    pub fn this() -> Self {
        Self(std::process::id())
    }

    /// Is it this one, or has it forked since?
    #[must_use]
    pub fn is_this(self) -> bool {
        self == Self::this()
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
