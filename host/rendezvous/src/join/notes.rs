//! Notes: what a rank tells all others outside of rounds. They may be lost, and nobody waits long.

use super::Rendezvous;
use crate::wire::{self, Down, NOTE_MAX, NOTES_MAX, Up};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long the rest of a message may take whose beginning is there.
const REST: Duration = Duration::from_secs(1);

/// What has come between rounds.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The last ones, and whose they are.
    heard: VecDeque<(u32, Vec<u8>)>,
    /// A message of the next round that has come while notes were looked for.
    early: Option<Vec<u8>>,
}

impl Notes {
    /// A message that waits for the next round.
    pub fn take_early(&mut self) -> Option<Vec<u8>> {
        self.early.take()
    }

    /// Keeps a message if it is a note.
    pub fn keep(&mut self, message: &[u8]) -> bool {
        let Ok(Down::Note { rank, text }) = wire::decode(message) else { return false };
        if self.heard.len() == NOTES_MAX {
            self.heard.pop_front();
        }
        self.heard.push_back((rank, text.to_vec()));
        true
    }
}

impl Rendezvous {
    /// Tells all ranks something outside of rounds; what is above [`NOTE_MAX`] bytes is cut off.
    /// Returns once it is on its way to all others, or after `patience`. It is lost if rank 0 is
    /// gone, or if there are too many.
    pub fn note(&mut self, text: &[u8], patience: Duration) {
        let text = text.get(..NOTE_MAX).unwrap_or(text);
        if wire::send(&mut self.socket, &Up::Note(text)).is_err() {
            return;
        }
        let (own, until) = (self.me.rank, Instant::now() + patience);
        // It comes back when all ranks before rank 0 have been told. Without this, rank 0 could end
        // its hub before that.
        let back = |notes: &Notes| notes.heard.iter().any(|note| note.0 == own && note.1 == text);
        while !back(&self.notes) && Instant::now() < until {
            if !self.listen_for_note(until.saturating_duration_since(Instant::now())) {
                return;
            }
        }
    }

    /// Waits so long for one more note; false if none will come any more.
    pub fn listen_for_note(&mut self, patience: Duration) -> bool {
        // A round that fails is the end.
        if self.notes.early.is_some() {
            return false;
        }
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let time = Timespec::try_from(patience).ok();
        if !poll(&mut fds, time.as_ref()).is_ok_and(|ready| ready > 0) {
            return true;
        }
        let Ok(message) = self.receive(Instant::now() + REST) else { return false };
        if !self.notes.keep(&message) {
            self.notes.early = Some(message);
        }
        true
    }

    /// The last notes of all ranks, the newest first, and who has sent them.
    pub fn notes(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.notes.heard.iter().rev().map(|(rank, text)| (*rank as usize, text.as_slice()))
    }

    /// How many rounds are over: the same number on all ranks.
    pub const fn rounds(&self) -> u32 {
        self.round
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seat::{Meet, Seat};
    use std::thread;

    const LONG: Duration = Duration::from_secs(60);

    fn three(work: impl Fn(Rendezvous) + Sync) {
        let job = format!("notes-{}-{:?}", std::process::id(), thread::current().id());
        let one = |rank| {
            let seat = Seat::new(rank, 3, &job, Meet::Local).unwrap();
            work(Rendezvous::join(&seat, None, LONG).unwrap());
        };
        thread::scope(|scope| {
            (0..3).for_each(|rank| drop(scope.spawn(move || one(rank))));
        });
    }

    /// The first and the last one of so many, and how long they are.
    fn lengths(group: &Rendezvous) -> (usize, Vec<usize>) {
        assert!(group.notes().all(|(rank, text)| rank == 1 && text.iter().all(|b| *b == 7)));
        let lengths: Vec<usize> = group.notes().map(|(_, text)| text.len()).collect();
        (lengths.len(), [lengths.first(), lengths.last()].into_iter().flatten().copied().collect())
    }

    #[test]
    fn nobody_can_say_too_much() {
        three(|mut group| {
            if group.rank() == 1 {
                for length in (1..=100).map(|n| n * NOTE_MAX) {
                    wire::send(&mut group.socket, &Up::Note(&vec![7; length.min(9000)])).unwrap();
                }
            }
            // Those who do not look find them in the next round.
            group.barrier().unwrap();
            assert_eq!(lengths(&group), (NOTES_MAX, vec![NOTE_MAX; 2]));
            if group.rank() == 1 {
                group.note(&[7; 3], LONG);
            }
            while group.rank() != 1 && lengths(&group).1[0] != 3 {
                assert!(group.listen_for_note(LONG));
            }
            assert_eq!(lengths(&group), (NOTES_MAX, vec![3, NOTE_MAX]));
            group.barrier().unwrap();
        });
    }

    /// Also rank 0, which takes the hub with it.
    #[test]
    fn last_words_arrive() {
        for speaker in [0, 2] {
            three(|mut group| {
                if group.rank() == speaker {
                    return group.note(b"the end", LONG);
                }
                while group.notes().next() != Some((speaker, b"the end")) {
                    assert!(group.listen_for_note(LONG));
                }
            });
        }
    }

    /// Who looks for notes in vain does not swallow what belongs to a round.
    #[test]
    fn a_failure_waits_for_its_round() {
        three(|mut group| {
            // Rank 0 begins a round that rank 1 is missing from.
            if group.rank() == 1 {
                return;
            }
            if group.rank() == 2 {
                while group.notes.early.is_none() {
                    assert!(group.listen_for_note(LONG));
                }
                assert!(!group.listen_for_note(LONG));
            }
            let error = group.barrier().unwrap_err().to_string();
            assert!(error.contains("rank 1"), "{error}");
        });
    }
}
