//! Memory that kernels and copies work on.

use crate::error::Device;
use crate::owned::{ClBuffer, ClContext, ClEvent, ClQueue, Owned};
use opencl3::command_queue::{enqueue_unmap_mem_object, finish};
use opencl3::memory::svm_free;
use opencl3::types::cl_mem;
use std::ptr::{NonNull, null};
use std::sync::Arc;
use unisono_gpu::GpuError;

/// Memory of a device, or that a device reaches; freed when it is dropped.
#[derive(Debug)]
pub struct Buffer {
    pub(crate) memory: Memory,
    pub(crate) bytes: u64,
}

/// What kind of memory.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Fine-grained shared virtual memory: one address for host and device.
    Shared(Allocation),
    /// The device's own.
    Device(Owned<ClBuffer>),
    /// The host's, where the device's is the same: the caller's memory in place.
    Imported(Owned<ClBuffer>, NonNull<u8>),
    /// The host's, for copies only: what is mapped is not for kernels.
    Pinned(Mapped),
}

// SAFETY: the addresses are those of memory that is valid until the buffer is dropped; who may use
// it when is the business of the unsafe calls that do.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// How an OpenCL call names the start of a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handle {
    /// An address, which the host can use as well.
    Address(NonNull<u8>),
    /// An object.
    Object(cl_mem),
}

impl Buffer {
    /// How copies name it.
    pub(crate) fn handle(&self) -> Handle {
        match &self.memory {
            Memory::Shared(allocation) => Handle::Address(allocation.start()),
            Memory::Device(object) | Memory::Imported(object, _) => Handle::Object(object.get()),
            Memory::Pinned(mapped) => Handle::Address(mapped.start),
        }
    }

    /// How kernels name it; `None` if they must not use it.
    pub(crate) fn kernel_handle(&self) -> Option<Handle> {
        match &self.memory {
            Memory::Pinned(_) => None,
            _ => Some(self.handle()),
        }
    }

    /// Where the host finds it.
    pub(crate) fn mapped(&self) -> Option<NonNull<u8>> {
        match &self.memory {
            Memory::Shared(allocation) => Some(allocation.start()),
            Memory::Device(_) => None,
            Memory::Imported(_, start) => Some(*start),
            Memory::Pinned(mapped) => Some(mapped.start),
        }
    }

    /// The `cl_mem`, for kernels of the caller; `None` if it is shared virtual memory, which has
    /// an address instead: see [`Buffer::shared`]. It lives as long as the buffer.
    #[must_use]
    pub const fn mem(&self) -> Option<cl_mem> {
        match &self.memory {
            Memory::Device(object) | Memory::Imported(object, _) => Some(object.get()),
            Memory::Shared(_) | Memory::Pinned(_) => None,
        }
    }

    /// The address of fine-grained shared virtual memory, for host and kernels of the caller
    /// (`clSetKernelArgSVMPointer`).
    #[must_use]
    pub fn shared(&self) -> Option<NonNull<u8>> {
        match &self.memory {
            Memory::Shared(allocation) => Some(allocation.start()),
            _ => None,
        }
    }

    /// Checks that a span lies in the buffer.
    pub(crate) fn check(&self, offset: u64, bytes: u64, device: &Device) -> Result<(), GpuError> {
        if offset.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        Err(GpuError::Address {
            device: device.name(),
            start: offset as usize,
            bytes,
            text: "the span ends after its buffer",
        })
    }
}

/// Shared virtual memory. It starts within what was allocated, at a page.
#[derive(Debug)]
pub(crate) struct Allocation {
    context: Arc<Owned<ClContext>>,
    allocated: NonNull<u8>,
    skipped: usize,
}

impl Allocation {
    /// # Safety
    /// `allocated` comes from `clSVMAlloc` in this context, and is given up; it is longer than
    /// `align`.
    pub(crate) unsafe fn new(
        context: Arc<Owned<ClContext>>,
        allocated: NonNull<u8>,
        align: usize,
    ) -> Self {
        let skipped = allocated.as_ptr().align_offset(align);
        Self { context, allocated, skipped }
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: the allocation is longer than what is skipped.
        unsafe { self.allocated.add(self.skipped) }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in this context, and not used any more. The call gives no error.
        let _ = unsafe { svm_free(self.context.get(), self.allocated.as_ptr().cast()) };
    }
}

/// Host memory of a buffer that stays mapped.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) object: Owned<ClBuffer>,
    pub(crate) start: NonNull<u8>,
    /// The queue that it was mapped in.
    pub(crate) queue: Arc<Owned<ClQueue>>,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let (queue, object) = (self.queue.get(), self.object.get());
        // SAFETY: mapped once in this queue, and nobody uses the mapping any more.
        let unmapped = unsafe {
            enqueue_unmap_mem_object(queue, object, self.start.as_ptr().cast(), 0, null())
        };
        if let Ok(event) = unmapped {
            // SAFETY: the call gave the reference away.
            drop(unsafe { Owned::<ClEvent>::new(event) });
            let _ = finish(queue);
        }
    }
}
