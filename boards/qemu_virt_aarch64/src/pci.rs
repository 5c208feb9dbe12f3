//! Finding the window: BAR 2 of the ivshmem device.

use crate::cpu::NORMAL_ALIAS;
use core::ptr::NonNull;
use unisono_link_window::Window;

/// Configuration space, a function each 32 KiB on bus 0.
const CONFIG: usize = 0x40_1000_0000;
const DEVICES: usize = 32;
/// Vendor and device of ivshmem.
const IVSHMEM: u32 = 0x1110_1af4;
/// Where the BARs go, and where memory space ends.
const REGISTERS: usize = 0x1000_0000;
const WINDOW: usize = 0x2000_0000;
const END: usize = 0x3eff_0000;
/// Words of the configuration header.
const COMMAND: usize = 1;
const BAR0: usize = 4;
const BAR2: usize = 6;
/// Answers to memory accesses, and may make its own.
const ENABLE: u32 = 0b110;

/// Gives the window of the ivshmem device its place; `None` if there is none, or it is too large.
/// Call it once.
#[must_use]
pub fn find_window() -> Option<Window> {
    let function = (0..DEVICES).find_map(|device| {
        let words = (CONFIG + (device << 15)) as *mut u32;
        // SAFETY: configuration space, mapped as device memory.
        (unsafe { words.read_volatile() } == IVSHMEM).then_some(words)
    })?;
    // SAFETY: the header has 16 words, as all have. Until it is enabled, the device answers to no
    // address, so its BARs can be written to learn their size.
    let bytes = unsafe {
        let set = |at: usize, value: u32| function.add(at).write_volatile(value);
        set(COMMAND, 0);
        set(BAR2, u32::MAX);
        set(BAR2 + 1, u32::MAX);
        let low = function.add(BAR2).read_volatile() & !0xf;
        let high = function.add(BAR2 + 1).read_volatile();
        set(BAR0, REGISTERS as u32);
        set(BAR2, WINDOW as u32);
        set(BAR2 + 1, 0);
        set(COMMAND, ENABLE);
        (!(u64::from(high) << 32 | u64::from(low))).wrapping_add(1)
    };
    let bytes = usize::try_from(bytes).ok().filter(|&b| b > 0 && b <= END - WINDOW)?;
    let base = NonNull::new((NORMAL_ALIAS + WINDOW) as *mut u8)?;
    // SAFETY: the device answers there from now on, and nobody else uses it.
    Some(unsafe { Window::new(base, bytes) })
}
