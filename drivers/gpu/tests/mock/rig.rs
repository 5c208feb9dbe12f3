//! A device with memory of every kind, for the device suite and for other tests.

use super::{Config, Mock, MockContext};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use unisono_driver::{Device, HostMemory, HostPtr, Memory as _, Token};
use unisono_gpu::{Allocation, Gpu, GpuError, Memory, Options, Place, Registration};
use unisono_testkit::device::DeviceHarness;

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Device,
    Pinned,
    Host,
    Registered,
}

pub struct Rig {
    // Dropped first: it waits for its work.
    pub gpu: Gpu<Mock>,
    pub memory: Arc<Memory<Mock>>,
    pub context: Arc<MockContext>,
    /// The kinds that `alloc` gives, in turn.
    pub kinds: Vec<Kind>,
    next: usize,
    allocations: Vec<Allocation<Mock>>,
    registrations: Vec<Registration<Mock>>,
    host: Vec<(*mut u8, Layout)>,
}

impl Rig {
    pub fn new(config: Config, options: &Options) -> Result<Self, GpuError> {
        let context = MockContext::new(config);
        let memory = Memory::new(Arc::new(Mock(Arc::clone(&context))));
        let gpu = Gpu::open(&memory, options)?;
        let kinds = if memory.can_register() {
            vec![Kind::Device, Kind::Host, Kind::Pinned, Kind::Registered]
        } else {
            vec![Kind::Device, Kind::Host, Kind::Pinned]
        };
        let (allocations, registrations, host) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { gpu, memory, context, kinds, next: 0, allocations, registrations, host })
    }

    /// Memory of one kind.
    pub fn place(&mut self, kind: Kind, bytes: usize) -> HostPtr {
        let most = self.context.config.limits.buffer_max as usize;
        let place = match kind {
            // Mapped buffers are not side by side, and there is no import to make them so.
            Kind::Pinned if bytes > most && !self.memory.can_register() => {
                return self.place(Kind::Host, bytes);
            }
            Kind::Device => Place::Device,
            Kind::Pinned => Place::Pinned,
            Kind::Host | Kind::Registered => {
                let layout = Layout::from_size_align(bytes.max(1), 64).unwrap();
                // SAFETY: the size is not zero.
                let start = unsafe { alloc_zeroed(layout) };
                self.host.push((start, layout));
                let start = HostPtr::new(start);
                if kind == Kind::Registered {
                    // SAFETY: freed when the registrations are gone, in `drop`.
                    let registration = unsafe { self.memory.register(start, bytes) };
                    self.registrations.push(registration.unwrap());
                }
                return start;
            }
        };
        let allocation = self.memory.alloc(bytes, place).unwrap();
        let start = allocation.mem();
        self.allocations.push(allocation);
        start
    }

    pub fn put(&self, mem: HostPtr, bytes: &[u8]) {
        // SAFETY: the tests stay within their allocations, and are not under way on them.
        unsafe { self.memory.write(mem, bytes) }.unwrap();
    }

    pub fn get(&self, mem: HostPtr, bytes: usize) -> Vec<u8> {
        let mut got = vec![0; bytes];
        // SAFETY: as above.
        unsafe { self.memory.read(mem, &mut got) }.unwrap();
        got
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.registrations.clear();
        for &(start, layout) in &self.host {
            // SAFETY: allocated above with this layout.
            unsafe { dealloc(start, layout) };
        }
    }
}

impl DeviceHarness for Rig {
    type Device = Gpu<Mock>;

    fn device(&mut self) -> &mut Gpu<Mock> {
        &mut self.gpu
    }

    fn alloc(&mut self, bytes: usize) -> HostPtr {
        let kind = self.kinds[self.next % self.kinds.len()];
        self.next += 1;
        let mem = self.place(kind, bytes);
        assert!(mem.as_ptr().addr().is_multiple_of(64), "{kind:?}");
        mem
    }

    fn offset(&self, mem: HostPtr, bytes: usize) -> HostPtr {
        mem.offset(bytes as u64)
    }

    fn write(&mut self, mem: HostPtr, bytes: &[u8]) {
        self.put(mem, bytes);
    }

    /// The mock gets on by being asked, so that a limit in time would depend on the machine.
    fn wait(&mut self) -> (Token, Result<(), GpuError>) {
        for _ in 0..10_000_000 {
            if let Some(done) = self.gpu.poll_done() {
                return (done.token, done.result);
            }
        }
        panic!("no completion");
    }

    fn read(&mut self, mem: HostPtr, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.get(mem, bytes.len()));
    }
}
