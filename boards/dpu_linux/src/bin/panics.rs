//! A program that panics soon after its start, to see what the host makes of it.
#![no_std]
#![no_main]

use dpu_linux_board::sys;

/// When it does so: late enough to have been greeted on any machine.
const AFTER_MS: u64 = 1500;

dpu_linux_board::start!({
    let end = sys::now().as_nanos() + AFTER_MS * 1_000_000;
    move || assert!(sys::now().as_nanos() < end)
});

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    dpu_linux_board::panic(info)
}
