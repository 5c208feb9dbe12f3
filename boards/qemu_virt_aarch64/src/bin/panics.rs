//! An image that panics soon after its start, to see what the host makes of it.
#![no_std]
#![no_main]

use aarch64_rt::entry;
use qemu_virt_aarch64_board::cpu;

entry!(main);
unisono_firmware::image_for!("qemu_virt_aarch64");

/// When it does so: late enough to have been greeted on any machine.
const AFTER_MS: u64 = 1500;

fn main(_: u64, _: u64, _: u64, _: u64) -> ! {
    let end = cpu::now().as_nanos() + AFTER_MS * 1_000_000;
    qemu_virt_aarch64_board::run(|| assert!(cpu::now().as_nanos() < end))
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    qemu_virt_aarch64_board::panic(info)
}
