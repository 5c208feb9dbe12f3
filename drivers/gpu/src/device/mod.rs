//! The device that the engine sees: any folds and copies of any memory, whatever the API can do.
//!
//! * [`job`]: one piece of work, one completion;
//! * [`fold`], [`copy`]: cut a job into steps that the device can do;
//! * [`step`]: one step, by at most three batches;
//! * [`flow`], [`batch`]: all that is under way: recorded, submitted, followed to its end;
//! * [`slots`]: pinned memory for what cannot be done in place.

mod batch;
mod copy;
mod flow;
mod fold;
mod job;
mod slots;
mod step;

use crate::backend::{Context, Queue};
use crate::card::Card;
use crate::error::GpuError;
use crate::kernel::{Arithmetic, DESTS_MAX, SOURCES_MAX, Variant};
use crate::memory::Memory;
use crate::process::Kept;
use crate::selftest;
use flow::Flow;
use job::{Job, Work};
use std::sync::Arc;
use unisono_core::numeric;
use unisono_driver::{Copy, Device, DeviceCaps, Done, Fold, HostPtr, Token};

/// What can be chosen when a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most pieces of pinned memory that are staged through at a time: jobs of a batch that work
    /// on memory of the host take one each.
    pub slots: usize,
    /// Bytes of each.
    pub slot_bytes: usize,
    /// Spans of host memory of at least this many bytes are imported for a job where the device
    /// shares the host's memory; smaller ones are copied, which costs less than a call of the
    /// driver (some 10 us) up to about here.
    pub import_min: usize,
}

impl Default for Options {
    /// 32 pieces of 256 KiB; imports from 16 KiB on.
    fn default() -> Self {
        Self { slots: 32, slot_bytes: 256 << 10, import_min: 16 << 10 }
    }
}

/// One member's share of a GPU: a queue of its own, on memory that all members share.
///
/// It takes work on any address: buffers of the device ([`Memory`]) in place, host memory in place
/// where the device can import it cheaply, everything else through pinned memory. A completion of
/// an error says what failed; other work goes on unless the device is lost.
pub struct Gpu<C: Context> {
    flow: Kept<Flow<C>>,
    memory: Arc<Memory<C>>,
    card: Card,
    arithmetic: Arithmetic,
    caps: DeviceCaps,
}

impl<C: Context> std::fmt::Debug for Gpu<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu").field("card", &self.card).finish_non_exhaustive()
    }
}

impl<C: Context> Gpu<C> {
    /// Opens a queue of its own on the device of `memory`. The first to open a device tests its
    /// arithmetic, which compiles a few kernels.
    ///
    /// # Errors
    /// [`GpuError::SelfTest`] if the device gives wrong bits, [`GpuError::Forked`], or what the
    /// driver says.
    pub fn open(memory: &Arc<Memory<C>>, options: &Options) -> Result<Self, GpuError> {
        memory.check_process()?;
        let context = memory.context();
        let limits = context.limits();
        let spans = limits.spans_max;
        if spans < 3 || limits.span_max < 4096.max(2 * limits.span_align) {
            let (device, call) = (context.card().name.clone(), "limits");
            let text = format!("kernels with {spans} spans of {} bytes", limits.span_max);
            return Err(GpuError::Driver { device, call, text });
        }
        let dests_max = (spans / 3).clamp(1, DESTS_MAX);
        let caps = DeviceCaps { sources_max: (spans - dests_max).min(SOURCES_MAX), dests_max };
        let flow = Flow::new(memory, options)?;
        let mut gpu = Self {
            flow: Kept::new(flow),
            memory: Arc::clone(memory),
            card: context.card().clone(),
            arithmetic: limits.offers,
            caps,
        };
        gpu.arithmetic = match memory.arithmetic() {
            Some(known) => known,
            None => {
                let found = selftest::run(&mut gpu)?;
                memory.set_arithmetic(found);
                found
            }
        };
        gpu.card.arithmetic = Some(gpu.arithmetic);
        Ok(gpu)
    }

    /// What the device is, and how it computes.
    #[must_use]
    pub const fn card(&self) -> &Card {
        &self.card
    }

    /// The memory that it works on.
    #[must_use]
    pub const fn memory(&self) -> &Arc<Memory<C>> {
        &self.memory
    }

    /// The kernel that a fold needs, for [`Gpu::warm`].
    #[must_use]
    pub fn variant<M>(&self, work: &Fold<'_, M>) -> Variant {
        let group_size = self.memory.context().limits().group_size;
        job::variant(work, self.arithmetic, group_size)
    }

    /// Compiles kernels before they are needed; otherwise the first fold that needs one does.
    ///
    /// # Errors
    /// [`GpuError::Build`] with the compiler's words, [`GpuError::Forked`].
    pub fn warm(&mut self, variants: &[Variant]) -> Result<(), GpuError> {
        self.memory.check_process()?;
        variants.iter().try_for_each(|variant| self.flow.kernel(variant).map(drop))
    }

    /// Tries another arithmetic: the self-test's.
    pub(crate) const fn set_arithmetic(&mut self, arithmetic: Arithmetic) {
        self.arithmetic = arithmetic;
    }

    /// Waits for the completion of one job.
    pub(crate) fn wait_for_one(&mut self) -> Result<(), GpuError> {
        self.flush();
        loop {
            match self.poll_done() {
                Some(done) => return done.result,
                None if self.flow.is_idle() => return Ok(()),
                None => std::thread::yield_now(),
            }
        }
    }

    fn start(&mut self, token: Token, work: Work<Kernel<C>>, count: usize) {
        let empty = matches!(&work, Work::Copy { to, .. } if to.is_empty());
        self.flow.start(Job::new(token, work, if empty { 0 } else { count }));
    }

    /// May work be started now?
    fn check_open(&self) -> Result<(), GpuError> {
        self.memory.check_process()?;
        self.flow.check_open()
    }
}

/// A compiled kernel of a device.
type Kernel<C> = <<C as Context>::Queue as Queue>::Kernel;

impl<C: Context> Device for Gpu<C> {
    type Mem = HostPtr;
    type Error = GpuError;

    fn caps(&self) -> DeviceCaps {
        self.caps
    }

    fn has_room(&self) -> bool {
        self.flow.has_room()
    }

    unsafe fn fold(&mut self, work: &Fold<'_, HostPtr>, token: Token) -> Result<(), GpuError> {
        self.check_open()?;
        let DeviceCaps { sources_max, dests_max } = self.caps;
        let (sources, dests) = (work.sources.len(), work.dests.len());
        if !(1..=sources_max).contains(&sources) || !(1..=dests_max).contains(&dests) {
            return Err(GpuError::Spans(sources_max, dests_max));
        }
        numeric::check(work.dtype, work.op, work.finish, work.sources)?;
        job::check_count(work.count)?;
        if work.op.is_none() {
            let size = numeric::dest_size(work.dtype, work.op, work.finish, work.sources);
            let copy = job::copy(work.sources[0].mem, work.dests)?;
            self.start(token, copy, work.count * size);
            return Ok(());
        }
        let operands = job::operands(work)?;
        let variant = self.variant(work);
        let kernel = self.flow.kernel(&variant)?;
        let params = job::params(work);
        self.start(token, Work::Fold { kernel, variant, params, operands }, work.count);
        Ok(())
    }

    unsafe fn copy(&mut self, work: &Copy<HostPtr>, token: Token) -> Result<(), GpuError> {
        self.check_open()?;
        let copy = job::copy(work.from, &[work.to])?;
        self.start(token, copy, work.bytes);
        Ok(())
    }

    fn flush(&mut self) {
        if self.memory.process().is_this() {
            self.flow.flush();
        }
    }

    fn is_shared(&self, mem: HostPtr) -> bool {
        self.memory.is_shared(mem)
    }

    fn poll_done(&mut self) -> Option<Done<GpuError>> {
        if self.flow.is_idle() {
            return None;
        }
        match self.memory.check_process() {
            Ok(()) => self.flow.poll(),
            Err(error) => self.flow.abandon(&error),
        }
    }
}
