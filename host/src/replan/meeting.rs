//! Where the members of one process meet: one of them does what has to be done once.

use crate::error::Error;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

struct State<T> {
    /// Number of the call before the meeting: the same on all members.
    key: u64,
    here: usize,
    outcome: Option<Result<T, Error>>,
    /// The other processes know of an error, or need not.
    told: bool,
}

/// One meeting after the other.
pub(crate) struct Meeting<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T: Clone> Meeting<T> {
    pub fn new() -> Self {
        let state = State { key: 0, here: 0, outcome: None, told: true };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn at(&self, key: u64) -> MutexGuard<'_, State<T>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.key < key {
            *state = State { key, here: 0, outcome: None, told: false };
        }
        state
    }

    /// Waits until so many members are there; the last one works, and all get what comes of it. If
    /// they do not come within `patience`, or one has an error instead, that is what all get, and
    /// one of them calls `tell` with it, for members elsewhere that wait.
    pub fn meet(
        &self,
        key: u64,
        members: usize,
        patience: Duration,
        work: impl FnOnce() -> Result<T, Error>,
        tell: impl FnOnce(Error),
    ) -> Result<T, Error> {
        let mut state = self.at(key);
        if state.key != key {
            return Err(late());
        }
        state.here += 1;
        if state.here == members && state.outcome.is_none() {
            state.told = true;
            drop(state);
            let outcome = work();
            self.at(key).outcome = Some(outcome.clone());
            self.changed.notify_all();
            return outcome;
        }
        let end = Instant::now() + patience;
        loop {
            if state.key != key {
                return Err(late());
            }
            if let Some(outcome) = state.outcome.clone() {
                let first = !std::mem::replace(&mut state.told, true);
                drop(state);
                if let (true, Err(error)) = (first, &outcome) {
                    tell(error.clone());
                }
                return outcome;
            }
            let left = end.saturating_duration_since(Instant::now());
            state = if state.here == members {
                // Whoever works comes to an end.
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else if left.is_zero() {
                let (here, key) = (state.here, state.key);
                let text = format!("{here} of {members} members here have come to call {key}");
                state.outcome = Some(Err(Error::Replan(text)));
                self.changed.notify_all();
                state
            } else {
                let waited = self.changed.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    /// A member has an error instead of coming: those who wait for it, or come later, have it, too.
    pub fn miss(&self, key: u64, error: &Error) {
        let mut state = self.at(key);
        if state.key == key && state.outcome.is_none() {
            state.outcome = Some(Err(error.clone()));
            self.changed.notify_all();
        }
    }
}

fn late() -> Error {
    Error::Replan("the others are at a later call".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LONG: Duration = Duration::from_secs(60);

    /// What three members get, the first of which does something else instead.
    fn three(first: impl FnOnce(&Meeting<u32>) + Send, patience: Duration) -> (Vec<Error>, usize) {
        let (meeting, told) = (&Meeting::new(), &AtomicUsize::new(0));
        let tell = |_| {
            told.fetch_add(1, Ordering::Relaxed);
        };
        let errors = std::thread::scope(|scope| {
            let all = [1, 2].map(|_| {
                scope.spawn(move || meeting.meet(7, 3, patience, || Ok(1), tell).expect_err("two"))
            });
            first(meeting);
            all.map(|thread| thread.join().expect("no panic")).to_vec()
        });
        (errors, told.load(Ordering::Relaxed))
    }

    #[test]
    fn one_works_and_all_have_the_outcome() {
        let (meeting, worked) = (&Meeting::new(), &AtomicUsize::new(0));
        for key in [3, 9] {
            let work = || Ok(worked.fetch_add(1, Ordering::Relaxed));
            let all = std::thread::scope(|scope| {
                let one = || meeting.meet(key, 4, LONG, work, |_| unreachable!());
                let all = [(); 4].map(|()| scope.spawn(one));
                all.map(|thread| thread.join().expect("no panic"))
            });
            let before = worked.load(Ordering::Relaxed) - 1;
            assert_eq!(all, [(); 4].map(|()| Ok(before)));
        }
        assert_eq!(worked.load(Ordering::Relaxed), 2);
        let stale = meeting.meet(3, 4, LONG, || Ok(0), |_| unreachable!());
        assert_eq!(stale, Err(late()));
    }

    #[test]
    fn a_member_that_does_not_come_is_an_error() {
        let (errors, told) = three(|_| (), Duration::from_millis(50));
        let text = "2 of 3 members here have come to call 7".to_owned();
        assert_eq!((errors, told), (vec![Error::Replan(text); 2], 1));
    }

    #[test]
    fn the_error_of_one_is_one_of_all() {
        let why = Error::PeerLost(5);
        let (errors, told) = three(|meeting| meeting.miss(7, &why), LONG);
        assert_eq!((errors, told), (vec![why.clone(); 2], 1));
    }
}
