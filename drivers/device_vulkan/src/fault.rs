//! Errors with the driver's own words.

use ash::vk;
use unisono_gpu::GpuError;
use vulkano::{Validated, VulkanError};

/// The result of a raw call as an error of `device`.
pub(crate) fn raw(device: &str, call: &'static str, result: vk::Result) -> GpuError {
    let text = words(result);
    let device = device.to_owned();
    if result == vk::Result::ERROR_DEVICE_LOST {
        GpuError::Lost { device, text }
    } else {
        GpuError::Driver { device, call, text }
    }
}

/// The same for an allocation of `bytes` bytes.
pub(crate) fn raw_memory(
    device: &str,
    call: &'static str,
    bytes: u64,
    result: vk::Result,
) -> GpuError {
    match result {
        vk::Result::ERROR_OUT_OF_HOST_MEMORY
        | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
        | vk::Result::ERROR_TOO_MANY_OBJECTS
        | vk::Result::ERROR_FRAGMENTATION => {
            GpuError::OutOfMemory { device: device.to_owned(), bytes, text: words(result) }
        }
        other => raw(device, call, other),
    }
}

/// An error that vulkano returns.
pub(crate) fn wrapped(
    device: &str,
    call: &'static str,
    error: impl Into<Validated<VulkanError>>,
) -> GpuError {
    match error.into() {
        Validated::Error(error) => raw(device, call, result(error)),
        Validated::ValidationError(error) => {
            GpuError::Driver { device: device.to_owned(), call, text: error.to_string() }
        }
    }
}

/// The same for an allocation of `bytes` bytes.
pub(crate) fn wrapped_memory(
    device: &str,
    call: &'static str,
    bytes: u64,
    error: impl Into<Validated<VulkanError>>,
) -> GpuError {
    match error.into() {
        Validated::Error(error) => raw_memory(device, call, bytes, result(error)),
        other => wrapped(device, call, other),
    }
}

/// Vulkan's code of an error that a call here can return.
fn result(error: VulkanError) -> vk::Result {
    match error {
        VulkanError::OutOfHostMemory => vk::Result::ERROR_OUT_OF_HOST_MEMORY,
        VulkanError::OutOfDeviceMemory => vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        VulkanError::InitializationFailed => vk::Result::ERROR_INITIALIZATION_FAILED,
        VulkanError::DeviceLost => vk::Result::ERROR_DEVICE_LOST,
        VulkanError::MemoryMapFailed => vk::Result::ERROR_MEMORY_MAP_FAILED,
        VulkanError::LayerNotPresent => vk::Result::ERROR_LAYER_NOT_PRESENT,
        VulkanError::ExtensionNotPresent => vk::Result::ERROR_EXTENSION_NOT_PRESENT,
        VulkanError::FeatureNotPresent => vk::Result::ERROR_FEATURE_NOT_PRESENT,
        VulkanError::IncompatibleDriver => vk::Result::ERROR_INCOMPATIBLE_DRIVER,
        VulkanError::TooManyObjects => vk::Result::ERROR_TOO_MANY_OBJECTS,
        VulkanError::OutOfPoolMemory => vk::Result::ERROR_OUT_OF_POOL_MEMORY,
        VulkanError::InvalidExternalHandle => vk::Result::ERROR_INVALID_EXTERNAL_HANDLE,
        VulkanError::Fragmentation => vk::Result::ERROR_FRAGMENTATION,
        VulkanError::InvalidShader => vk::Result::ERROR_INVALID_SHADER_NV,
        VulkanError::Unnamed(result) => result,
        _ => vk::Result::ERROR_UNKNOWN,
    }
}

/// The name of a result, and what it means.
pub(crate) fn words(result: vk::Result) -> String {
    format!("VK_{result:?} ({result})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_the_drivers_name() {
        let lost = wrapped("gpu", "vkQueueSubmit", VulkanError::DeviceLost);
        assert!(matches!(lost, GpuError::Lost { .. }), "{lost:?}");
        assert!(lost.to_string().contains("VK_ERROR_DEVICE_LOST"), "{lost}");
        let full = wrapped_memory("gpu", "vkAllocateMemory", 77, VulkanError::OutOfDeviceMemory);
        assert!(matches!(full, GpuError::OutOfMemory { bytes: 77, .. }), "{full:?}");
        assert!(full.to_string().contains("VK_ERROR_OUT_OF_DEVICE_MEMORY"), "{full}");
        let other = raw("gpu", "vkMapMemory", vk::Result::ERROR_MEMORY_MAP_FAILED);
        assert!(other.to_string().contains("vkMapMemory: VK_ERROR_MEMORY_MAP_FAILED"), "{other}");
    }
}
