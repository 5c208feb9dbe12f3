//! The file with the counts: how many instructions were executed, by core, way, and the address of
//! the block. It is an array of 64-bit numbers, `[core][way][bucket]`, the ways in the order of
//! [`Way`]. A bucket is [`STEP`] bytes of code, from `begin` on; one more is for all other code.

use memmap2::MmapRaw;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Cores that are told apart; more are not counted.
pub const CORES: usize = 2;
/// Instructions begin at multiples of this, on every target here.
pub const STEP: u64 = 2;

/// Which instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All of them.
    All,
    /// Those of rounds with work.
    Worked,
}

/// The file.
#[derive(Debug)]
pub struct Counts {
    map: MmapRaw,
    begin: u64,
    buckets: usize,
}

impl Counts {
    /// A file of zeros, for code from `begin` up to `end`.
    ///
    /// # Errors
    /// If it cannot be made or mapped.
    pub fn create(path: &Path, begin: u64, end: u64) -> io::Result<Self> {
        let bytes = end.checked_sub(begin).ok_or(io::ErrorKind::InvalidInput)?;
        let buckets = bytes.div_ceil(STEP) as usize + 1;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len((CORES * 2 * buckets * size_of::<u64>()) as u64)?;
        Ok(Self { map: MmapRaw::map_raw(&file)?, begin, buckets })
    }

    /// Buckets of a core and way.
    #[must_use]
    pub const fn buckets(&self) -> usize {
        self.buckets
    }

    /// The bucket of an address.
    #[must_use]
    pub fn bucket(&self, address: u64) -> usize {
        let bytes = address.checked_sub(self.begin);
        bytes.map_or(usize::MAX, |bytes| (bytes / STEP) as usize).min(self.buckets - 1)
    }

    /// Counts; only one thread may do so for a core.
    pub fn add(&self, core: usize, way: Way, bucket: usize, count: u64) {
        assert!(core < CORES && bucket < self.buckets, "within the file");
        let at = (core * 2 + usize::from(way == Way::Worked)) * self.buckets + bucket;
        // SAFETY: within the map, by its length and the check above; maps begin at a page, and any
        // bits are a number.
        let place = unsafe { &*self.map.as_ptr().cast::<AtomicU64>().add(at) };
        place.store(place.load(Relaxed) + count, Relaxed);
    }
}
