//! The few primitives that the rings are made of, from `std` or, under `cfg(loom)`, from loom,
//! which runs every interleaving of them.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

/// `std`'s cell with loom's closures, so that loom can watch every access.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    pub fn with<X>(&self, f: impl FnOnce(*const T) -> X) -> X {
        f(self.0.get())
    }

    pub fn with_mut<X>(&self, f: impl FnOnce(*mut T) -> X) -> X {
        f(self.0.get())
    }
}
