//! What a process knows of another one's memory and life.

use crate::arena::Arena;
use crate::attach::Attach;
use memmap2::MmapRaw;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use unisono_driver::HostPtr;
use unisono_driver::{HostMemory, Memory};
use unisono_link_span::{Named, Reach};

/// Marks the name of memory outside the arena: the rest is its address.
const OUTSIDE: u64 = 1 << 63;

/// The other end of links to one process: names are offsets in arenas.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) own: Arc<Arena>,
    pub(crate) theirs: Arc<MmapRaw>,
    pub(crate) dead: Arc<AtomicBool>,
    /// How its other memory is reached, if it can be.
    pub(crate) attach: Option<Attach>,
    /// It reaches this process's other memory.
    pub(crate) attached: bool,
}

impl Reach for Peer {
    type Mem = HostPtr;

    fn name(&self, mem: HostPtr, bytes: usize) -> Option<u64> {
        let at = mem.as_ptr();
        let outside = || self.attached.then(|| OUTSIDE | at.expose_provenance() as u64);
        self.own.offset_of(at, bytes).map(|offset| offset as u64).or_else(outside)
    }

    fn find(&self, name: u64, bytes: usize) -> Option<Named<HostPtr>> {
        if name & OUTSIDE != 0 {
            return self.attach.map(|_| Named::Away(name & !OUTSIDE));
        }
        let end = usize::try_from(name).ok()?.checked_add(bytes)?;
        let start = HostPtr::new(self.theirs.as_mut_ptr());
        (end <= self.theirs.len()).then(|| Named::Here(start.offset(name)))
    }

    unsafe fn fetch(&self, from: u64, into: *mut u8, bytes: usize) -> bool {
        let attach = self.attach.filter(|_| !self.is_dead());
        // SAFETY: the caller's promise.
        attach.is_some_and(|attach| unsafe { attach.fetch(from, into, bytes) })
    }

    unsafe fn store(&self, from: *const u8, to: u64, bytes: usize) -> bool {
        let attach = self.attach.filter(|_| !self.is_dead());
        // SAFETY: the caller's promise.
        attach.is_some_and(|attach| unsafe { attach.store(from, to, bytes) })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::map;

    #[test]
    fn what_the_system_does_not_let_be_fetched_has_no_name() {
        let arena = Arena::new(1 << 20, 0).expect("a little memory");
        let theirs = Arc::new(map(arena.file(), arena.bytes()).expect("room for it"));
        let dead = Arc::new(AtomicBool::new(false));
        let peer = Peer { own: arena.clone(), theirs, dead, attach: None, attached: false };
        let (start, bytes) = (arena.start(), arena.bytes());
        let mut outside = [0u8; 8];
        for at in [outside.as_mut_ptr(), start.wrapping_add(bytes - 7)] {
            assert_eq!(peer.name(HostPtr::new(at), 8), None);
        }
        let last = (bytes - 8) as u64;
        assert_eq!(peer.name(HostPtr::new(start.wrapping_add(bytes - 8)), 8), Some(last));
        assert!(matches!(peer.find(last, 8), Some(Named::Here(_))));
        for name in [last + 1, u64::MAX, OUTSIDE | outside.as_ptr().addr() as u64] {
            assert!(peer.find(name, 8).is_none());
        }
        // SAFETY: nothing is copied.
        assert!(unsafe { !peer.fetch(0, outside.as_mut_ptr(), 8) });
    }
}
