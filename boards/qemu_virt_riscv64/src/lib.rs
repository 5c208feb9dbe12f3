//! The board "QEMU `virt`, riscv64": one hart without floating-point unit (what a BlueField-3 DPA
//! has) and a window over ivshmem, which stands for the PCIe BAR of a card.
//!
//! | memory | what |
//! |---|---|
//! | `0x0200_0000` | timer (CLINT) |
//! | `0x2000_0000` | flash: code and constants (`link.ld`) |
//! | `0x3000_0000` | PCIe configuration space |
//! | `0x4000_0000` | PCIe memory space: BAR 0 and, from `0x6000_0000` on, the window (BAR 2) |
//! | `0x8000_0000` | RAM: data and the stack |
//!
//! Exit codes are those of [`unisono_core::wire::exit`].
#![no_std]
#![cfg(target_arch = "riscv64")]

pub mod cpu;
mod platform;
mod run;

pub use platform::Platform;
pub use run::{CALLS, MEMBERS, MOVES, WINDOW, drive, line, panic, run, start};

/// Ends the program with this code.
pub fn exit(code: i32) -> ! {
    semihosting::process::exit(code)
}
