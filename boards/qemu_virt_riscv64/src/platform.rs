//! What the firmware needs to know of this board.

use crate::cpu::{self, Outer};
use unisono_core::time::Instant;
use unisono_device_cpu::CpuDevice;
use unisono_driver::Device;
use unisono_firmware::{Descr, Rates, window};

/// This board.
pub struct Platform(Descr);

impl Platform {
    /// The board with this image, which adds at this rate.
    #[must_use]
    pub const fn new(build: u64, rates: Rates) -> Self {
        Self(Descr { name: "qemu-virt-riscv64", build, fpu: false, rates })
    }
}

impl window::Platform for Platform {
    type Bus = Outer;
    type Device = CpuDevice;

    fn descr(&self) -> Descr {
        self.0
    }

    fn now(&self) -> Instant {
        cpu::now()
    }

    fn device(&mut self) -> CpuDevice {
        CpuDevice::new()
    }

    fn sources_max(&self) -> u16 {
        CpuDevice::new().caps().sources_max as u16
    }
}
