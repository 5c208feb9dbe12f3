//! The device suite: all types and operators give the bits of the reference, with everything that
//! the device has and with parts of it taken away.
//!
//! `UNISONO_PATTERNS` sets the number of random patterns for each type, operator and number of
//! sources, `UNISONO_VULKAN` the device.

mod common;

use common::Watch;
use unisono_device_vulkan::{Options, VulkanContext};
use unisono_driver::{HostPtr, Memory as _};
use unisono_gpu::{Allocation, Gpu, Memory, Place};
use unisono_testkit::device::{DeviceHarness, Plan, run};

struct Harness {
    gpu: Gpu<VulkanContext>,
    place: Place,
    allocations: Vec<Allocation<VulkanContext>>,
}

impl DeviceHarness for Harness {
    type Device = Gpu<VulkanContext>;

    fn device(&mut self) -> &mut Self::Device {
        &mut self.gpu
    }

    fn alloc(&mut self, bytes: usize) -> HostPtr {
        let allocation = self.gpu.memory().alloc(bytes, self.place).unwrap();
        let mem = allocation.mem();
        self.allocations.push(allocation);
        mem
    }

    fn offset(&self, mem: HostPtr, bytes: usize) -> HostPtr {
        mem.offset(bytes as u64)
    }

    fn write(&mut self, mem: HostPtr, bytes: &[u8]) {
        // SAFETY: the suite stays within its allocations.
        unsafe { self.gpu.memory().write(mem, bytes) }.unwrap();
    }

    fn read(&mut self, mem: HostPtr, bytes: &mut [u8]) {
        // SAFETY: the suite stays within its allocations.
        unsafe { self.gpu.memory().read(mem, bytes) }.unwrap();
    }
}

/// Runs the suite under the validation layer.
fn suite(options: Options, place: Place, patterns: usize, seed: u64) {
    let watch = Watch::new();
    let Some(context) = watch.open(options) else { return };
    let memory = Memory::new(context);
    let gpu = Gpu::open(&memory, &unisono_gpu::Options::default()).unwrap();
    eprintln!("{}: {:?}", gpu.card().name, gpu.card().arithmetic);
    let patterns = std::env::var("UNISONO_PATTERNS").map_or(patterns, |n| n.parse().unwrap());
    let plan = Plan { patterns, seed, every_shape: false, ..Plan::default() };
    run(&mut Harness { gpu, place, allocations: Vec::new() }, &plan);
}

#[test]
fn everything() {
    suite(Options::default(), Place::Device, 100_000, 1);
}

/// Integer arithmetic only, no stores of bytes, small groups: what any device can do.
#[test]
fn bare() {
    let bare = Options {
        float32: false,
        float64: false,
        int64: false,
        storage_8: false,
        timeline: false,
        group_size: 8,
        groups_max: 100,
        ..Options::default()
    };
    suite(bare, Place::Pinned, 20_000, 2);
}

/// A discrete GPU's memory, which the host cannot reach, and no import; small buffers and spans.
#[test]
fn discrete() {
    let discrete = Options {
        unified: false,
        import: false,
        buffer_max: 1 << 20,
        span_max: 64 << 10,
        spans_max: 8,
        ..Options::default()
    };
    suite(discrete, Place::Device, 20_000, 3);
}
