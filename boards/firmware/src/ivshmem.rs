//! The window of an emulated board: BAR 2 of the ivshmem device, on a PCI bus that nobody has set
//! up.

use core::ptr::NonNull;
use unisono_link_window::Window;

/// Functions on bus 0 are 32 KiB apart.
const DEVICES: usize = 32;
/// Vendor and device of ivshmem.
const IVSHMEM: u32 = 0x1110_1af4;
/// Words of the configuration header.
const COMMAND: usize = 1;
const BAR0: usize = 4;
const BAR2: usize = 6;
/// Answers to memory accesses, and may make its own.
const ENABLE: u32 = 0b110;

/// Where things are on a board.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// Configuration space.
    pub config: usize,
    /// Where BAR 0 goes, in the first 4 GiB.
    pub registers: u32,
    /// Where the window goes, in the first 4 GiB, on a multiple of its size.
    pub window: u32,
    /// Most bytes of it.
    pub bytes_max: usize,
    /// The address at which the cores see the window.
    pub seen_at: usize,
}

impl Map {
    /// Gives the window its place; `None` if there is no such device, or its memory is too large.
    ///
    /// # Safety
    /// The map must be that of the board, the configuration space mapped as device memory. Call it
    /// once: nobody else may use the device.
    #[must_use]
    pub unsafe fn find_window(&self) -> Option<Window> {
        let function = (0..DEVICES).find_map(|device| {
            let words = (self.config + (device << 15)) as *mut u32;
            // SAFETY: configuration space, by the caller's promise.
            (unsafe { words.read_volatile() } == IVSHMEM).then_some(words)
        })?;
        // SAFETY: the header has 16 words, as all have. Until it is enabled, the device answers to
        // no address, so its BARs can be written to learn their size.
        let bytes = unsafe {
            let set = |at: usize, value: u32| function.add(at).write_volatile(value);
            set(COMMAND, 0);
            set(BAR2, u32::MAX);
            set(BAR2 + 1, u32::MAX);
            let low = function.add(BAR2).read_volatile() & !0xf;
            let high = function.add(BAR2 + 1).read_volatile();
            set(BAR0, self.registers);
            set(BAR2, self.window);
            set(BAR2 + 1, 0);
            set(COMMAND, ENABLE);
            (!(u64::from(high) << 32 | u64::from(low))).wrapping_add(1)
        };
        let bytes = usize::try_from(bytes).ok().filter(|&b| b > 0 && b <= self.bytes_max)?;
        let base = NonNull::new(self.seen_at as *mut u8)?;
        // SAFETY: the device answers there from now on, and nobody else uses it.
        Some(unsafe { Window::new(base, bytes) })
    }
}
