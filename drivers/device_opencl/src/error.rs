//! Error codes by name, and what a driver says about them.

use opencl3::error_codes::{
    CL_DEVICE_NOT_AVAILABLE, CL_INVALID_BUFFER_SIZE, CL_MEM_OBJECT_ALLOCATION_FAILURE,
    CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES, ClError,
};
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use unisono_gpu::GpuError;

/// Most remarks that are kept until somebody asks for them.
const REMARKS_MAX: usize = 32;

/// What drivers said, by [`Device`] number. Global, because a driver may call back at any time, and
/// a number needs no memory to be alive then.
static REMARKS: Mutex<VecDeque<(usize, String)>> = Mutex::new(VecDeque::new());

/// A device by name, for errors.
#[derive(Debug)]
pub(crate) struct Device {
    name: String,
    number: usize,
}

impl Device {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Self { name: name.to_owned(), number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    /// What to give to `clCreateContext` with [`remark`].
    pub(crate) fn user_data(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.number)
    }

    /// The name of a code, and what the driver has said since the last error.
    pub(crate) fn text(&self, code: i32) -> String {
        let mut text = format!("{} ({code})", ClError(code));
        let mut remarks = REMARKS.lock().unwrap_or_else(PoisonError::into_inner);
        remarks.retain(|(number, remark)| {
            if *number == self.number {
                text.push_str(": ");
                text.push_str(remark);
            }
            *number != self.number
        });
        text
    }

    /// The error for a call that failed.
    pub(crate) fn failed(&self, call: &'static str, code: i32) -> GpuError {
        let text = self.text(code);
        if code == CL_DEVICE_NOT_AVAILABLE {
            return GpuError::Lost { device: self.name(), text: format!("{call}: {text}") };
        }
        GpuError::Driver { device: self.name(), call, text }
    }

    /// The error for an allocation that failed.
    pub(crate) fn no_memory(&self, call: &'static str, bytes: u64, code: i32) -> GpuError {
        match code {
            CL_MEM_OBJECT_ALLOCATION_FAILURE
            | CL_OUT_OF_RESOURCES
            | CL_OUT_OF_HOST_MEMORY
            | CL_INVALID_BUFFER_SIZE => {
                let text = format!("{call}: {}", self.text(code));
                GpuError::OutOfMemory { device: self.name(), bytes, text }
            }
            _ => self.failed(call, code),
        }
    }
}

/// Called by drivers, on any thread, with an explanation of an error.
pub(crate) unsafe extern "C" fn remark(
    text: *const c_char,
    _private: *const c_void,
    _size: usize,
    user_data: *mut c_void,
) {
    if text.is_null() {
        return;
    }
    // SAFETY: the driver passes a string that ends with zero.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    tracing::warn!(target: "unisono::opencl", "the driver says: {text}");
    let mut remarks = REMARKS.lock().unwrap_or_else(PoisonError::into_inner);
    if remarks.len() == REMARKS_MAX {
        remarks.pop_front();
    }
    remarks.push_back((user_data.addr(), text));
}
