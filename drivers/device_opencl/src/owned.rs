//! Reference-counted OpenCL objects. Not the wrappers of `opencl3`, because those panic when a
//! release fails, which it does once a device is lost.

use opencl3::command_queue::release_command_queue;
use opencl3::context::context::{release_context, retain_context};
use opencl3::error_codes::ClError;
use opencl3::event::release_event;
use opencl3::kernel::release_kernel;
use opencl3::memory::{release_mem_object, retain_mem_object};
use opencl3::program::release_program;
use std::ffi::c_void;
use std::fmt::Debug;
use std::marker::PhantomData;

/// Gives up, or takes, a reference.
type Count = unsafe fn(*mut c_void) -> Result<(), i32>;

/// A kind of object: to OpenCL they all are pointers.
pub(crate) trait Kind: Debug {
    const RELEASE: Count;
}

/// A kind that gets more owners.
pub(crate) trait Shared: Kind {
    const RETAIN: Count;
}

macro_rules! kinds {
    ($($kind:ident: $release:path $(, $retain:path)?;)*) => {$(
        #[derive(Debug)]
        pub(crate) struct $kind;
        impl Kind for $kind {
            const RELEASE: Count = $release;
        }
        $(impl Shared for $kind {
            const RETAIN: Count = $retain;
        })?
    )*};
}

kinds! {
    ClContext: release_context, retain_context;
    ClQueue: release_command_queue;
    ClBuffer: release_mem_object, retain_mem_object;
    ClProgram: release_program;
    ClKernel: release_kernel;
    ClEvent: release_event;
}

/// One reference to an object.
#[derive(Debug)]
pub(crate) struct Owned<K: Kind>(*mut c_void, PhantomData<K>);

// SAFETY: OpenCL calls may come from any thread; the exception, arguments of a kernel, are set
// only through the one queue that owns it.
unsafe impl<K: Kind> Send for Owned<K> {}
// SAFETY: as above.
unsafe impl<K: Kind> Sync for Owned<K> {}

impl<K: Kind> Owned<K> {
    /// # Safety
    /// The caller has a reference to an object of this kind and gives it up.
    pub(crate) const unsafe fn new(raw: *mut c_void) -> Self {
        Self(raw, PhantomData)
    }

    pub(crate) const fn get(&self) -> *mut c_void {
        self.0
    }
}

impl<K: Shared> Owned<K> {
    /// One more reference to an object that somebody else owns.
    ///
    /// # Safety
    /// The object is alive, and of this kind.
    pub(crate) unsafe fn share(raw: *mut c_void) -> Result<Self, i32> {
        // SAFETY: by the caller.
        unsafe { K::RETAIN(raw) }?;
        Ok(Self(raw, PhantomData))
    }
}

impl<K: Kind> Drop for Owned<K> {
    fn drop(&mut self) {
        // SAFETY: this reference is owned, and not used any more.
        if let Err(code) = unsafe { K::RELEASE(self.0) } {
            tracing::debug!(target: "unisono::opencl", "a release fails: {}", ClError(code));
        }
    }
}
