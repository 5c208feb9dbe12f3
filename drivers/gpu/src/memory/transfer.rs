//! Bytes between the host and memory that only the device reaches, for whoever can wait.

use super::Memory;
use crate::backend::{Context, Place, Queue, Span};
use crate::error::GpuError;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

/// Bytes that are copied at a time.
const ROOM: usize = 1 << 20;

/// A queue and pinned memory to copy through.
pub(super) struct Transfer<C: Context> {
    queue: C::Queue,
    buffer: Arc<C::Buffer>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pinned memory is reached only through this owner, which has all of it.
unsafe impl<C: Context> Send for Transfer<C> {}

impl<C: Context> Transfer<C> {
    fn new(context: &Arc<C>) -> Result<Self, GpuError> {
        let bytes = ROOM.min(usize::try_from(context.limits().buffer_max).unwrap_or(ROOM));
        let buffer = context.alloc(bytes as u64, Place::Pinned)?;
        let Some(start) = context.mapped(&buffer) else {
            let (device, call) = (context.card().name.clone(), "map pinned memory");
            let text = "the buffer has no address".to_owned();
            return Err(GpuError::Driver { device, call, text });
        };
        let queue = Arc::clone(context).queue()?;
        Ok(Self { queue, buffer: Arc::new(buffer), start, bytes })
    }

    /// Copies `bytes` bytes, no more than fit, between `host` and a buffer.
    ///
    /// # Safety
    /// As for [`Memory::write`] and [`Memory::read`].
    unsafe fn run(
        &mut self,
        buffer: &Arc<C::Buffer>,
        offset: u64,
        host: *mut u8,
        bytes: usize,
        to_device: bool,
    ) -> Result<(), GpuError> {
        let pinned = Span { buffer: &self.buffer, offset: 0, bytes: bytes as u64 };
        let device = Span { buffer, offset, bytes: bytes as u64 };
        if to_device {
            // SAFETY: the host's bytes are readable, and the pinned ones this transfer's own.
            unsafe { self.start.as_ptr().copy_from_nonoverlapping(host, bytes) };
        }
        let (from, to) = if to_device { (pinned, device) } else { (device, pinned) };
        // SAFETY: both buffers outlive the wait below.
        unsafe { self.queue.copy(from, to) }?;
        let batch = self.queue.submit()?;
        self.queue.wait(batch)?;
        if !to_device {
            // SAFETY: the host's bytes are writable.
            unsafe { host.copy_from_nonoverlapping(self.start.as_ptr(), bytes) };
        }
        Ok(())
    }
}

impl<C: Context> Memory<C> {
    /// Copies between memory of the device, or any other, and the host.
    ///
    /// # Safety
    /// As for [`Memory::write`] and [`Memory::read`].
    pub(super) unsafe fn transfer(
        &self,
        device: *mut u8,
        host: *mut u8,
        bytes: usize,
        to_device: bool,
    ) -> Result<(), GpuError> {
        self.check_process()?;
        let mut done = 0;
        while done < bytes {
            let left = bytes - done;
            let (at, host) = (device.wrapping_add(done), host.wrapping_add(done));
            let found = self.find(at.addr(), left);
            let Some(found) = found.filter(|found| !found.mapped) else {
                let (from, to) = if to_device { (host, at) } else { (at, host) };
                // SAFETY: the caller's promise; memory that the host reaches at this address,
                // and all of what is left, since reserved ranges have nothing else in them.
                unsafe { std::ptr::copy(from, to, left) };
                return Ok(());
            };
            let mut guard = self.transfer.lock().unwrap_or_else(PoisonError::into_inner);
            let transfer = match &mut *guard {
                Some(transfer) => transfer,
                none => none.insert(Transfer::new(&self.context)?),
            };
            let part = left.min(found.bytes).min(transfer.bytes);
            // SAFETY: the caller's promise, for this part of it.
            let copied =
                unsafe { transfer.run(&found.buffer, found.offset, host, part, to_device) };
            if copied.is_err() {
                // Its queue may hold a batch that failed: start with a new one.
                *guard = None;
            }
            copied?;
            done += part;
        }
        Ok(())
    }
}
