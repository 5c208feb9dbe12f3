//! The device under test.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_device_opencl::{OpenCl, Options};
use unisono_driver::{Device, HostPtr, Memory as _, Token};
use unisono_gpu::{Allocation, Gpu, GpuError, Memory, Place};
use unisono_testkit::device::DeviceHarness;

/// A device, and what the suite works on: memory of the device, or of the host.
pub struct Harness {
    gpu: Gpu<OpenCl>,
    memory: Arc<Memory<OpenCl>>,
    own: bool,
    allocations: Vec<Allocation<OpenCl>>,
    blocks: Vec<Box<[Line]>>,
}

/// What host memory of the suite is aligned to.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u8; 64]);

impl Harness {
    /// Opens the first device, or the one that `UNISONO_OPENCL` says; `own` works on memory of the
    /// device, otherwise on the host's.
    pub fn open(options: &Options, own: bool) -> Self {
        let index = std::env::var("UNISONO_OPENCL").map_or(0, |n| n.parse().unwrap());
        let memory = Memory::new(OpenCl::open(index, options).unwrap());
        let gpu = Gpu::open(&memory, &unisono_gpu::Options::default()).unwrap();
        eprintln!("{:?}", gpu.card());
        Self { gpu, memory, own, allocations: Vec::new(), blocks: Vec::new() }
    }
}

impl DeviceHarness for Harness {
    type Device = Gpu<OpenCl>;

    fn device(&mut self) -> &mut Gpu<OpenCl> {
        &mut self.gpu
    }

    fn alloc(&mut self, bytes: usize) -> HostPtr {
        if self.own {
            let allocation = self.memory.alloc(bytes, Place::Device).unwrap();
            let start = allocation.mem();
            self.allocations.push(allocation);
            return start;
        }
        let mut block = vec![Line([0; 64]); bytes.div_ceil(64)].into_boxed_slice();
        let start = HostPtr::new(block.as_mut_ptr().cast());
        self.blocks.push(block);
        start
    }

    fn offset(&self, mem: HostPtr, bytes: usize) -> HostPtr {
        mem.offset(bytes as u64)
    }

    fn write(&mut self, mem: HostPtr, bytes: &[u8]) {
        // SAFETY: the suite stays within its allocations, and nothing runs meanwhile.
        unsafe { self.memory.write(mem, bytes) }.unwrap();
    }

    fn read(&mut self, mem: HostPtr, bytes: &mut [u8]) {
        // SAFETY: as above.
        unsafe { self.memory.read(mem, bytes) }.unwrap();
    }

    fn wait(&mut self) -> (Token, Result<(), GpuError>) {
        self.gpu.flush();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(done) = self.gpu.poll_done() {
                return (done.token, done.result);
            }
            assert!(Instant::now() < deadline, "no completion for a minute");
            std::thread::yield_now();
        }
    }
}
