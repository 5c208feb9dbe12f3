//! One type for all devices.

use unisono_device_cpu::{CpuDevice, CpuError};
#[cfg(feature = "opencl")]
use unisono_device_opencl::OpenCl;
#[cfg(feature = "vulkan")]
use unisono_device_vulkan::VulkanContext;
use unisono_driver::{Copy, Device, DeviceCaps, Done, Fold, HostPtr, Token};
#[cfg(any(feature = "vulkan", feature = "opencl"))]
use unisono_gpu::Gpu;
use unisono_gpu::GpuError;

/// A member's device.
#[derive(Debug)]
pub(crate) enum AnyDevice {
    Cpu(CpuDevice),
    #[cfg(feature = "vulkan")]
    Vulkan(Box<Gpu<VulkanContext>>),
    #[cfg(feature = "opencl")]
    OpenCl(Box<Gpu<OpenCl>>),
    #[cfg(test)]
    Broken(Broken),
}

/// For tests: a device that is lost at its first fold.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Broken(Option<Token>);

/// What a device says when it fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    #[error(transparent)]
    Cpu(#[from] CpuError),
    // Completions are passed on by value, and those of a CPU's 8-byte calls are counted in ns.
    #[error(transparent)]
    Gpu(Box<GpuError>),
}

impl From<GpuError> for DeviceError {
    fn from(error: GpuError) -> Self {
        Self::Gpu(Box::new(error))
    }
}

#[cfg(feature = "vulkan")]
impl From<Gpu<VulkanContext>> for AnyDevice {
    fn from(gpu: Gpu<VulkanContext>) -> Self {
        Self::Vulkan(Box::new(gpu))
    }
}

#[cfg(feature = "opencl")]
impl From<Gpu<OpenCl>> for AnyDevice {
    fn from(gpu: Gpu<OpenCl>) -> Self {
        Self::OpenCl(Box::new(gpu))
    }
}

macro_rules! on_each {
    ($self:ident, $device:ident => $call:expr) => {
        match $self {
            AnyDevice::Cpu($device) => $call,
            #[cfg(feature = "vulkan")]
            AnyDevice::Vulkan($device) => $call,
            #[cfg(feature = "opencl")]
            AnyDevice::OpenCl($device) => $call,
            #[cfg(test)]
            AnyDevice::Broken($device) => $call,
        }
    };
}

impl Device for AnyDevice {
    type Mem = HostPtr;
    type Error = DeviceError;

    fn caps(&self) -> DeviceCaps {
        on_each!(self, device => device.caps())
    }

    fn has_room(&self) -> bool {
        on_each!(self, device => device.has_room())
    }

    unsafe fn fold(&mut self, work: &Fold<'_, HostPtr>, token: Token) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        on_each!(self, device => unsafe { device.fold(work, token) }.map_err(Into::into))
    }

    unsafe fn copy(&mut self, work: &Copy<HostPtr>, token: Token) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        on_each!(self, device => unsafe { device.copy(work, token) }.map_err(Into::into))
    }

    fn flush(&mut self) {
        on_each!(self, device => device.flush());
    }

    fn is_shared(&self, mem: HostPtr) -> bool {
        on_each!(self, device => device.is_shared(mem))
    }

    fn poll_done(&mut self) -> Option<Done<DeviceError>> {
        let done = on_each!(self, device => {
            let Done { token, result } = device.poll_done()?;
            Done { token, result: result.map_err(Into::into) }
        });
        Some(done)
    }
}

#[cfg(test)]
impl Device for Broken {
    type Mem = HostPtr;
    type Error = GpuError;

    fn caps(&self) -> DeviceCaps {
        DeviceCaps { sources_max: 2, dests_max: 1 }
    }

    fn has_room(&self) -> bool {
        self.0.is_none()
    }

    unsafe fn fold(&mut self, _: &Fold<'_, HostPtr>, token: Token) -> Result<(), GpuError> {
        self.0 = Some(token);
        Ok(())
    }

    unsafe fn copy(&mut self, _: &Copy<HostPtr>, token: Token) -> Result<(), GpuError> {
        self.0 = Some(token);
        Ok(())
    }

    fn poll_done(&mut self) -> Option<Done<GpuError>> {
        let lost = GpuError::Lost { device: "a card".into(), text: "fell off the bus".into() };
        self.0.take().map(|token| Done { token, result: Err(lost) })
    }
}
