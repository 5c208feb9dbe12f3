//! The program.
#![no_std]
#![no_main]

dpu_linux_board::start!(|| ());

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    dpu_linux_board::panic(info)
}
