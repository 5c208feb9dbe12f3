//! The image.
#![no_std]
#![no_main]

use aarch64_rt::entry;

entry!(main);
unisono_firmware::image_for!("qemu_virt_aarch64_udp");

fn main(_: u64, _: u64, _: u64, _: u64) -> ! {
    qemu_virt_aarch64_udp_board::run()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    qemu_virt_aarch64_board::panic(info)
}
