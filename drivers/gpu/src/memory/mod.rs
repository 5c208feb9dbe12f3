//! Memory that a device reaches where it lies, by address.
//!
//! Everything above this crate speaks of memory by address ([`HostPtr`]). A [`Memory`] knows which
//! addresses are buffers of its device:
//!
//! * memory that host and device both reach (pinned, imported, and all memory of a device that
//!   shares the host's) has the address at which the host reaches it, so peers read it in place;
//! * memory that only the device reaches has addresses that are reserved for it and fault;
//! * anything else is host memory that the device does not know.
//!
//! One `Memory` serves all members of groups that use the device, and whoever owns tensors in it.

mod allocation;
mod pages;
mod table;
mod transfer;

pub use allocation::{Allocation, Registration};
pub(crate) use pages::page_size;
pub(crate) use table::Found;

use crate::backend::{Context, Place};
use crate::error::GpuError;
use crate::kernel::Arithmetic;
use crate::process::{Kept, Process};
use allocation::Ranges;
use pages::Pages;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use table::{Entry, Table};
use transfer::Transfer;
use unisono_driver::{HostMemory, HostPtr};

/// Buffers are this many bytes, or a multiple: all their 32-bit words are whole.
const GRAIN: usize = 16;

/// The memory of one device; see the module.
pub struct Memory<C: Context> {
    context: Kept<Arc<C>>,
    table: Kept<RwLock<Table<C::Buffer>>>,
    /// For [`Memory::read`] and [`Memory::write`]; made when first needed.
    transfer: Kept<Mutex<Option<Transfer<C>>>>,
    /// What the self-test found: the same for every queue of the device.
    tested: OnceLock<Arithmetic>,
    process: Process,
}

impl<C: Context> std::fmt::Debug for Memory<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("device", &self.context.card().name).finish_non_exhaustive()
    }
}

impl<C: Context> Memory<C> {
    /// The memory of a device that has just been opened.
    #[must_use]
    pub fn new(context: Arc<C>) -> Arc<Self> {
        Arc::new(Self {
            context: Kept::new(context),
            table: Kept::new(RwLock::new(Table::new())),
            transfer: Kept::new(Mutex::new(None)),
            tested: OnceLock::new(),
            process: Process::this(),
        })
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Arc<C> {
        &self.context
    }

    /// Allocates `bytes` bytes, aligned to 64 or better; their contents are undefined.
    ///
    /// More than the device's largest buffer becomes several, one after the other.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], [`GpuError::Forked`], or what the driver says.
    pub fn alloc(self: &Arc<Self>, bytes: usize, place: Place) -> Result<Allocation<C>, GpuError> {
        self.check_process()?;
        let padded = bytes.max(1).checked_next_multiple_of(GRAIN);
        let padded =
            padded.ok_or_else(|| self.no_memory(bytes, "more than there are addresses"))?;
        // Software devices would take it from the host, until that has none left.
        let most = self.context.card().memory;
        if place == Place::Device && padded as u64 > most {
            return Err(self.no_memory(bytes, &format!("the device has {most} bytes")));
        }
        if padded as u64 <= self.context.limits().buffer_max {
            let buffer = self.context.alloc(padded as u64, place)?;
            return self.hold(Arc::new(buffer), bytes, self.kernels_reach(place));
        }
        let piece = self.largest_piece();
        if piece == 0 {
            return Err(self.no_memory(bytes, "the device's largest buffer is smaller than a page"));
        }
        let first = self.context.alloc(piece as u64, place)?;
        if self.context.mapped(&first).is_none() {
            return self.alloc_unmapped(first, bytes, padded, place);
        }
        drop(first);
        self.alloc_imported(bytes)
    }

    /// Gives an address to a buffer that the caller had already (made by the same device). It
    /// stays alive, and at this address, for as long as the allocation.
    ///
    /// # Errors
    /// [`GpuError::Forked`], or [`GpuError::OutOfMemory`] if no addresses are left.
    pub fn adopt(self: &Arc<Self>, buffer: Arc<C::Buffer>) -> Result<Allocation<C>, GpuError> {
        self.check_process()?;
        let bytes = self.context.bytes(&buffer);
        let bytes = usize::try_from(bytes);
        let bytes =
            bytes.map_err(|_| self.no_memory(usize::MAX, "more than there are addresses"))?;
        self.hold(buffer, bytes, true)
    }

    /// Can host memory be registered?
    #[must_use]
    pub fn can_register(&self) -> bool {
        self.context.limits().import_align.is_some()
    }

    /// Makes `bytes` bytes of host memory reachable for the device where they are, for as long as
    /// the registration lives. Without it the device works on host memory too, but slower.
    ///
    /// # Safety
    /// The memory must stay allocated until the registration is dropped, and all work that was
    /// submitted on it is complete.
    ///
    /// # Errors
    /// [`GpuError::Address`] if the device cannot import memory, or not this, [`GpuError::Forked`],
    /// or what the driver says.
    pub unsafe fn register(
        self: &Arc<Self>,
        start: HostPtr,
        bytes: usize,
    ) -> Result<Registration<C>, GpuError> {
        self.check_process()?;
        let mut ranges = Ranges::new(Arc::clone(self));
        let address = start.as_ptr().addr();
        let piece = self.largest_piece();
        let mut done = 0;
        while done < bytes {
            // Whole pages, so that no element lies in two pieces and none is imported twice.
            let room = piece.saturating_sub((address + done) % page_size());
            let part = room.min(bytes - done);
            if part == 0 {
                return Err(self.unreachable(address, bytes, "its largest buffer is too small"));
            }
            // SAFETY: the caller's promise, for all of it.
            let import = unsafe { self.import(start.as_ptr().wrapping_add(done), part) }?;
            ranges.add(Entry {
                id: 0,
                start: address + done,
                bytes: part,
                offset: import.offset_of(address + done),
                whole: import.bytes as u64,
                buffer: import.buffer,
                mapped: true,
                kernels: true,
            });
            done += part;
        }
        Ok(Registration::new(ranges, start, bytes))
    }

    /// Copies from the host into memory of the device, or any other; waits until it is done.
    ///
    /// # Safety
    /// There are `from.len()` bytes at `to`, and nobody else uses them meanwhile.
    ///
    /// # Errors
    /// What the driver says, or [`GpuError::Forked`].
    pub unsafe fn write(&self, to: HostPtr, from: &[u8]) -> Result<(), GpuError> {
        // SAFETY: the caller's promise; `from` is only read.
        unsafe { self.transfer(to.as_ptr(), from.as_ptr().cast_mut(), from.len(), true) }
    }

    /// Copies from memory of the device, or any other, to the host; waits until it is done.
    ///
    /// # Safety
    /// There are `to.len()` bytes at `from`, and nobody writes them meanwhile.
    ///
    /// # Errors
    /// As for [`Memory::write`].
    pub unsafe fn read(&self, from: HostPtr, to: &mut [u8]) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer(from.as_ptr(), to.as_mut_ptr(), to.len(), false) }
    }

    /// Can the host read and write at this address?
    #[must_use]
    pub fn is_shared(&self, mem: HostPtr) -> bool {
        self.find(mem.as_ptr().addr(), 1).is_none_or(|found| found.mapped)
    }

    /// What the self-test found, once it has run.
    #[must_use]
    pub fn arithmetic(&self) -> Option<Arithmetic> {
        self.tested.get().copied()
    }

    pub(crate) fn set_arithmetic(&self, arithmetic: Arithmetic) {
        // Two members that open the device at the same time find the same.
        let _ = self.tested.set(arithmetic);
    }

    /// The buffer at an address.
    pub(crate) fn find(&self, address: usize, wanted: usize) -> Option<Found<C::Buffer>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.find(address, wanted).map(|entry| entry.at(address))
    }

    /// Imports the pages that hold a span of host memory.
    ///
    /// # Safety
    /// The span must stay allocated until the buffer is dropped.
    pub(crate) unsafe fn import(
        &self,
        at: *mut u8,
        bytes: usize,
    ) -> Result<Import<C::Buffer>, GpuError> {
        let (limits, address) = (self.context.limits(), at.addr());
        let Some(align) = limits.import_align else {
            return Err(self.unreachable(address, bytes, "it does not import host memory"));
        };
        // Only whole pages are sure to be there: a larger alignment must be met by the caller.
        let align = usize::try_from(align).unwrap_or(usize::MAX);
        let page = page_size();
        let start = address / page * page;
        let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(page));
        let end = end.ok_or_else(|| self.unreachable(address, bytes, "no such address"))?;
        let Some(first) = NonNull::new(at.wrapping_sub(address - start)) else {
            return Err(self.unreachable(address, bytes, "the null page"));
        };
        if !start.is_multiple_of(align) || !(end - start).is_multiple_of(align) {
            return Err(self.unreachable(address, bytes, "not aligned to what it imports"));
        }
        // SAFETY: whole pages, each of which holds a byte that stays allocated.
        let buffer = unsafe { self.context.import(first, (end - start) as u64) }?;
        Ok(Import { start, bytes: end - start, buffer: Arc::new(buffer) })
    }

    /// Refuses to go on in a child of the process that opened the device.
    pub(crate) fn check_process(&self) -> Result<(), GpuError> {
        self.process.check(&self.context.card().name)
    }

    pub(crate) const fn process(&self) -> Process {
        self.process
    }

    /// Most bytes of one buffer, in whole pages.
    pub(crate) fn largest_piece(&self) -> usize {
        let most = usize::try_from(self.context.limits().buffer_max).unwrap_or(usize::MAX);
        most / page_size() * page_size()
    }

    fn kernels_reach(&self, place: Place) -> bool {
        place == Place::Device || self.context.limits().pinned_kernels
    }

    /// Gives a buffer its address.
    fn hold(
        self: &Arc<Self>,
        buffer: Arc<C::Buffer>,
        bytes: usize,
        kernels: bool,
    ) -> Result<Allocation<C>, GpuError> {
        let mapped = self.context.mapped(&buffer);
        let (start, pages) = match mapped {
            Some(start) => (start, None),
            None => {
                let pages = Pages::reserve(bytes.max(1));
                let pages = pages.map_err(|error| self.no_memory(bytes, &error.to_string()))?;
                (pages.start(), Some(pages))
            }
        };
        let mut ranges = Ranges::new(Arc::clone(self));
        let whole = self.context.bytes(&buffer) & !3;
        let (start_at, mapped) = (start.as_ptr().addr(), mapped.is_some());
        ranges.add(Entry {
            id: 0,
            start: start_at,
            bytes,
            buffer,
            offset: 0,
            whole,
            mapped,
            kernels,
        });
        Ok(Allocation::new(ranges, pages, start, bytes, mapped))
    }

    /// Several buffers of the device's own memory at one range of addresses.
    fn alloc_unmapped(
        self: &Arc<Self>,
        first: C::Buffer,
        bytes: usize,
        padded: usize,
        place: Place,
    ) -> Result<Allocation<C>, GpuError> {
        let pages = Pages::reserve(padded);
        let pages = pages.map_err(|error| self.no_memory(bytes, &error.to_string()))?;
        let base = pages.start().as_ptr().addr();
        let mut ranges = Ranges::new(Arc::clone(self));
        let (mut next, mut done) = (Some(first), 0);
        while done < padded {
            let part = self.largest_piece().min(padded - done);
            let buffer = match next.take() {
                Some(buffer) => buffer,
                None => self.context.alloc(part as u64, place)?,
            };
            let (buffer, start) = (Arc::new(buffer), base + done);
            let whole = part as u64;
            let kernels = self.kernels_reach(place);
            ranges.add(Entry {
                id: 0,
                start,
                bytes: part,
                buffer,
                offset: 0,
                whole,
                mapped: false,
                kernels,
            });
            done += part;
        }
        let start = pages.start();
        Ok(Allocation::new(ranges, Some(pages), start, bytes, false))
    }

    /// Memory of the host, imported piece by piece, where mapped buffers would not be adjacent.
    fn alloc_imported(self: &Arc<Self>, bytes: usize) -> Result<Allocation<C>, GpuError> {
        if !self.can_register() {
            return Err(self.no_memory(bytes, "more than the device's largest buffer"));
        }
        let pages = Pages::zeroed(bytes);
        let pages = pages.map_err(|error| self.no_memory(bytes, &error.to_string()))?;
        let start = pages.start();
        // SAFETY: the allocation owns both, and gives the pages back last.
        let registration = unsafe { self.register(HostPtr::new(start.as_ptr()), bytes) }?;
        Ok(Allocation::new(registration.into_ranges(), Some(pages), start, bytes, true))
    }

    fn no_memory(&self, bytes: usize, text: &str) -> GpuError {
        let device = self.context.card().name.clone();
        GpuError::OutOfMemory { device, bytes: bytes as u64, text: text.to_owned() }
    }

    fn unreachable(&self, start: usize, bytes: usize, text: &'static str) -> GpuError {
        let device = self.context.card().name.clone();
        GpuError::Address { device, start, bytes: bytes as u64, text }
    }
}

/// Host memory as a buffer.
#[derive(Debug)]
pub(crate) struct Import<B> {
    /// Address of the buffer's first byte.
    pub start: usize,
    /// Bytes of the buffer.
    pub bytes: usize,
    pub buffer: Arc<B>,
}

impl<B> Import<B> {
    /// Where an address is in the buffer.
    pub const fn offset_of(&self, address: usize) -> u64 {
        (address - self.start) as u64
    }

    /// Is all of a span in it?
    pub const fn holds(&self, address: usize, bytes: usize) -> bool {
        address >= self.start && address - self.start + bytes <= self.bytes
    }
}
