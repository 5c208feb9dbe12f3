//! How the two ends of a link name memory to each other.

use core::marker::PhantomData;
use unisono_driver::HostMemory;

/// What an end knows about the memory of both, and about the other's life.
pub trait Reach: Send {
    /// Memory as this end names it.
    type Mem: HostMemory;

    /// The name for the other end of `bytes` bytes of this end's memory; never `u64::MAX`. `None`
    /// if the other end cannot reach them.
    fn name(&self, mem: Self::Mem, bytes: usize) -> Option<u64>;

    /// The memory behind a name that the other end has given; `None` if there are not that many
    /// bytes of it.
    fn find(&self, name: u64, bytes: usize) -> Option<Self::Mem>;

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

    fn find(&self, name: u64, _: usize) -> Option<M> {
        // An address of this process fits `usize`.
        Some(M::from_ptr(core::ptr::with_exposed_provenance_mut(name as usize)))
    }

    fn is_dead(&self) -> bool {
        // It closes its end when it is dropped, also while a panic unwinds.
        false
    }
}
