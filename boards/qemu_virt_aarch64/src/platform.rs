//! What the firmware needs to know of this board.

use crate::cpu::{self, Outer};
use crate::pins::Attention;
use unisono_core::time::Instant;
use unisono_device_cpu::CpuError;
use unisono_firmware::duo::{Ends, Front, SPANS};
use unisono_firmware::{Descr, Rates, window};
use unisono_link_window::PinBell;

/// The device: its work goes to the second core.
pub type Work = Front<'static, CpuError>;

/// The way to the host: whatever is posted there draws its attention.
pub type Ringing = PinBell<Outer, Attention>;

/// This board.
pub struct Platform {
    ends: &'static Ends<'static, CpuError>,
    descr: Descr,
}

impl Platform {
    /// The board whose second core is at the other end of these queues.
    #[must_use]
    pub const fn new(ends: &'static Ends<'static, CpuError>, build: u64, rates: Rates) -> Self {
        Self { ends, descr: Descr { name: "qemu-virt-aarch64", build, fpu: true, rates } }
    }
}

impl window::Platform for Platform {
    type Bus = Ringing;
    type Device = Work;

    fn descr(&self) -> Descr {
        self.descr
    }

    fn now(&self) -> Instant {
        cpu::now()
    }

    fn device(&mut self) -> Work {
        Front::new(self.ends)
    }

    fn sources_max(&self) -> u16 {
        SPANS as u16
    }
}
