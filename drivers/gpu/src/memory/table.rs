//! Which buffer lies at which address.

use std::sync::Arc;

/// A range of addresses that is (a part of) a buffer.
#[derive(Debug)]
pub(super) struct Entry<B> {
    /// Names the entry for its removal: several may be equal otherwise.
    pub id: u64,
    pub start: usize,
    pub bytes: usize,
    pub buffer: Arc<B>,
    /// Where `start` is in the buffer.
    pub offset: u64,
    /// Bytes of the buffer that are whole 32-bit words, which is what kernels read.
    pub whole: u64,
    /// The host can read and write at these addresses.
    pub mapped: bool,
    /// Kernels can; otherwise only copies can.
    pub kernels: bool,
}

/// What was found at an address.
#[derive(Debug)]
pub(crate) struct Found<B> {
    pub buffer: Arc<B>,
    /// Where the address is in the buffer.
    pub offset: u64,
    /// Bytes from the address to the end of the range.
    pub bytes: usize,
    /// How many of them a kernel may touch, by whole words.
    pub words: usize,
    /// End of the buffer's last whole word.
    pub whole: u64,
    /// The host can read and write here too.
    pub mapped: bool,
    /// Kernels can read and write here; otherwise only copies can.
    pub kernels: bool,
}

/// All ranges, by address. Ranges of memory that was registered may overlap.
#[derive(Debug)]
pub(super) struct Table<B> {
    entries: Vec<Entry<B>>,
    /// The longest range: how far back a search has to go.
    longest: usize,
    last_id: u64,
}

impl<B> Table<B> {
    pub const fn new() -> Self {
        Self { entries: Vec::new(), longest: 0, last_id: 0 }
    }

    /// Adds a range; its id is given here, and returned.
    pub fn insert(&mut self, entry: Entry<B>) -> u64 {
        self.last_id += 1;
        self.longest = self.longest.max(entry.bytes);
        let at = self.entries.partition_point(|e| e.start <= entry.start);
        self.entries.insert(at, Entry { id: self.last_id, ..entry });
        self.last_id
    }

    /// Removes a range; its buffer is for the caller to drop, outside any lock.
    pub fn remove(&mut self, id: u64) -> Option<Entry<B>> {
        let at = self.entries.iter().position(|e| e.id == id)?;
        let entry = self.entries.remove(at);
        if entry.bytes == self.longest {
            self.longest = self.entries.iter().map(|e| e.bytes).max().unwrap_or(0);
        }
        Some(entry)
    }

    /// The range that holds `address` and, if there is one, `wanted` bytes from there on; else the
    /// one that goes on longest.
    pub fn find(&self, address: usize, wanted: usize) -> Option<&Entry<B>> {
        let end = self.entries.partition_point(|e| e.start <= address);
        let mut best: Option<&Entry<B>> = None;
        for entry in self.entries[..end].iter().rev() {
            let into = address - entry.start;
            if into >= self.longest {
                break;
            }
            if into >= entry.bytes {
                continue;
            }
            if entry.bytes - into >= wanted {
                return Some(entry);
            }
            if best.is_none_or(|b| b.start + b.bytes < entry.start + entry.bytes) {
                best = Some(entry);
            }
        }
        best
    }
}

impl<B> Entry<B> {
    /// What there is at `address`, which lies in this range.
    pub fn at(&self, address: usize) -> Found<B> {
        let into = address - self.start;
        let offset = self.offset + into as u64;
        let bytes = self.bytes - into;
        let words = self.whole.saturating_sub(offset).min(bytes as u64) as usize;
        let (buffer, whole) = (Arc::clone(&self.buffer), self.whole);
        let (mapped, kernels) = (self.mapped, self.kernels);
        Found { buffer, offset, bytes, words, whole, mapped, kernels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(start: usize, bytes: usize) -> Entry<u32> {
        let (buffer, whole) = (Arc::new(0), bytes as u64 & !3);
        Entry { id: 0, start, bytes, buffer, offset: 0, whole, mapped: true, kernels: true }
    }

    #[test]
    fn finds_what_holds_the_address() {
        let mut table = Table::new();
        let a = table.insert(entry(100, 50));
        let b = table.insert(entry(150, 10));
        let ids = |address, wanted| table.find(address, wanted).map(|e| e.id);
        assert_eq!(ids(99, 1), None);
        assert_eq!(ids(100, 50), Some(a));
        assert_eq!(ids(149, 1), Some(a));
        assert_eq!(ids(150, 1), Some(b));
        assert_eq!(ids(160, 1), None);
        assert_eq!(ids(149, 5), Some(a), "no range holds all of it");
    }

    #[test]
    fn ranges_may_overlap() {
        let mut table = Table::new();
        let long = table.insert(entry(0, 1000));
        let short = table.insert(entry(500, 10));
        assert_eq!(table.find(500, 10).map(|e| e.id), Some(short));
        assert_eq!(table.find(500, 11).map(|e| e.id), Some(long));
        assert_eq!(table.find(700, 1).map(|e| e.id), Some(long));
        assert_eq!(table.find(505, 9999).map(|e| e.id), Some(long), "the one that goes on longest");
        assert!(table.remove(long).is_some());
        assert_eq!(table.find(700, 1).map(|e| e.id), None);
        assert_eq!(table.find(500, 11).map(|e| e.id), Some(short));
        assert!(table.remove(long).is_none());
    }

    #[test]
    fn kernels_get_whole_words() {
        let found = entry(64, 10).at(70);
        assert_eq!((found.offset, found.bytes, found.words), (6, 4, 2));
        assert_eq!(entry(64, 10).at(73).words, 0);
    }
}
