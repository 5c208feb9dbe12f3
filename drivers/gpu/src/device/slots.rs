//! Pinned memory that bytes pass through where a kernel cannot work on them where they lie.

use crate::backend::{Context, Place};
use crate::error::GpuError;
use crate::kernel::{DESTS_MAX, SOURCES_MAX};
use std::sync::Arc;
use unisono_driver::HostPtr;

/// One piece of pinned memory; a step that stages anything has one for itself.
pub(super) struct Slot<B> {
    /// Pinned memory.
    pub pinned: Arc<B>,
    /// Its address.
    pub start: HostPtr,
    /// What kernels work on: the pinned memory, or where they cannot, as much of the device's own.
    pub kernels: Arc<B>,
    busy: bool,
}

/// All of them, made when they are first needed: many devices never stage anything.
pub(super) struct Slots<C: Context> {
    context: Arc<C>,
    slots: Vec<Slot<C::Buffer>>,
    most: usize,
    /// Bytes of a slot.
    pub bytes: usize,
    /// Spans in a slot start at multiples of this.
    pub align: usize,
}

impl<C: Context> Slots<C> {
    /// At most `most` slots of at most `bytes` bytes.
    pub fn new(context: &Arc<C>, most: usize, bytes: usize) -> Result<Self, GpuError> {
        let limits = context.limits();
        let align = usize::try_from(limits.span_align.max(256)).unwrap_or(usize::MAX);
        let bytes = bytes.min(usize::try_from(limits.buffer_max).unwrap_or(usize::MAX)) & !15;
        // Room for one element of every span, and for the gaps between them.
        let least = align.saturating_add(8).saturating_mul(SOURCES_MAX + DESTS_MAX);
        if bytes < least || most == 0 {
            let (device, call) = (context.card().name.clone(), "staging memory");
            let text = format!("at least {least} bytes are needed, the limit is {bytes}");
            return Err(GpuError::Driver { device, call, text });
        }
        let slots = Vec::with_capacity(most);
        Ok(Self { context: Arc::clone(context), slots, most, bytes, align })
    }

    /// Is there a free one, or can one be made?
    pub fn has_free(&self) -> bool {
        self.slots.len() < self.most || self.slots.iter().any(|slot| !slot.busy)
    }

    /// Takes a free one; `None` if all are in use.
    pub fn take(&mut self) -> Result<Option<usize>, GpuError> {
        if let Some(free) = self.slots.iter().position(|slot| !slot.busy) {
            self.slots[free].busy = true;
            return Ok(Some(free));
        }
        if self.slots.len() == self.most {
            return Ok(None);
        }
        match self.make() {
            Ok(slot) => self.slots.push(slot),
            Err(error) if self.slots.is_empty() => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "fewer staging slots than wanted");
                self.most = self.slots.len();
                return Ok(None);
            }
        }
        Ok(Some(self.slots.len() - 1))
    }

    pub fn get(&self, index: usize) -> &Slot<C::Buffer> {
        &self.slots[index]
    }

    pub fn give_back(&mut self, index: usize) {
        self.slots[index].busy = false;
    }

    fn make(&self) -> Result<Slot<C::Buffer>, GpuError> {
        let buffer = self.context.alloc(self.bytes as u64, Place::Pinned)?;
        let Some(start) = self.context.mapped(&buffer) else {
            let (device, call) = (self.context.card().name.clone(), "map pinned memory");
            return Err(GpuError::Driver { device, call, text: "it has no address".to_owned() });
        };
        let (pinned, start) = (Arc::new(buffer), HostPtr::new(start.as_ptr()));
        let kernels = if self.context.limits().pinned_kernels {
            Arc::clone(&pinned)
        } else {
            Arc::new(self.context.alloc(self.bytes as u64, Place::Device)?)
        };
        Ok(Slot { pinned, start, kernels, busy: true })
    }
}
