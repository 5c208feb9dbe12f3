//! Where a counter outside sees that a round is over, and whether it did anything.
//!
//! A core that waits executes instructions too, as many as it has time for. What a call costs are
//! those of the rounds with work; `host/qemu_counter` finds these two functions by their names.

use core::arch::asm;

/// The end of a round of this core.
pub fn round_is_over(worked: bool) {
    if worked {
        unisono_worked();
    } else {
        unisono_rested();
    }
}

// Different texts, or the compiler makes one function of the two.

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unisono_worked() {
    // SAFETY: a comment.
    unsafe { asm!("/* worked */", options(nostack)) };
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unisono_rested() {
    // SAFETY: a comment.
    unsafe { asm!("/* rested */", options(nostack)) };
}
