//! Spreads the members of a group evenly over the cores.
//!
//! Members on one core take turns: each waits for the others by letting them run, so all look busy
//! and freshly run, and a scheduler may leave three together and one alone for as long as the job
//! lasts. Whoever finds, at its start or when it has waited for a while, that its core has at least
//! two members more than another one moves there; nobody is bound to a core.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use unisono_link_shm::Word;

/// A scheduler that has put a member back has its reasons: how long it is left in peace. Moving
/// costs some 10 us, so this is one part in a hundred at most.
const PATIENCE: Duration = Duration::from_millis(5);

/// In a member's word: it may run on this core only.
const BOUND: u32 = 1 << 31;

/// One member's seat among those of its group on this machine, which may be several processes.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    /// Where each was seen last: one more than the number of the core; 0 if not known.
    places: Arc<[Word]>,
    member: usize,
    moved: Option<Instant>,
    /// It may run on one core only, as far as it knows.
    bound: bool,
}

impl Seat {
    /// One for each of these members, whose words these are; none if there is nothing to spread.
    pub fn row(words: Vec<Word>) -> Option<Vec<Self>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let members = words.len();
        if members < 2 || cores < 2 {
            return None;
        }
        let places: Arc<[Word]> = words.into();
        let seat = |member| Self { places: places.clone(), member, moved: None, bound: false };
        Some((0..members).map(seat).collect())
    }

    /// Says where this member is, and moves it if that place is crowded. Call it from the member's
    /// thread.
    #[cfg(target_os = "linux")]
    pub fn settle(&mut self) {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
        let here = sched_getcpu();
        self.say(here);
        // Of those that could move from here the last one does: two might swap the crowd's place.
        if !self.is_last(here) {
            return;
        }
        let now = Instant::now();
        if self.moved.is_some_and(|at| now.duration_since(at) < PATIENCE) {
            return;
        }
        self.moved = Some(now);
        let Ok(allowed) = sched_getaffinity(None) else { return };
        let there = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let loads = there.map(|core| (self.load(core), core));
        let Some((least, there)) = loads.min() else { return };
        self.bound = allowed.count() < 2;
        if least + 1 >= self.load(here) {
            return self.say(here);
        }
        let mut free = CpuSet::new();
        free.set(there);
        // The thread moves at once, and may go anywhere again after that, unless somebody has just
        // told it where to be.
        if sched_setaffinity(None, &free).is_ok() {
            if sched_getaffinity(None).is_ok_and(|now| now == free)
                && let Err(error) = sched_setaffinity(None, &allowed)
            {
                tracing::warn!("a rank's thread stays on core {there}: {error}");
            }
            self.say(sched_getcpu());
        }
    }

    fn say(&self, core: usize) {
        if let Some(own) = self.places.get(self.member) {
            let bound = if self.bound { BOUND } else { 0 };
            own.store((core as u32 + 1) | bound, Ordering::Relaxed);
        }
    }

    /// Members that were seen there.
    fn load(&self, core: usize) -> usize {
        let there = |place: &&Word| place.load(Ordering::Relaxed) & !BOUND == core as u32 + 1;
        self.places.iter().filter(there).count()
    }

    /// Is this member not the only one there, and the last of those that are not bound?
    fn is_last(&self, core: usize) -> bool {
        let mut alone = true;
        for (member, place) in self.places.iter().enumerate() {
            let place = place.load(Ordering::Relaxed);
            if member != self.member && place & !BOUND == core as u32 + 1 {
                if member > self.member && place & BOUND == 0 {
                    return false;
                }
                alone = false;
            }
        }
        !alone
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
        row[0].settle();
        row[1].settle();
        let (a, b) = (row[0].places[0].load(Ordering::Relaxed), sched_getcpu() as u32 + 1);
        assert_ne!(row[0].places[1].load(Ordering::Relaxed), a, "both on core {a}, now on {b}");
        assert_eq!(sched_getaffinity(None).expect("the same").count(), allowed.count());
    }

    #[test]
    fn four_members_do_not_crowd_on_one_of_two_cores() {
        let Some(mut row) = row(4) else { return };
        let allowed = sched_getaffinity(None).expect("this thread's cores");
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let (Some(one), Some(two)) = (cores.next(), cores.next()) else { return };
        let sit = |core: usize, seat: &mut Seat| {
            let mut only = CpuSet::new();
            only.set(core);
            sched_setaffinity(None, &only).expect("a core that it has");
            let mut both = only;
            both.set(one);
            both.set(two);
            sched_setaffinity(None, &both).expect("cores that it has");
            seat.say(core);
        };
        row.iter_mut().take(3).for_each(|seat| sit(one, seat));
        sit(two, &mut row[3]);
        let counts = |row: &[Seat]| (row[0].load(one), row[0].load(two));
        assert_eq!(counts(&row), (3, 1));
        for seat in row.iter_mut().take(3) {
            sit(one, seat);
            seat.settle();
        }
        assert_eq!(counts(&row), (2, 2), "the last one has moved");
        sched_setaffinity(None, &allowed).expect("what it had");
    }

    #[test]
    fn a_member_that_is_bound_stays() {
        let Some(mut row) = row(2) else { return };
        let allowed = sched_getaffinity(None).expect("this thread's cores");
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one).expect("a core that it has");
        row[0].settle();
        row[1].settle();
        assert_eq!(sched_getaffinity(None).expect("the same").count(), 1);
        assert_ne!(row[0].places[1].load(Ordering::Relaxed) & BOUND, 0, "others need not wait");
        sched_setaffinity(None, &allowed).expect("what it had");
    }
}
