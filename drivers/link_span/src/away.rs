//! Spans in memory that only the other process has: they are fetched when they are locked, and an
//! answer is carried to the window when they are unlocked.

use crate::reach::Reach;
use core::mem::MaybeUninit;
use unisono_driver::HostMemory;

/// Two cache lines, as buffers are aligned.
#[repr(align(128))]
struct Lines(#[expect(dead_code, reason = "it is there for its size")] [u8; 128]);

/// Memory for one span. Only what is fetched is ever touched.
type Buffer = Box<[MaybeUninit<Lines>]>;

/// Buffers that are free; the one that was used last is taken first, as it is in the caches.
#[derive(Default)]
pub(crate) struct Buffers(Vec<Buffer>);

impl Buffers {
    /// A buffer of so many bytes; `None` if there is no memory for it.
    fn take(&mut self, bytes: usize) -> Option<Buffer> {
        let lines = bytes.div_ceil(128);
        if let Some(at) = self.0.iter().rposition(|buffer| buffer.len() >= lines) {
            return Some(self.0.remove(at));
        }
        // One that is too small is of no use to calls like this one.
        self.0.pop();
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(lines).ok()?;
        buffer.resize_with(lines, MaybeUninit::uninit);
        Some(buffer.into_boxed_slice())
    }

    /// Takes the buffer of a span that is over.
    pub fn give(&mut self, span: Away) {
        self.0.push(span.buffer);
    }
}

/// One span, from the arrival of its frame to its release.
pub(crate) struct Away {
    /// Where it is at the other end, until it has been fetched.
    from: Option<u64>,
    /// Where the answer goes at the other end.
    window: Option<u64>,
    bytes: usize,
    buffer: Buffer,
}

impl Away {
    /// A span of which memory, window, or both are only at the other end; `None` without a buffer
    /// for it.
    pub fn new(
        from: Option<u64>,
        window: Option<u64>,
        bytes: usize,
        buffers: &mut Buffers,
    ) -> Option<Self> {
        Some(Self { from, window, bytes, buffer: buffers.take(bytes)? })
    }

    /// Where it is here.
    pub fn mem<M: HostMemory>(&mut self) -> M {
        M::from_ptr(self.buffer.as_mut_ptr().cast())
    }

    /// Brings it here, if it is not; false if that cannot be.
    pub fn fetch<R: Reach>(&mut self, reach: &R) -> bool {
        let Some(from) = self.from else { return true };
        // SAFETY: the buffer is at least as long.
        let here = unsafe { reach.fetch(from, self.buffer.as_mut_ptr().cast(), self.bytes) };
        if here {
            self.from = None;
        }
        here
    }

    /// Carries the answer to the window; false if that cannot be.
    pub fn store<R: Reach>(&self, reach: &R) -> bool {
        let Some(window) = self.window else { return true };
        // SAFETY: the buffer is at least as long.
        unsafe { reach.store(self.buffer.as_ptr().cast(), window, self.bytes) }
    }
}
