//! What the firmware needs to know of this board.

use crate::sys;
use core::arch::asm;
use unisono_core::time::Instant;
use unisono_device_cpu::CpuDevice;
use unisono_driver::Device;
use unisono_firmware::{Descr, Rates, window};
use unisono_link_window::Bus;

/// This board.
pub struct Platform(Descr);

impl Platform {
    /// The board with this image, which adds at this rate.
    #[must_use]
    pub const fn new(build: u64, rates: Rates) -> Self {
        Self(Descr { name: "linux-aarch64", build, fpu: true, rates })
    }
}

impl window::Platform for Platform {
    type Bus = Outer;
    type Device = CpuDevice;

    fn descr(&self) -> Descr {
        self.0
    }

    fn now(&self) -> Instant {
        sys::now()
    }

    fn device(&mut self) -> CpuDevice {
        CpuDevice::new()
    }

    fn sources_max(&self) -> u16 {
        CpuDevice::new().caps().sources_max as u16
    }
}

/// The fences towards the host, which is outside of the cores' inner shareable domain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outer;

impl Bus for Outer {
    fn publish(&mut self) {
        // SAFETY: a barrier. Not `nomem`: the compiler keeps the order too.
        unsafe { asm!("dmb osh", options(nostack)) };
    }

    fn observe(&mut self) {
        // SAFETY: as above.
        unsafe { asm!("dmb oshld", options(nostack)) };
    }
}
