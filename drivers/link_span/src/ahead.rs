//! Where cache lines should be: asked for before they are used, given away after that.

/// Bytes that are asked for at most: as many lines as a core can wait for at a time.
#[cfg(all(target_arch = "x86_64", not(loom)))]
const MOST: usize = 1024;

/// Asks for the lines from `start` on, to be read.
#[cfg_attr(any(loom, not(target_arch = "x86_64")), expect(unused_variables, reason = "no hint"))]
pub(crate) fn to_read(start: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    for at in (0..bytes.min(MOST)).step_by(64) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at).cast()) };
    }
}

/// Asks for the lines from `start` on, to be written.
#[cfg_attr(any(loom, not(target_arch = "x86_64")), expect(unused_variables, reason = "no hint"))]
pub(crate) fn to_write(start: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    for at in (0..bytes.min(MOST)).step_by(64) {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a prefetch cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(start.wrapping_add(at).cast()) };
    }
}

/// Moves the two lines from `start` on out of this core's caches, to where another core finds them
/// sooner (CLDEMOTE of Intel's manual, volume 2; where it is not known, it does nothing).
#[cfg_attr(any(loom, not(target_arch = "x86_64")), expect(unused_variables, reason = "no hint"))]
pub(crate) fn to_others(start: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    for at in [0, 64] {
        let line = start.wrapping_add(at);
        // SAFETY: a hint, which changes no memory and cannot fault.
        unsafe {
            core::arch::asm!("cldemote [{}]", in(reg) line, options(nostack, preserves_flags));
        }
    }
}
