//! What Vulkan and OpenCL devices share, so that each API's crate is only its API.
//!
//! * [`backend`]: the contract of an API: allocate and import memory, compile a [`Variant`] of the
//!   kernels, record folds and copies into a batch, submit it, ask how far it is;
//! * [`Variant`], [`Params`]: what a kernel is specialised for, and what it is told at run time;
//!   the kernels are in `kernels/`, ONE source for GLSL and OpenCL C;
//! * [`Card`]: what a device is, and when two APIs speak of the same one.
//!
//! ```text
//! engine -> Gpu<Context>  (unisono_driver::Device; addresses, staging, splitting, batches)
//!               |
//!               v
//!           Context, Queue  (device_vulkan, device_opencl)
//! ```

pub mod backend;
pub mod card;
mod device;
pub mod error;
pub mod kernel;
pub mod memory;
mod process;
mod rate;
mod selftest;

pub use backend::{Context, Limits, Place, Queue, Span};
pub use card::{Api, Card, CardType, Pci};
pub use device::{Gpu, Options};
pub use error::GpuError;
pub use kernel::{Arithmetic, DESTS_MAX, FloatControls, Params, SOURCES_MAX, SPAN_MAX, Variant};
pub use memory::{Allocation, Memory, Registration};
pub use process::Process;
pub use rate::Rates;
