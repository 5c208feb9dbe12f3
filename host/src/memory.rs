//! Memory that the library allocates: scratch slots, and tensors of GPUs.

use crate::device::Opened;
use crate::device::store::Kept;
use crate::error::Error;
use memmap2::MmapMut;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use unisono_driver::HostPtr;
use unisono_gpu::{GpuError, Place};
use unisono_link_shm::Arena;

/// Where slots start.
const ALIGN: usize = 128;

/// Where the members of a group that are in this process get their memory from.
#[derive(Default)]
pub(crate) struct Pool {
    /// All open GPUs of these members, each once.
    pub devices: Vec<Opened>,
    /// What other processes of the group see, if there are any on this host.
    pub arena: Option<Arc<Arena>>,
    /// They may fetch from the rest of this process's memory.
    pub attached: bool,
}

impl Pool {
    /// A block that the host, all GPUs of the pool and other processes reach where it is. What is
    /// in it is anything.
    pub fn block(&self, bytes: usize) -> std::io::Result<Block> {
        let Some(arena) = &self.arena else { return Block::host(bytes, &self.devices) };
        let piece = arena.alloc(bytes).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Block::pages(HostPtr::new(piece.start()), bytes, &self.devices, Box::new(piece)))
    }

    /// Memory of a device, which the other devices of the pool are told of.
    pub fn on(&self, device: &Opened, bytes: usize, place: Place) -> Result<Block, GpuError> {
        Block::of(device, bytes, place, &self.devices)
    }
}

/// Memory that GPUs reach where it is: a device's own, or whole pages of the host.
pub(crate) struct Block {
    pub start: HostPtr,
    /// Can the host, and so peers, reach it?
    pub shared: bool,
    // Dropped first: what devices were told of is still there then.
    _known: Vec<Kept>,
    _kept: Kept,
}

impl Block {
    /// Memory of a device, which the devices of peers are told of.
    pub fn of(
        device: &Opened,
        bytes: usize,
        place: Place,
        peers: &[Opened],
    ) -> Result<Self, GpuError> {
        let piece = device.0.alloc(bytes, place)?;
        let Some(peers) = piece.shared.then(|| peers.iter().filter(|peer| !peer.is(device))) else {
            return Ok(Self::new(piece.start, false, Vec::new(), piece.kept));
        };
        // SAFETY: what is registered is dropped before the memory.
        let known = peers.filter_map(|peer| unsafe { peer.0.register(piece.start, bytes) });
        let known = known.collect();
        Ok(Self::new(piece.start, true, known, piece.kept))
    }

    /// Zeros of the host, which these devices are told of.
    pub fn host(bytes: usize, devices: &[Opened]) -> std::io::Result<Self> {
        // A mapping of no bytes does not exist.
        let mut pages = MmapMut::map_anon(bytes.max(1))?;
        let start = HostPtr::new(pages.as_mut_ptr());
        Ok(Self::pages(start, bytes, devices, Box::new(pages)))
    }

    /// Memory of the host, which these devices are told of.
    fn pages(start: HostPtr, bytes: usize, devices: &[Opened], kept: Kept) -> Self {
        // SAFETY: what is registered is dropped before the memory.
        let known = devices.iter().filter_map(|device| unsafe { device.0.register(start, bytes) });
        let known = known.collect();
        Self::new(start, true, known, kept)
    }

    /// Memory that somebody else has allocated.
    #[cfg(any(feature = "vulkan", feature = "opencl"))]
    pub fn adopted(start: HostPtr, shared: bool, kept: Kept) -> Self {
        Self::new(start, shared, Vec::new(), kept)
    }

    fn new(start: HostPtr, shared: bool, known: Vec<Kept>, kept: Kept) -> Self {
        Self { start, shared, _known: known, _kept: kept }
    }
}

/// Where a member's scratch slots are.
pub(crate) struct Slots {
    heap: Scratch,
    /// Memory that a GPU or other processes reach well, and its bytes.
    block: Option<(Block, usize)>,
}

impl Slots {
    pub const fn empty() -> Self {
        Self { heap: Scratch::empty(), block: None }
    }

    /// At least this many bytes for a member on this device; what was in them is lost if they have
    /// to grow, so nobody may be using them then.
    pub fn at_least(
        &mut self,
        bytes: usize,
        device: Option<&Opened>,
        pool: &Pool,
    ) -> Result<HostPtr, Error> {
        if device.is_none() && pool.arena.is_none() {
            return self.heap.at_least(bytes).ok_or(Error::Memory(bytes));
        }
        if let Some((block, has)) = &self.block
            && *has >= bytes
        {
            return Ok(block.start);
        }
        self.block = None;
        let block = match device {
            Some(device) if pool.arena.is_none() => pool.on(device, bytes, Place::Pinned)?,
            _ => pool.block(bytes).map_err(|_| Error::Memory(bytes))?,
        };
        let start = block.start;
        self.block = Some((block, bytes));
        Ok(start)
    }
}

/// A block of memory for scratch slots of the CPU.
///
/// It starts on cache lines and is only touched where it is used. It is allocated with a small
/// alignment, and aligned here: then zeros come from the system untouched (`calloc`), and only the
/// slots that are really used take real pages.
#[derive(Debug)]
pub(crate) struct Scratch {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: a plain block of memory that this value alone owns.
unsafe impl Send for Scratch {}

impl Scratch {
    pub const fn empty() -> Self {
        Self { start: std::ptr::null_mut(), bytes: 0 }
    }

    /// At least this many bytes; what was in it is lost if it has to grow, so nobody may be using
    /// it then. `None` if there is no memory for it.
    pub fn at_least(&mut self, bytes: usize) -> Option<HostPtr> {
        if bytes > self.bytes {
            *self = Self::empty();
            let layout = layout(bytes)?;
            // SAFETY: the size is not 0.
            let start = unsafe { alloc_zeroed(layout) };
            if start.is_null() {
                return None;
            }
            *self = Self { start, bytes };
        }
        Some(HostPtr::new(self.start.wrapping_add(self.start.align_offset(ALIGN))))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let (false, Some(layout)) = (self.start.is_null(), layout(self.bytes)) {
            // SAFETY: it was allocated with this layout and nobody uses it any more.
            unsafe { dealloc(self.start, layout) };
        }
    }
}

/// Room for `bytes` bytes from an aligned address on.
fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_add(ALIGN)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_driver::HostMemory;

    #[test]
    fn it_is_aligned_and_grows_and_says_no() {
        let mut scratch = Scratch::empty();
        for bytes in [1, 100, 5000, 1 << 20] {
            let start = scratch.at_least(bytes).expect("a little memory").as_ptr();
            assert_eq!(start.addr() % ALIGN, 0);
            // SAFETY: the block is at least this long, and zero.
            let last = unsafe { start.add(bytes - 1).read() };
            assert_eq!(last, 0);
        }
        assert!(scratch.at_least(usize::MAX).is_none());
        assert!(scratch.at_least(usize::MAX / 2).is_none());
        assert!(scratch.at_least(10).is_some());
    }
}
