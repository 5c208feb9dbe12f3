//! The device suite on every instruction set that this CPU has.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use unisono_device_cpu::{CpuDevice, Isa};
use unisono_driver::{HostMemory, HostPtr, Memory};
use unisono_testkit::device::{DeviceHarness, Plan, run};

struct Harness {
    device: CpuDevice,
    allocations: Vec<(*mut u8, Layout)>,
}

impl DeviceHarness for Harness {
    type Device = CpuDevice;

    fn device(&mut self) -> &mut CpuDevice {
        &mut self.device
    }

    fn alloc(&mut self, bytes: usize) -> HostPtr {
        let layout = Layout::from_size_align(bytes.max(1), 64).unwrap();
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        assert!(!start.is_null());
        self.allocations.push((start, layout));
        HostPtr::new(start)
    }

    fn offset(&self, mem: HostPtr, bytes: usize) -> HostPtr {
        mem.offset(bytes as u64)
    }

    fn write(&mut self, mem: HostPtr, bytes: &[u8]) {
        // SAFETY: the suite stays within its allocations.
        unsafe { mem.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    fn read(&mut self, mem: HostPtr, bytes: &mut [u8]) {
        // SAFETY: the suite stays within its allocations.
        unsafe { mem.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        for &(start, layout) in &self.allocations {
            // SAFETY: allocated above with this layout.
            unsafe { dealloc(start, layout) };
        }
    }
}

/// Runs the suite; says so loudly if the CPU lacks the instruction set. `UNISONO_PATTERNS` sets the
/// number of random patterns for each type, operator and number of sources.
fn suite(isa: Isa) {
    let Some(device) = CpuDevice::with_isa(isa) else {
        eprintln!("SKIPPED: this CPU has no {}; its kernels are NOT tested", isa.name());
        return;
    };
    let patterns = std::env::var("UNISONO_PATTERNS").ok().map(|n| n.parse().unwrap());
    let plan = Plan { patterns: patterns.unwrap_or(Plan::default().patterns), ..Plan::default() };
    run(&mut Harness { device, allocations: Vec::new() }, &plan);
}

#[test]
fn baseline() {
    suite(Isa::Baseline);
}

#[test]
fn avx2() {
    suite(Isa::Avx2);
}

#[test]
fn avx512() {
    suite(Isa::Avx512);
}
