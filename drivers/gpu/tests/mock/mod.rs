//! A GPU in software, as awkward as it is told to be: it computes with the scalar reference, runs
//! the jobs of a batch in any order and late, and checks that it is used as the contract says.

#![allow(dead_code, unused_imports, reason = "each test uses a part of it")]

mod fold;
mod queue;
mod rig;

pub use fold::Task;
pub use queue::MockQueue;
pub use rig::{Kind, Rig};

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use unisono_gpu::{Api, Arithmetic, Card, CardType, Context, GpuError, Limits, Place};

/// A call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Alloc,
    Import,
    Compile,
    Dispatch,
    Copy,
    Submit,
    Poll,
}

/// How the device computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floats {
    Right,
    /// Native binary32 flushes subnormals.
    Flushing,
    /// Kernels with native binary32 do not compile.
    Missing,
    /// Nothing it computes in binary32 is right.
    Broken,
}

/// What the device is like.
#[derive(Clone, Debug)]
pub struct Config {
    pub limits: Limits,
    /// The host reaches the device's memory.
    pub mapped: bool,
    pub floats: Floats,
    /// Jobs of a batch, and batches.
    pub jobs: usize,
    pub batches: usize,
    /// A batch is complete when it has been asked for so often.
    pub delay: usize,
}

/// No limit that a test would meet.
pub fn generous() -> Config {
    Config {
        limits: Limits {
            buffer_max: 1 << 32,
            span_max: 1 << 27,
            span_align: 16,
            import_align: Some(4096),
            unified: true,
            pinned_kernels: true,
            spans_max: 24,
            group_size: 64,
            groups_max: 65535,
            offers: Arithmetic {
                native_f32: true,
                normal_f32: true,
                native_f64: true,
                native_i64: true,
                storage_8: true,
                narrow: false,
            },
        },
        mapped: true,
        floats: Floats::Right,
        jobs: 32,
        batches: 2,
        delay: 2,
    }
}

/// Memory of the device's own, no import, and small in every way.
pub fn awkward() -> Config {
    let mut config = generous();
    config.limits.span_max = 4096;
    config.limits.buffer_max = 64 << 10;
    config.limits.span_align = 256;
    config.limits.import_align = None;
    config.limits.unified = false;
    config.limits.spans_max = 13;
    config.limits.group_size = 8;
    config.limits.groups_max = 5;
    config.mapped = false;
    config
}

pub struct MockContext {
    pub config: Config,
    card: Card,
    faults: Mutex<HashMap<Call, (usize, GpuError)>>,
    calls: Mutex<HashMap<Call, usize>>,
    /// Buffers that are alive.
    pub live: AtomicUsize,
}

impl MockContext {
    pub fn new(config: Config) -> Arc<Self> {
        let card = Card {
            api: Api::Vulkan,
            index: 0,
            name: "mock".to_owned(),
            vendor: "nobody".to_owned(),
            driver: "1".to_owned(),
            api_version: "1".to_owned(),
            kind: CardType::Software,
            memory: 1 << 30,
            uuid: None,
            pci: None,
            features: Vec::new(),
            arithmetic: None,
        };
        let (faults, calls) = (Mutex::default(), Mutex::default());
        Arc::new(Self { config, card, faults, calls, live: AtomicUsize::new(0) })
    }

    /// After `good` more calls, every such call fails with this error.
    pub fn fail(&self, call: Call, good: usize, error: GpuError) {
        self.faults.lock().unwrap().insert(call, (good, error));
    }

    /// No such call fails any more.
    pub fn heal(&self, call: Call) {
        self.faults.lock().unwrap().remove(&call);
    }

    /// How often something was called.
    pub fn calls(&self, call: Call) -> usize {
        self.calls.lock().unwrap().get(&call).copied().unwrap_or(0)
    }

    fn enter(&self, call: Call) -> Result<(), GpuError> {
        *self.calls.lock().unwrap().entry(call).or_default() += 1;
        match self.faults.lock().unwrap().get_mut(&call) {
            Some((0, error)) => Err(error.clone()),
            Some((good, _)) => {
                *good -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Memory of the device, or imported.
pub struct MockBuffer {
    start: NonNull<u8>,
    bytes: u64,
    mapped: bool,
    pinned: bool,
    owned: Option<Layout>,
    context: Arc<MockContext>,
}

// SAFETY: raw memory; the tests see to it that nobody uses it at the same time.
unsafe impl Send for MockBuffer {}
// SAFETY: as above.
unsafe impl Sync for MockBuffer {}

impl MockBuffer {
    /// Of the device's own memory, with any size.
    pub fn new(context: &Arc<MockContext>, bytes: u64, place: Place) -> Self {
        let pinned = place == Place::Pinned;
        let mapped = pinned || context.config.mapped;
        let layout = Layout::from_size_align(bytes as usize, 256).unwrap();
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        context.live.fetch_add(1, Ordering::Relaxed);
        let (owned, context) = (Some(layout), Arc::clone(context));
        Self { start, bytes, mapped, pinned, owned, context }
    }
}

impl Drop for MockBuffer {
    fn drop(&mut self) {
        self.context.live.fetch_sub(1, Ordering::Relaxed);
        if let Some(layout) = self.owned {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// The mock's context: buffers know it, so it is behind an `Arc` of its own.
pub struct Mock(pub Arc<MockContext>);

impl Context for Mock {
    type Buffer = MockBuffer;
    type Queue = MockQueue;

    fn card(&self) -> &Card {
        &self.0.card
    }

    fn limits(&self) -> &Limits {
        &self.0.config.limits
    }

    fn alloc(&self, bytes: u64, place: Place) -> Result<MockBuffer, GpuError> {
        self.0.enter(Call::Alloc)?;
        assert!(bytes > 0 && bytes <= self.0.config.limits.buffer_max, "{bytes}");
        Ok(MockBuffer::new(&self.0, bytes, place))
    }

    unsafe fn import(&self, start: NonNull<u8>, bytes: u64) -> Result<MockBuffer, GpuError> {
        self.0.enter(Call::Import)?;
        let align = self.0.config.limits.import_align.expect("an import");
        assert!((start.addr().get() as u64).is_multiple_of(align) && bytes.is_multiple_of(align));
        assert!(bytes > 0 && bytes <= self.0.config.limits.buffer_max, "{bytes}");
        self.0.live.fetch_add(1, Ordering::Relaxed);
        let context = Arc::clone(&self.0);
        Ok(MockBuffer { start, bytes, mapped: true, pinned: false, owned: None, context })
    }

    fn mapped(&self, buffer: &MockBuffer) -> Option<NonNull<u8>> {
        buffer.mapped.then_some(buffer.start)
    }

    fn bytes(&self, buffer: &MockBuffer) -> u64 {
        buffer.bytes
    }

    fn queue(self: Arc<Self>) -> Result<MockQueue, GpuError> {
        Ok(MockQueue::new(Arc::clone(&self.0)))
    }
}
