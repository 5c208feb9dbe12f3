//! One process's memory that its peers see.

use crate::{ShmError, Tried};
use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where pieces start: a pair of cache lines.
const ALIGN: usize = 128;

/// Pieces of this size start on such a multiple, so that the system can give huge pages.
const HUGE: usize = 2 << 20;

/// Freed memory that is kept, because touching new pages is dear (notes in docs/PERFORMANCE.md).
const KEEP: usize = 256 << 20;

/// Seals that an arena has: its size is final.
pub(crate) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The memory of one process that all processes of its group map.
#[derive(Debug)]
pub struct Arena {
    map: MmapRaw,
    file: File,
    room: Mutex<Room>,
}

/// What is free.
#[derive(Debug)]
struct Room {
    /// Length of every free stretch, by its start; neighbours are joined.
    free: BTreeMap<usize, usize>,
    /// Free bytes that may have pages.
    kept: usize,
}

impl Arena {
    /// An arena of this size, of which nothing exists yet. The first `head` bytes are zero and not
    /// given out as pieces.
    ///
    /// # Errors
    /// [`ShmError::System`].
    pub fn new(bytes: usize, head: usize) -> Result<Arc<Self>, ShmError> {
        let bytes = bytes.max(head).next_multiple_of(HUGE);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("unisono", flags).tried("make shared memory")?;
        let file = File::from(file);
        file.set_len(bytes as u64).tried("size shared memory")?;
        rustix::fs::fcntl_add_seals(&file, SEALS).tried("seal shared memory")?;
        let map = map(&file, bytes)?;
        let start = head.next_multiple_of(ALIGN);
        let room = Room { free: BTreeMap::from([(start, bytes - start)]), kept: 0 };
        Ok(Arc::new(Self { map, file, room: Mutex::new(room) }))
    }

    /// The size that suits a group of this many processes here: as much as there is memory, but
    /// no more than lets all arenas fit into the address space that a process may have.
    #[must_use]
    pub fn reserve(processes: usize) -> usize {
        // The kernel's own count of memory; every container sees the machine's.
        let memory = rustix::system::sysinfo();
        let memory = memory.totalram as u64 * u64::from(memory.mem_unit).max(1);
        let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
        let limit = limit.unwrap_or(1 << 46) / 2 / processes.max(1) as u64;
        let bytes = memory.min(limit);
        usize::try_from(bytes).unwrap_or(usize::MAX / 2).max(HUGE)
    }

    /// Bytes of the arena.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.map.len()
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Where the arena starts in this process.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// The offset of `bytes` bytes of it, if that is where they are.
    #[must_use]
    pub fn offset_of(&self, at: *mut u8, bytes: usize) -> Option<usize> {
        let offset = at.addr().checked_sub(self.start().addr())?;
        (offset.checked_add(bytes)? <= self.bytes()).then_some(offset)
    }

    /// A piece of `bytes` bytes, aligned to a pair of cache lines. What is in it is left over
    /// from whoever had it before. On a machine with several memory nodes it lies on the one of the
    /// core that asks.
    ///
    /// `None` if there is no such stretch.
    #[must_use]
    pub fn alloc(self: &Arc<Self>, bytes: usize) -> Option<Piece> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGN)?;
        let align = if bytes >= HUGE { HUGE } else { ALIGN };
        let at = self.room().take(bytes, align)?;
        let piece = Piece { arena: self.clone(), at, bytes };
        crate::numa::settle(piece.start(), bytes);
        Some(piece)
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self, at: usize, bytes: usize) {
        let mut room = self.room();
        room.give(at, bytes);
        if room.kept > KEEP {
            room.kept = 0;
            for (&at, &bytes) in &room.free {
                // Only whole pages go; if none can, they stay, which is no harm.
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(&self.file, flags, at as u64, bytes as u64);
            }
        }
    }
}

impl Room {
    /// First fit.
    fn take(&mut self, bytes: usize, align: usize) -> Option<usize> {
        let fits = |(&start, &len): (&usize, &usize)| {
            let at = start.checked_next_multiple_of(align)?;
            (at - start <= len && bytes <= len - (at - start)).then_some((start, len, at))
        };
        let (start, len, at) = self.free.iter().find_map(fits)?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if start + len > at + bytes {
            self.free.insert(at + bytes, start + len - at - bytes);
        }
        self.kept = self.kept.saturating_sub(bytes);
        Some(at)
    }

    fn give(&mut self, mut at: usize, mut bytes: usize) {
        self.kept += bytes;
        if let Some(next) = self.free.remove(&(at + bytes)) {
            bytes += next;
        }
        if let Some((&before, &len)) = self.free.range(..at).next_back()
            && before + len == at
        {
            at = before;
            bytes += len;
        }
        self.free.insert(at, bytes);
    }
}

/// Maps an arena, of this or another process, without asking for its pages.
pub(crate) fn map(file: &File, bytes: usize) -> Result<MmapRaw, ShmError> {
    let map = MmapOptions::new().len(bytes).no_reserve_swap().map_raw(file);
    let map = map.tried("map shared memory; `ulimit -v` may leave too little room for it")?;
    // Many systems do not have huge pages for shared memory; then they are small.
    let _ = map.advise(Advice::HugePage);
    Ok(map)
}

/// A stretch of an arena; free again when it is dropped.
#[derive(Debug)]
pub struct Piece {
    arena: Arc<Arena>,
    at: usize,
    bytes: usize,
}

impl Piece {
    /// Where it is in this process.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.arena.start().wrapping_add(self.at)
    }

    /// How many bytes it has.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.arena.free(self.at, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_and_come_back() {
        let arena = Arena::new(8 << 20, 1000).expect("a little memory");
        assert_eq!(arena.bytes(), 8 << 20);
        let all = |arena: &Arc<Arena>| arena.room().free.clone();
        let before = all(&arena);
        let mut pieces: Vec<Piece> = Vec::new();
        for bytes in [0, 1, 127, 128, 5000, 1 << 20, 2 << 20] {
            let piece = arena.alloc(bytes).expect("it fits");
            assert_eq!(piece.start().addr() % ALIGN, 0);
            assert!(piece.bytes() >= bytes);
            let offset = arena.offset_of(piece.start(), piece.bytes()).expect("inside");
            assert!(offset >= 1000);
            for other in &pieces {
                assert!(offset + piece.bytes() <= other.at || other.at + other.bytes <= offset);
            }
            pieces.push(piece);
        }
        assert!(arena.alloc(8 << 20).is_none());
        assert!(arena.alloc(usize::MAX).is_none());
        // In an order that joins both neighbours.
        while let Some(piece) = (!pieces.is_empty()).then(|| pieces.remove(pieces.len() / 2)) {
            drop(piece);
        }
        assert_eq!(all(&arena), before);
    }

    #[test]
    fn what_is_freed_in_bulk_goes_back_to_the_system() {
        let arena = Arena::new(3 * KEEP, 0).expect("address space");
        let used = || {
            use std::os::linux::fs::MetadataExt;
            arena.file.metadata().expect("a file").st_blocks() * 512
        };
        for bytes in [1 << 20, KEEP + HUGE] {
            let piece = arena.alloc(bytes).expect("it fits");
            for page in (0..bytes).step_by(1 << 20) {
                // SAFETY: within the piece.
                unsafe { piece.start().add(page).write(1) };
            }
            assert!(used() > 0);
            drop(piece);
        }
        assert_eq!(used(), 0);
    }

    #[test]
    fn only_what_is_inside_has_an_offset() {
        let arena = Arena::new(HUGE, 0).expect("a little memory");
        let start = arena.start();
        assert_eq!(arena.offset_of(start, HUGE), Some(0));
        assert_eq!(arena.offset_of(start.wrapping_add(1), HUGE), None);
        assert_eq!(arena.offset_of(start.wrapping_sub(1), 1), None);
        assert_eq!(arena.offset_of(start.wrapping_add(5), usize::MAX), None);
    }
}
