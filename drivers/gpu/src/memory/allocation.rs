//! Who owns ranges of addresses: what is dropped leaves the table.

use super::Memory;
use super::pages::Pages;
use super::table::Entry;
use crate::backend::Context;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};
use unisono_driver::HostPtr;

/// Entries of the table, removed when it is dropped.
pub(super) struct Ranges<C: Context> {
    memory: Arc<Memory<C>>,
    ids: Vec<u64>,
}

impl<C: Context> Ranges<C> {
    pub const fn new(memory: Arc<Memory<C>>) -> Self {
        Self { memory, ids: Vec::new() }
    }

    pub fn add(&mut self, entry: Entry<C::Buffer>) {
        let mut table = self.memory.table.write().unwrap_or_else(PoisonError::into_inner);
        self.ids.push(table.insert(entry));
    }
}

impl<C: Context> Drop for Ranges<C> {
    fn drop(&mut self) {
        // A child of the process must not free what is the driver's; its table is a copy.
        if !self.memory.process.is_this() {
            return;
        }
        for &id in &self.ids {
            let mut table = self.memory.table.write().unwrap_or_else(PoisonError::into_inner);
            let entry = table.remove(id);
            // Freeing may take a while, and work that looks addresses up need not wait for it.
            drop(table);
            drop(entry);
        }
    }
}

/// Memory of a device, with addresses; freed when it is dropped. Work that was submitted on it
/// must be complete by then.
pub struct Allocation<C: Context> {
    // Before `pages`: imported memory is released before its pages are given back.
    ranges: Ranges<C>,
    _pages: Option<Pages>,
    start: NonNull<u8>,
    bytes: usize,
    shared: bool,
}

// SAFETY: an allocation gives out addresses only; what they point to is used by unsafe calls, and
// the table has a lock.
unsafe impl<C: Context> Send for Allocation<C> {}
// SAFETY: as above.
unsafe impl<C: Context> Sync for Allocation<C> {}

impl<C: Context> std::fmt::Debug for Allocation<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mem, bytes) = (self.mem(), self.bytes);
        f.debug_struct("Allocation")
            .field("mem", &mem)
            .field("bytes", &bytes)
            .finish_non_exhaustive()
    }
}

impl<C: Context> Allocation<C> {
    pub(super) const fn new(
        ranges: Ranges<C>,
        pages: Option<Pages>,
        start: NonNull<u8>,
        bytes: usize,
        shared: bool,
    ) -> Self {
        Self { ranges, _pages: pages, start, bytes, shared }
    }

    /// The first byte: an address that only devices may follow unless the memory
    /// [is shared](Self::is_shared).
    #[must_use]
    pub const fn mem(&self) -> HostPtr {
        HostPtr::new(self.start.as_ptr())
    }

    /// Bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Can the host read and write it in place?
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.shared
    }

    /// The memory that it is part of.
    #[must_use]
    pub const fn memory(&self) -> &Arc<Memory<C>> {
        &self.ranges.memory
    }
}

/// Host memory that a device reaches in place, until it is dropped.
pub struct Registration<C: Context> {
    ranges: Ranges<C>,
    start: HostPtr,
    bytes: usize,
}

// SAFETY: an address, a length, and the right to remove entries of a table that has a lock.
unsafe impl<C: Context> Sync for Registration<C> {}

impl<C: Context> std::fmt::Debug for Registration<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mem, bytes) = (self.mem(), self.bytes);
        f.debug_struct("Registration")
            .field("mem", &mem)
            .field("bytes", &bytes)
            .finish_non_exhaustive()
    }
}

impl<C: Context> Registration<C> {
    pub(super) const fn new(ranges: Ranges<C>, start: HostPtr, bytes: usize) -> Self {
        Self { ranges, start, bytes }
    }

    pub(super) fn into_ranges(self) -> Ranges<C> {
        self.ranges
    }

    /// The first byte.
    #[must_use]
    pub const fn mem(&self) -> HostPtr {
        self.start
    }

    /// Bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}
