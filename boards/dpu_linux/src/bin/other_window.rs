//! A program with another version of the window's layout, to see what the host makes of it.
#![no_std]
#![no_main]

use dpu_linux_board::sys;
use embedded_hal::delay::DelayNs;
use unisono_core::wire::exit::NO_WINDOW;
use unisono_link_window::ABI;

/// Where the board's line is, in every version: magic, version, heartbeat.
const LINE: usize = 128;
const MAGIC: u32 = u32::from_le_bytes(*b"UNSW");

dpu_linux_board::start_with!(|path| {
    let window = path.and_then(|path| sys::map(path).ok());
    let Some(line) = window.as_ref().and_then(|window| window.span(LINE, 12)) else {
        sys::exit(NO_WINDOW)
    };
    let line = line.cast::<u32>();
    let mut beats = 0;
    loop {
        beats += 1;
        for (at, word) in [(1, ABI + 1), (2, beats), (0, MAGIC)] {
            // SAFETY: within the window, aligned, and only the board writes there.
            unsafe { line.add(at).write_volatile(word) };
        }
        sys::Sleep.delay_us(200);
    }
});

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    dpu_linux_board::panic(info)
}
