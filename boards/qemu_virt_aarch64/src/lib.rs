//! The board "QEMU `virt`, aarch64": two Cortex-A72 (the cores of a BlueField-2) and a window over
//! ivshmem, which stands for the PCIe BAR of a card.
//!
//! Core 0 drives links and engine, core 1 folds.
//!
//! | memory | what |
//! |---|---|
//! | `0x0800_0000` | interrupt controller (only to wake cores from their sleep) |
//! | `0x0903_0000` | eight pins (PL061): doorbell, status and attention are 3, 4 and 5 |
//! | `0x1000_0000` | PCIe memory space: BAR 0 and, from `0x2000_0000` on, the window (BAR 2) |
//! | `0x4020_0000` | the image, its data and stacks (`link.ld`) |
//! | `0xC000_0000` | the first GiB once more as normal memory: the window is used here |
//! | `0x40_1000_0000` | PCIe configuration space |
//!
//! Exit codes are those of [`unisono_core::wire::exit`].
#![no_std]
#![cfg(target_arch = "aarch64")]

pub mod cpu;
mod exceptions;
mod pins;
mod platform;
mod run;

pub use platform::{Platform, Work};
pub use run::{CALLS, MEMBERS, MOVES, WINDOW, drive, line, panic, run, start};

/// Ends the program with this code.
pub fn exit(code: i32) -> ! {
    semihosting::process::exit(code)
}
