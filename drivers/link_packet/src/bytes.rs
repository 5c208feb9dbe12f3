//! How a link gets at a member's payload.

use core::marker::PhantomData;
use unisono_driver::HostMemory;

/// Copies payload from and to the memory that members name.
pub trait Bytes {
    /// A reference to memory, as in [`unisono_driver::Link::Mem`].
    type Mem: Copy;

    /// Copies the bytes from `at` bytes after `from` on.
    ///
    /// # Safety
    /// The memory must be valid for reads of `at + into.len()` bytes.
    unsafe fn read(&mut self, from: Self::Mem, at: usize, into: &mut [u8]);

    /// Copies `bytes` to the place `at` bytes after `to`.
    ///
    /// # Safety
    /// The memory must be valid for writes of `at + bytes.len()` bytes.
    unsafe fn write(&mut self, to: Self::Mem, at: usize, bytes: &[u8]);
}

/// Memory that this program reaches by its address.
#[derive(Clone, Copy, Debug)]
pub struct HostBytes<M>(PhantomData<fn() -> M>);

impl<M> HostBytes<M> {
    /// For memory of this kind.
    #[must_use]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<M> Default for HostBytes<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: HostMemory> Bytes for HostBytes<M> {
    type Mem = M;

    unsafe fn read(&mut self, from: M, at: usize, into: &mut [u8]) {
        let from = from.as_ptr().wrapping_add(at);
        // SAFETY: the caller's promise; `into` is this side's own.
        unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    unsafe fn write(&mut self, to: M, at: usize, bytes: &[u8]) {
        let to = to.as_ptr().wrapping_add(at);
        // SAFETY: the caller's promise; `bytes` are this side's own.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}
