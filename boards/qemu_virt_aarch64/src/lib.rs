//! The board "QEMU `virt`, aarch64": two Cortex-A72 (the cores of a BlueField-2) and a window over
//! ivshmem, which stands for the PCIe BAR of a card.
//!
//! Core 0 drives links and engine, core 1 folds.
//!
//! | memory | what |
//! |---|---|
//! | `0x0800_0000` | interrupt controller (only to wake cores from their sleep) |
//! | `0x1000_0000` | PCIe memory space: BAR 0 and, from `0x2000_0000` on, the window (BAR 2) |
//! | `0x4020_0000` | the image, its data and stacks (`link.ld`) |
//! | `0xC000_0000` | the first GiB once more as normal memory: the window is used here |
//! | `0x40_1000_0000` | PCIe configuration space |
//!
//! Exit codes: 101 after a panic, [`NO_WINDOW`], [`WINDOW_ABI`], [`NO_SECOND_CORE`].
#![no_std]
#![cfg(target_arch = "aarch64")]

pub mod cpu;
mod exceptions;
mod platform;
mod run;

pub use platform::{Platform, Work};
pub use run::{CALLS, MEMBERS, MOVES, WINDOW, drive, line, panic, run, start};

/// Exit code: there is no ivshmem device, or not enough memory space for it.
pub const NO_WINDOW: i32 = 2;
/// Exit code: the region in the window is not one of this version.
pub const WINDOW_ABI: i32 = 3;
/// Exit code: the second core does not start.
pub const NO_SECOND_CORE: i32 = 4;
/// Exit code after a panic, as of any Rust program.
pub const PANICKED: i32 = 101;

/// Ends the program with this code.
pub fn exit(code: i32) -> ! {
    semihosting::process::exit(code)
}
