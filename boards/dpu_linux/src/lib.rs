//! The board "a DPU's Arm Linux": the member is a static program, and its window is a file that is
//! mapped: the resource file of the host's card in sysfs, a file in a hugetlbfs, a dma-buf.
//!
//! ```text
//! dpu_linux /sys/bus/pci/devices/0000:03:00.0/resource2
//! ```
//!
//! It is built for the bare-metal target and makes its few system calls itself, so it needs no C
//! library, of whatever version, and no compiler beyond the other boards'.
//!
//! Exit codes are those of [`unisono_core::wire::exit`].
#![no_std]
#![cfg(target_arch = "aarch64")]

mod platform;
mod run;
pub mod sys;

pub use platform::Platform;
pub use run::{panic, run};
