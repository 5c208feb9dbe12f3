//! The OpenCL device: [`Context`] and [`Queue`] of `unisono_gpu` on `opencl3`, which loads
//! `libOpenCL` when it is first asked for, so that programs start where there is none.
//!
//! * [`devices`]: what there is, or what is missing and how to get it;
//! * [`vendors()`]: the files that name drivers;
//! * [`OpenCl`]: one device, opened, or with a context that the caller already has; allocates
//!   [`Buffer`]s, and takes in buffers of the caller;
//! * [`Options`]: use less of a device than it has.
//!
//! Where host and device share memory (processors, integrated GPUs), tensors lie in fine-grained
//! shared virtual memory, one address for both, and memory of the process is used where it lies.
//! Elsewhere tensors lie in buffers of the device, and copies go through pinned memory.
//!
//! A process that forks opens devices after the fork: drivers do not work in the child of a
//! process that has used them, and PoCL hangs there.

mod buffer;
mod card;
mod context;
mod discover;
mod error;
mod options;
mod owned;
mod program;
mod queue;
mod vendors;
mod zero_copy;

pub use buffer::Buffer;
pub use context::OpenCl;
pub use discover::devices;
/// The opencl3 that contexts and buffers are of.
pub use opencl3;
pub use options::Options;
pub use program::Kernel;
pub use queue::OpenClQueue;
pub use vendors::{library, vendors};

#[cfg(doc)]
use unisono_gpu::{Context, Queue};
