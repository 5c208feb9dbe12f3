//! What Vulkan and OpenCL devices share, so that each API's crate is only its API.
//!
//! * [`backend`]: the contract of an API: allocate and import memory, compile a [`Variant`] of the
//!   kernels, record folds and copies into a batch, submit it, ask how far it is;
//! * [`kernel`]: what a kernel is specialised for, and what it is told at run time; the kernels are
//!   in `kernels/`, ONE source for GLSL and OpenCL C;
//! * [`memory`]: which addresses are memory of the device, and who owns it;
//! * [`Gpu`]: the device that the engine sees: finds the buffers behind addresses, stages what a
//!   kernel cannot reach, splits what is too large, gathers work into batches;
//! * [`Card`]: what a device is, and when two APIs speak of the same one;
//! * the self-test that decides which arithmetic a device is trusted with, and [`Rates`].
//!
//! ```text
//! engine -> Gpu<Context>  (unisono_driver::Device)
//!               |      \
//!               |       Memory<Context>  (shared by all members on the device)
//!               v      /
//!           Context, Queue  (device_vulkan, device_opencl)
//! ```
//!
//! # Fork
//!
//! A device is of use only to the process that opened it. In a child of it every call fails with
//! [`GpuError::Forked`], jobs that were under way complete with that error, and dropping leaves
//! everything of the driver's alone. Open devices after a fork, or start another program.

pub mod backend;
pub mod card;
mod device;
pub mod error;
pub mod kernel;
mod library;
pub mod memory;
mod process;
mod rate;
mod selftest;

pub use backend::{Context, Limits, Place, Queue, Span};
pub use card::{Api, Card, CardType, Pci};
pub use device::{Gpu, Options};
pub use error::GpuError;
pub use kernel::{Arithmetic, DESTS_MAX, FloatControls, Params, SOURCES_MAX, SPAN_MAX, Variant};
pub use library::try_library;
pub use memory::{Allocation, Memory, Registration};
pub use process::Process;
pub use rate::Rates;
