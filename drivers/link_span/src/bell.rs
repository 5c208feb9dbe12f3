//! Waking a member that sleeps.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// Longest sleep. Ringing is not fenced against falling asleep (that would cost every message a
/// full fence), so a bell can be missed once in a while: then this is how long it takes.
const NAP: Duration = Duration::from_micros(200);

/// A member's bell: its peers ring after every frame; it costs them a load unless it sleeps.
///
/// It has its lines for itself: whoever rings reads them after every frame.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Bell {
    asleep: AtomicBool,
    sleeper: Mutex<Option<Thread>>,
}

impl Bell {
    /// Wakes the member if it sleeps.
    pub fn ring(&self) {
        if self.asleep.load(Ordering::Relaxed)
            && self.asleep.swap(false, Ordering::AcqRel)
            && let Ok(sleeper) = self.sleeper.lock()
            && let Some(thread) = &*sleeper
        {
            thread.unpark();
        }
    }

    /// Sleeps until the bell rings, or a short time.
    pub fn sleep(&self) {
        if let Ok(mut sleeper) = self.sleeper.lock() {
            *sleeper = Some(std::thread::current());
        }
        self.asleep.store(true, Ordering::Release);
        std::thread::park_timeout(NAP);
        self.asleep.store(false, Ordering::Release);
    }
}
