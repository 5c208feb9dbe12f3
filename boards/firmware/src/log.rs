//! The defmt logger: frames go into a ring in RAM, the super-loop carries them away.
//!
//! The lock is a spin lock: boards here log from their loops and never from interrupts.

use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use heapless::Deque;
use spin::mutex::SpinMutex;

/// Bytes of the ring.
const BYTES: usize = 1024;

struct Ring {
    encoder: defmt::Encoder,
    bytes: Deque<u8, BYTES>,
}

static RING: SpinMutex<Ring> =
    SpinMutex::new(Ring { encoder: defmt::Encoder::new(), bytes: Deque::new() });
static LOST: AtomicU32 = AtomicU32::new(0);

fn push(ring: &mut Deque<u8, BYTES>, bytes: &[u8]) {
    for &byte in bytes {
        if ring.push_back(byte).is_err() {
            // One writer at a time: the lock is held.
            LOST.store(LOST.load(Relaxed).saturating_add(1), Relaxed);
        }
    }
}

/// Takes log bytes out of the ring; returns how many.
pub fn take(into: &mut [u8]) -> usize {
    let mut ring = RING.lock();
    let mut n = 0;
    while let Some(place) = into.get_mut(n)
        && let Some(byte) = ring.bytes.pop_front()
    {
        *place = byte;
        n += 1;
    }
    n
}

/// Log bytes that found no room in the ring.
#[must_use]
pub fn lost() -> u32 {
    LOST.load(Relaxed)
}

#[defmt::global_logger]
struct Logger;

// SAFETY: `acquire` takes the lock and `release` gives it back; defmt calls the others in between.
unsafe impl defmt::Logger for Logger {
    fn acquire() {
        let mut ring = RING.lock();
        let Ring { encoder, bytes } = &mut *ring;
        encoder.start_frame(|b| push(bytes, b));
        core::mem::forget(ring);
    }

    unsafe fn write(data: &[u8]) {
        // SAFETY: the lock is held by this core since `acquire`.
        let Ring { encoder, bytes } = unsafe { &mut *RING.as_mut_ptr() };
        encoder.write(data, |b| push(bytes, b));
    }

    unsafe fn flush() {}

    unsafe fn release() {
        // SAFETY: the lock is held by this core since `acquire`.
        let Ring { encoder, bytes } = unsafe { &mut *RING.as_mut_ptr() };
        encoder.end_frame(|b| push(bytes, b));
        // SAFETY: as above, and nobody uses the ring through the forgotten guard.
        unsafe { RING.force_unlock() };
    }
}

/// Says where the program has panicked, and carries the log away with `drain`, which takes bytes
/// and returns how many it has taken. Gives up when `drain` takes nothing for a long time.
pub fn panicked(info: &PanicInfo<'_>, mut drain: impl FnMut(&[u8]) -> usize) {
    if RING.is_locked() {
        // SAFETY: this core held the lock when it panicked, or the other core is about to be
        // stopped with it; a spoilt frame is all that can come of it.
        unsafe { RING.force_unlock() };
    }
    match info.location() {
        Some(at) => defmt::error!("panicked at {=str}:{=u32}", at.file(), at.line()),
        None => defmt::error!("panicked"),
    }
    let mut bytes = [0; 64];
    loop {
        let len = take(&mut bytes);
        let mut rest = bytes.get(..len).unwrap_or(&[]);
        if rest.is_empty() {
            return;
        }
        let mut tries = 1_000_000;
        while !rest.is_empty() && tries > 0 {
            let n = drain(rest);
            rest = rest.get(n..).unwrap_or(&[]);
            tries -= 1;
        }
        if tries == 0 {
            return;
        }
    }
}
