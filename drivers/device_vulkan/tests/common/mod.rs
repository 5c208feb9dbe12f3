//! Devices under the validation layer.

#![allow(dead_code, reason = "not every test file needs all of it")]

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Once};
use unisono_device_vulkan::{Context, Options, VulkanBuffer, VulkanContext};
use unisono_gpu::{GpuError, Place, Queue, Span};

/// Collects what the validation layer says and fails the test for any of it. Declared before what
/// it watches, so that it is dropped last and hears of what was leaked.
pub struct Watch(Arc<Mutex<Vec<String>>>);

impl Watch {
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// What was heard so far; it does not fail the test any more.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// The device to test, number `UNISONO_VULKAN` or 0; `None` if there is none, said loudly.
    pub fn open(&self, options: Options) -> Option<Arc<VulkanContext>> {
        let heard = Mutex::new(self.0.clone());
        let complaint = move |text: &str| heard.lock().unwrap().lock().unwrap().push(text.into());
        let index = std::env::var("UNISONO_VULKAN").map_or(0, |n| n.parse().unwrap());
        let watched = Options { validate: Some(Arc::new(complaint)), ..options.clone() };
        static SAID: Once = Once::new();
        match VulkanContext::open(index, &watched) {
            Ok(context) => return Some(context),
            Err(GpuError::Missing { what, .. }) if what.contains("VK_LAYER") => {
                SAID.call_once(|| eprintln!("NOT VALIDATED: {what}"));
            }
            Err(error @ GpuError::Missing { .. }) => {
                SAID.call_once(|| eprintln!("SKIPPED, Vulkan is NOT tested: {error}"));
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        Some(VulkanContext::open(index, &options).unwrap())
    }

    /// Is the validation layer there?
    pub fn can_hear() -> bool {
        let deaf: unisono_device_vulkan::Complaint = Arc::new(|_| {});
        let options = Options { validate: Some(deaf), ..Options::default() };
        VulkanContext::open(0, &options).is_ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let heard = self.0.lock().unwrap();
        if !std::thread::panicking() {
            assert!(heard.is_empty(), "the validation layer says: {heard:#?}");
        }
    }
}

/// All of a buffer, or part of it.
pub fn span(buffer: &Arc<VulkanBuffer>, offset: u64, bytes: u64) -> Span<'_, VulkanBuffer> {
    Span { buffer, offset, bytes }
}

/// Memory that the host reaches.
pub fn pinned(context: &VulkanContext, bytes: usize) -> (Arc<VulkanBuffer>, &'static mut [u8]) {
    let buffer = Arc::new(context.alloc(bytes as u64, Place::Pinned).unwrap());
    let start: NonNull<u8> = context.mapped(&buffer).unwrap();
    // SAFETY: the callers use the bytes no longer than the buffer, and not while work is under way.
    let host = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) };
    (buffer, host)
}

/// Starts what is recorded and waits for it.
pub fn finish(queue: &mut impl Queue) {
    let batch = queue.submit().unwrap();
    queue.wait(batch).unwrap();
    assert_eq!(queue.poll().unwrap(), batch);
}
