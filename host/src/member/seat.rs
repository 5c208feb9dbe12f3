//! Keeps the members of a group on cores of their own.
//!
//! Two members on one core take turns: each waits for the other one by letting it run, so both look
//! busy and freshly run, and a scheduler may leave them together for as long as the job lasts while
//! another core idles. Whoever finds that it shares its core with another member, at its start or
//! when it has waited for a while, moves away; nobody is bound to a core.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Not known.
const NOWHERE: u32 = u32::MAX;

/// A scheduler that has put a member back has its reasons: how long it is left in peace. Moving
/// costs some 10 us, so this is one part in a hundred at most.
const PATIENCE: Duration = Duration::from_millis(5);

/// Where a member was seen last; a line of its own, since others read it.
#[derive(Debug)]
#[repr(align(128))]
struct Place(AtomicU32);

/// One member's seat among those of its group.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    places: Arc<[Place]>,
    member: usize,
    moved: Option<Instant>,
}

impl Seat {
    /// One for each of `members`; none if there are more members than cores, or only one.
    pub fn row(members: usize) -> Option<Vec<Self>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if members < 2 || members > cores {
            return None;
        }
        let places: Arc<[Place]> = (0..members).map(|_| Place(AtomicU32::new(NOWHERE))).collect();
        let seat = |member| Self { places: places.clone(), member, moved: None };
        Some((0..members).map(seat).collect())
    }

    /// Says where this member is, and moves it if another one is there. Call it from the member's
    /// thread.
    #[cfg(target_os = "linux")]
    pub fn settle(&mut self) {
        use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};
        let here = sched_getcpu();
        let taken = |place: &Place| place.0.load(Ordering::Relaxed);
        if let Some(own) = self.places.get(self.member) {
            own.0.store(here as u32, Ordering::Relaxed);
        }
        let others = || self.places.iter().enumerate().filter(|(m, _)| *m != self.member);
        if others().all(|(_, place)| taken(place) != here as u32) {
            return;
        }
        let now = Instant::now();
        if self.moved.is_some_and(|at| now.duration_since(at) < PATIENCE) {
            return;
        }
        self.moved = Some(now);
        let Ok(allowed) = sched_getaffinity(None) else { return };
        let mut free = allowed;
        self.places.iter().for_each(|place| {
            if taken(place) != NOWHERE {
                free.unset(taken(place) as usize);
            }
        });
        // Without a free core there is nowhere to go. Otherwise the thread moves at once, and may
        // go anywhere again after that, unless somebody has just told it where to be.
        if free.count() > 0 && sched_setaffinity(None, &free).is_ok() {
            if sched_getaffinity(None).is_ok_and(|now| now == free)
                && let Err(error) = sched_setaffinity(None, &allowed)
            {
                tracing::warn!("a rank's thread stays on {} cores: {error}", free.count());
            }
            if let Some(own) = self.places.get(self.member) {
                own.0.store(sched_getcpu() as u32, Ordering::Relaxed);
            }
        }
    }

    /// Only Linux says where a thread runs.
    #[cfg(not(target_os = "linux"))]
    pub fn settle(&mut self) {
        let _ = (&self.moved, NOWHERE, PATIENCE);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    #[test]
    fn a_member_leaves_a_core_that_another_one_has() {
        let Some(mut row) = Seat::row(2) else { return };
        let allowed = sched_getaffinity(None).expect("this thread's cores");
        row[1].settle();
        row[0].settle();
        let (a, b) = (row[0].places[0].0.load(Ordering::Relaxed), sched_getcpu() as u32);
        assert_ne!(row[0].places[1].0.load(Ordering::Relaxed), a, "both on core {a}, now on {b}");
        assert_eq!(sched_getaffinity(None).expect("the same").count(), allowed.count());
    }

    #[test]
    fn a_member_that_is_bound_stays() {
        let Some(mut row) = Seat::row(2) else { return };
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
