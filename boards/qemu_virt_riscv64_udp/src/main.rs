//! The image.
#![no_std]
#![no_main]

unisono_firmware::image_for!("qemu_virt_riscv64_udp");

/// The entry code goes on here.
#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    qemu_virt_riscv64_udp_board::run()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    qemu_virt_riscv64_board::panic(info)
}
