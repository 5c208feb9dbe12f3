//! Where bells, words and rings lie in the arenas: a pure function of who is where.

use crate::word::Word;
use unisono_link_span::{Bell, Ring, depth};

/// Who is where in a group, the same on all its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The process that each member belongs to.
    pub homes: Vec<u16>,
    /// Calls in flight.
    pub channels: usize,
    /// Largest window of a call, in chunks.
    pub window: usize,
}

impl Layout {
    /// Members of a process, in order.
    pub(crate) fn members_of(&self, process: u16) -> impl Iterator<Item = usize> + '_ {
        self.homes.iter().enumerate().filter(move |(_, home)| **home == process).map(|(m, _)| m)
    }

    /// Which of its process's members this is.
    fn index(&self, member: usize) -> usize {
        let home = self.homes[member];
        self.homes[..member].iter().filter(|other| **other == home).count()
    }

    /// Offset of a member's bell in the arena of its process.
    pub(crate) fn bell(&self, member: usize) -> usize {
        self.index(member) * Bell::BYTES
    }

    /// Offset of a member's word in the arena of its process.
    pub(crate) fn word(&self, member: usize) -> usize {
        let bells = self.members_of(self.homes[member]).count() * Bell::BYTES;
        bells + self.index(member) * Word::BYTES
    }

    /// Offset of the ring that `from` writes and `to` reads, in the arena of `from`'s process.
    pub(crate) fn ring(&self, from: usize, to: usize, channel: usize) -> usize {
        let members = self.homes.len();
        let own = self.members_of(self.homes[from]).count();
        let rings = (self.index(from) * members + to) * self.channels + channel;
        own * (Bell::BYTES + Word::BYTES) + rings * Ring::bytes(depth(self.window))
    }

    /// Bytes at the start of a process's arena that all these take.
    pub(crate) fn head(&self, process: u16) -> usize {
        let own = self.members_of(process).count();
        let rings = own * self.homes.len() * self.channels;
        own * (Bell::BYTES + Word::BYTES) + rings * Ring::bytes(depth(self.window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_all_is_aligned() {
        let layout = Layout { homes: vec![0, 1, 0, 2, 1, 1], channels: 3, window: 4 };
        for process in 0..3 {
            let own: Vec<usize> = layout.members_of(process).collect();
            let mut spans: Vec<(usize, usize)> =
                own.iter().map(|m| (layout.bell(*m), Bell::BYTES)).collect();
            spans.extend(own.iter().map(|m| (layout.word(*m), Word::BYTES)));
            for (&from, to) in own.iter().flat_map(|m| (0..6).map(move |to| (m, to))) {
                let ring = |channel| (layout.ring(from, to, channel), Ring::bytes(depth(4)));
                spans.extend((0..3).map(ring));
            }
            spans.sort_unstable();
            let mut end = 0;
            for (at, bytes) in spans {
                assert_eq!(at % 128, 0);
                assert_eq!(at, end);
                end = at + bytes;
            }
            assert_eq!(end, layout.head(process));
        }
    }
}
