//! Reduces on GPUs through Vulkan: a [`Context`] of [`unisono_gpu`].
//!
//! ```text
//! devices(), VulkanContext  loader.rs, card.rs, context.rs  drivers, and what a device is
//! manifests()               manifest.rs                     the files that name drivers
//! VulkanBuffer              buffer.rs, memory.rs            allocated, imported, the caller's
//! VulkanKernel              pipeline.rs, specialise/        SPIR-V to pipelines
//! VulkanQueue               queue.rs, batch.rs              batches in, completions out
//! ```
//!
//! vulkano owns the library, the device, the queue and the buffers, so that a program that computes
//! through vulkano shares them with a group: [`VulkanContext::with_queue`] joins in on its device,
//! [`VulkanContext::adopt`] takes its buffers. Batches are recorded and submitted by raw calls:
//! these neither allocate nor track what the engine knows already.
//!
//! Nothing is linked: without a loader or a driver the crate builds and starts, and says what is
//! missing and how to get it.

mod batch;
mod buffer;
mod card;
mod context;
mod fault;
mod loader;
mod manifest;
mod memory;
mod options;
mod pipeline;
mod queue;
mod specialise;
mod unwind;

pub use buffer::VulkanBuffer;
pub use context::{VulkanContext, devices};
pub use manifest::{library, manifests};
pub use options::{Complaint, Options};
pub use pipeline::VulkanKernel;
pub use queue::VulkanQueue;
#[doc(no_inline)]
pub use unisono_gpu::Context;
/// The vulkano that buffers, devices and queues are of.
pub use vulkano;
