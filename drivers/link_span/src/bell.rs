//! Waking a member that sleeps.

use core::any::Any;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::thread::futex;
use std::sync::Arc;
use std::time::Duration;

/// Longest sleep. Ringing is not fenced against falling asleep (that would cost every message a
/// full fence), so a bell can be missed once in a while: then this is how long it takes.
const NAP: Duration = Duration::from_micros(200);

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// The member's state, on lines for itself: whoever rings reads it after every frame.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Word(AtomicU32);

/// A member's bell: its peers ring after every frame; it costs them a load unless it sleeps.
pub struct Bell {
    word: NonNull<Word>,
    /// Nobody else's process has it.
    flags: futex::Flags,
    /// What the memory belongs to.
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: an atomic that lives as long as what it belongs to.
unsafe impl Send for Bell {}
// SAFETY: as above.
unsafe impl Sync for Bell {}

impl Default for Bell {
    fn default() -> Self {
        let owned = Arc::new(Word::default());
        Self { word: NonNull::from(&*owned), flags: futex::Flags::PRIVATE, _keep: owned }
    }
}

impl Bell {
    /// Bytes that a bell takes in memory that processes share.
    pub const BYTES: usize = size_of::<Word>();

    /// The bell at `start`, of a member of this or another process.
    ///
    /// # Safety
    /// There are [`Bell::BYTES`] bytes, on a pair of cache lines; they were zero before the first
    /// bell was there, all that use them now use them as this bell, and they stay mapped as long
    /// as `keep` exists.
    #[must_use]
    pub const unsafe fn at(start: NonNull<u8>, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { word: start.cast(), flags: futex::Flags::empty(), _keep: keep }
    }

    const fn word(&self) -> &AtomicU32 {
        // SAFETY: it lives as long as what it belongs to, and any bits are a number.
        unsafe { &self.word.as_ref().0 }
    }

    /// Wakes the member if it sleeps.
    pub fn ring(&self) {
        let word = self.word();
        if word.load(Ordering::Relaxed) != AWAKE && word.swap(AWAKE, Ordering::AcqRel) == ASLEEP {
            // It cannot fail for a word that is there.
            let _ = futex::wake(word, self.flags, 1);
        }
    }

    /// Sleeps until the bell rings, or a short time.
    pub fn sleep(&self) {
        let word = self.word();
        word.store(ASLEEP, Ordering::Release);
        let nap = futex::Timespec { tv_sec: 0, tv_nsec: NAP.subsec_nanos().into() };
        // Whatever ends it: the caller looks for what has happened.
        let _ = futex::wait(word, self.flags, ASLEEP, Some(&nap));
        word.store(AWAKE, Ordering::Release);
    }
}
