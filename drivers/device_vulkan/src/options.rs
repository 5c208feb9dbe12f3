//! What is used of a device.

use std::panic::RefUnwindSafe;
use std::sync::Arc;

/// Takes each warning and error of the validation layer; must not call Vulkan.
pub type Complaint = Arc<dyn Fn(&str) + Send + Sync + RefUnwindSafe>;

/// What is used of a device; by default everything that it has. To take something away is for
/// tests, and for drivers that promise what they do not keep.
#[derive(Clone)]
pub struct Options {
    /// Arithmetic of 32-bit floats, unless its bits are wrong; integers do without.
    pub float32: bool,
    /// 64-bit floats.
    pub float64: bool,
    /// 64-bit integers.
    pub int64: bool,
    /// Stores of 8 bits.
    pub storage_8: bool,
    /// Import of host memory.
    pub import: bool,
    /// Device memory that the host can reach: without it, data is staged as on a discrete GPU.
    pub unified: bool,
    /// Timeline semaphores; fences do without.
    pub timeline: bool,
    /// Work items of a work group; at most what the device can do.
    pub group_size: u32,
    /// Most work groups in one dimension.
    pub groups_max: u32,
    /// Largest buffer, in bytes.
    pub buffer_max: u64,
    /// Largest span of one kernel argument, in bytes.
    pub span_max: u64,
    /// Most sources and destinations of one kernel.
    pub spans_max: usize,
    /// Runs under `VK_LAYER_KHRONOS_validation` and passes on what that says.
    pub validate: Option<Complaint>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            float32: true,
            float64: true,
            int64: true,
            storage_8: true,
            import: true,
            unified: true,
            timeline: true,
            // On llvmpipe up to a fifth faster than 64, and no GPU minds.
            group_size: 256,
            groups_max: u32::MAX,
            buffer_max: u64::MAX,
            span_max: u64::MAX,
            spans_max: usize::MAX,
            validate: None,
        }
    }
}
