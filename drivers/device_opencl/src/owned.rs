//! Reference-counted OpenCL objects. Not the wrappers of `opencl3`, because those panic when a
//! release fails, which it does once a device is lost.

use opencl3::command_queue::{release_command_queue, retain_command_queue};
use opencl3::context::{release_context, retain_context};
use opencl3::error_codes::ClError;
use opencl3::event::release_event;
use opencl3::kernel::release_kernel;
use opencl3::memory::{release_mem_object, retain_mem_object};
use opencl3::program::release_program;
use opencl3::types::{cl_command_queue, cl_context, cl_event, cl_kernel, cl_mem, cl_program};

/// What can be owned.
pub(crate) trait Object: Copy {
    /// # Safety
    /// The object is alive, and the caller's reference is given up.
    unsafe fn release(self) -> Result<(), i32>;
}

/// What can get another owner.
pub(crate) trait Shared: Object {
    /// # Safety
    /// The object is alive.
    unsafe fn retain(self) -> Result<(), i32>;
}

macro_rules! object {
    ($($raw:ty: $release:path $(, $retain:path)?;)*) => {$(
        impl Object for $raw {
            unsafe fn release(self) -> Result<(), i32> {
                // SAFETY: by the caller.
                unsafe { $release(self) }
            }
        }
        $(impl Shared for $raw {
            unsafe fn retain(self) -> Result<(), i32> {
                // SAFETY: by the caller.
                unsafe { $retain(self) }
            }
        })?
    )*};
}

object! {
    cl_context: release_context, retain_context;
    cl_command_queue: release_command_queue, retain_command_queue;
    cl_mem: release_mem_object, retain_mem_object;
    cl_program: release_program;
    cl_kernel: release_kernel;
    cl_event: release_event;
}

/// One reference to an object.
#[derive(Debug)]
pub(crate) struct Owned<T: Object>(T);

// SAFETY: OpenCL calls may come from any thread; the exception, arguments of a kernel, are set
// only through the one queue that owns it.
unsafe impl<T: Object> Send for Owned<T> {}
// SAFETY: as above.
unsafe impl<T: Object> Sync for Owned<T> {}

impl<T: Object> Owned<T> {
    /// # Safety
    /// The caller has a reference to the object and gives it up.
    pub(crate) const unsafe fn new(raw: T) -> Self {
        Self(raw)
    }

    pub(crate) const fn get(&self) -> T {
        self.0
    }
}

impl<T: Shared> Owned<T> {
    /// One more reference to an object that somebody else owns.
    ///
    /// # Safety
    /// The object is alive.
    pub(crate) unsafe fn share(raw: T) -> Result<Self, i32> {
        // SAFETY: by the caller.
        unsafe { raw.retain() }?;
        Ok(Self(raw))
    }
}

impl<T: Object> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: this reference is owned, and not used any more.
        if let Err(code) = unsafe { self.0.release() } {
            tracing::debug!(target: "unisono::opencl", "a release fails: {}", ClError(code));
        }
    }
}
