//! The scalar device against the suite of all devices.

use unisono_device_scalar::ScalarDevice;
use unisono_driver::{HostMemory, HostPtr, Memory};
use unisono_testkit::device::{DeviceHarness, Plan, run};

#[derive(Default)]
struct Harness {
    device: ScalarDevice,
    /// Words, so that every allocation is aligned; their addresses stay when the list grows.
    memory: Vec<Box<[Line]>>,
}

/// As much as the suite wants memory aligned to.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line(#[expect(dead_code, reason = "reached by its address")] [u8; 64]);

impl DeviceHarness for Harness {
    type Device = ScalarDevice;

    fn device(&mut self) -> &mut ScalarDevice {
        &mut self.device
    }

    fn alloc(&mut self, bytes: usize) -> HostPtr {
        let mut lines = vec![Line([0; 64]); bytes.div_ceil(64)].into_boxed_slice();
        let start = lines.as_mut_ptr().cast::<u8>();
        self.memory.push(lines);
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

#[test]
fn passes_the_suite_of_all_devices() {
    // The device calls the reference itself; what is to be tested is how it walks over spans.
    run(&mut Harness::default(), &Plan { patterns: 20_000, ..Plan::default() });
}
