//! How the two ends of a link name memory to each other.

use core::marker::PhantomData;
use unisono_driver::HostMemory;

/// Memory that the other end has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<M> {
    /// It is here, too.
    Here(M),
    /// It is the other process's own, at this address there: what is needed of it is copied.
    Away(u64),
}

/// What an end knows about the memory of both, and about the other's life.
pub trait Reach: Send {
    /// Memory as this end names it.
    type Mem: HostMemory;

    /// The name for the other end of `bytes` bytes of this end's memory; never `u64::MAX`. `None`
    /// if the other end cannot reach them.
    fn name(&self, mem: Self::Mem, bytes: usize) -> Option<u64>;

    /// The memory behind a name that the other end has given; `None` if there are not that many
    /// bytes of it.
    fn find(&self, name: u64, bytes: usize) -> Option<Named<Self::Mem>>;

    /// Copies from the other end's own memory; false if the system does not let it.
    ///
    /// # Safety
    /// `into` must be valid for writes of `bytes` bytes.
    unsafe fn fetch(&self, from: u64, into: *mut u8, bytes: usize) -> bool {
        let _ = (from, into, bytes);
        false
    }

    /// Copies into the other end's own memory; false if the system does not let it.
    ///
    /// # Safety
    /// `from` must be valid for reads of `bytes` bytes.
    unsafe fn store(&self, from: *const u8, to: u64, bytes: usize) -> bool {
        let _ = (from, to, bytes);
        false
    }

    /// Has the other end died, so that it will never touch memory again?
    fn is_dead(&self) -> bool;
}

/// Both ends are in one process: a name is an address.
#[derive(Clone, Copy, Debug)]
pub struct Direct<M>(PhantomData<fn() -> M>);

impl<M> Default for Direct<M> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<M: HostMemory> Reach for Direct<M> {
    type Mem = M;

    fn name(&self, mem: M, _: usize) -> Option<u64> {
        Some(mem.as_ptr().expose_provenance() as u64)
    }

    fn find(&self, name: u64, _: usize) -> Option<Named<M>> {
        // An address of this process fits `usize`.
        let mem = M::from_ptr(core::ptr::with_exposed_provenance_mut(name as usize));
        Some(Named::Here(mem))
    }

    fn is_dead(&self) -> bool {
        // It closes its end when it is dropped, also while a panic unwinds.
        false
    }
}
