//! The CPU as a device: folds and copies run at once, in the calling thread.
//!
//! * [`CpuDevice`] is the driver; it works on any address of the process;
//! * [`Isa`] names the instruction sets that the kernels are compiled for. The best one that the
//!   CPU has is found at run time (feature `std`), or taken from the build target;
//! * the kernels give the bits of [`unisono_core::numeric`] for every type, operator and finish.
//!   They handle any length and any start address.
//!
//! Rates are in `docs/PERFORMANCE.md`, section "CPU fold kernels".
#![no_std]

#[cfg(any(feature = "std", test))]
extern crate std;

mod device;
mod isa;
mod kernel;

pub use device::{CpuDevice, CpuError};
pub use isa::Isa;
