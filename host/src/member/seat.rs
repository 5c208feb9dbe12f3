//! Keeps the members of a group on cores of their own.
//!
//! Two members on one core take turns: each waits for the other one by letting it run, so both look
//! busy and freshly run, and a scheduler may leave them together for as long as the job lasts while
//! another core idles. Whoever finds that it shares its core with another member, at its start or
//! when it has waited for a while, moves away; nobody is bound to a core.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use unisono_link_shm::Word;

/// A scheduler that has put a member back has its reasons: how long it is left in peace. Moving
/// costs some 10 us, so this is one part in a hundred at most.
const PATIENCE: Duration = Duration::from_millis(5);

/// One member's seat among those of its group on this machine, which may be several processes.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    /// Where each was seen last: one more than the number of the core; 0 if not known.
    places: Arc<[Word]>,
    member: usize,
    moved: Option<Instant>,
}

impl Seat {
    /// One for each of these members, whose words these are; none if there are more members than
    /// cores, or only one.
    pub fn row(words: Vec<Word>) -> Option<Vec<Self>> {
        let (cores, members) =
            (std::thread::available_parallelism().map_or(1, usize::from), words.len());
        if members < 2 || members > cores {
            return None;
        }
        let places: Arc<[Word]> = words.into();
        let seat = |member| Self { places: places.clone(), member, moved: None };
        Some((0..members).map(seat).collect())
    }

    /// Says where this member is, and moves it if another one is there. Call it from the member's
    /// thread.
    #[cfg(target_os = "linux")]
    pub fn settle(&mut self) {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
        let here = sched_getcpu() as u32 + 1;
        let taken = |place: &Word| place.load(Ordering::Relaxed);
        if let Some(own) = self.places.get(self.member) {
            own.store(here, Ordering::Relaxed);
        }
        let others = || self.places.iter().enumerate().filter(|(m, _)| *m != self.member);
        if others().all(|(_, place)| taken(place) != here) {
            return;
        }
        let now = Instant::now();
        if self.moved.is_some_and(|at| now.duration_since(at) < PATIENCE) {
            return;
        }
        self.moved = Some(now);
        let Ok(allowed) = sched_getaffinity(None) else { return };
        let mut free = allowed;
        let cores = self.places.iter().filter_map(|place| taken(place).checked_sub(1));
        // Another process may write anything there.
        let cores = cores.map(|core| core as usize).filter(|core| *core < CpuSet::MAX_CPU);
        cores.for_each(|core| free.unset(core));
        // Without a free core there is nowhere to go. Otherwise the thread moves at once, and may
        // go anywhere again after that, unless somebody has just told it where to be.
        if free.count() > 0 && sched_setaffinity(None, &free).is_ok() {
            if sched_getaffinity(None).is_ok_and(|now| now == free)
                && let Err(error) = sched_setaffinity(None, &allowed)
            {
                tracing::warn!("a rank's thread stays on {} cores: {error}", free.count());
            }
            if let Some(own) = self.places.get(self.member) {
                own.store(sched_getcpu() as u32 + 1, Ordering::Relaxed);
            }
        }
    }

    /// Only Linux says where a thread runs.
    #[cfg(not(target_os = "linux"))]
    pub fn settle(&mut self) {
        let _ = (&self.moved, PATIENCE);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    fn row(members: usize) -> Option<Vec<Seat>> {
        Seat::row((0..members).map(|_| Word::default()).collect())
    }

    #[test]
    fn a_member_leaves_a_core_that_another_one_has() {
        let Some(mut row) = row(2) else { return };
        let allowed = sched_getaffinity(None).expect("this thread's cores");
        row[1].settle();
        row[0].settle();
        let (a, b) = (row[0].places[0].load(Ordering::Relaxed), sched_getcpu() as u32 + 1);
        assert_ne!(row[0].places[1].load(Ordering::Relaxed), a, "both on core {a}, now on {b}");
        assert_eq!(sched_getaffinity(None).expect("the same").count(), allowed.count());
    }

    #[test]
    fn a_member_that_is_bound_stays() {
        let Some(mut row) = row(2) else { return };
        let allowed = sched_getaffinity(None).expect("this thread's cores");
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one).expect("a core that it has");
        row[1].settle();
        row[0].settle();
        assert_eq!(sched_getaffinity(None).expect("the same").count(), 1);
        sched_setaffinity(None, &allowed).expect("what it had");
    }
}
