//! What a process knows of another one's memory and life.

use crate::arena::Arena;
use memmap2::MmapRaw;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use unisono_driver::HostPtr;
use unisono_driver::{HostMemory, Memory};
use unisono_link_span::Reach;

/// The other end of links to one process: names are offsets in arenas.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) own: Arc<Arena>,
    pub(crate) theirs: Arc<MmapRaw>,
    pub(crate) dead: Arc<AtomicBool>,
}

impl Reach for Peer {
    type Mem = HostPtr;

    fn name(&self, mem: HostPtr, bytes: usize) -> Option<u64> {
        self.own.offset_of(mem.as_ptr(), bytes).map(|offset| offset as u64)
    }

    fn find(&self, name: u64, bytes: usize) -> Option<HostPtr> {
        let end = usize::try_from(name).ok()?.checked_add(bytes)?;
        let start = HostPtr::new(self.theirs.as_mut_ptr());
        (end <= self.theirs.len()).then(|| start.offset(name))
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }
}

impl Peer {
    /// The memory of this end's process.
    #[must_use]
    pub const fn arena(&self) -> &Arc<Arena> {
        &self.own
    }
}
