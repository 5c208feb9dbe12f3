//! What a GPU does by itself: folds against its own copies of memory, transfers, and what a
//! submission costs.

use super::any::{AnyDevice, DeviceError};
use super::rates::{run, wait};
use super::store::Opened;
use crate::error::Error;
use crate::memory::Block;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unisono_core::fold::leaf_merges;
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source};
use unisono_driver::{Copy, Device, Fold, HostPtr, Memory};
use unisono_gpu::Place;

/// Measures a device. Every method returns seconds of one job.
pub struct Bench {
    // Before the memory that it works on.
    device: AnyDevice,
    own: Block,
    pinned: Block,
    sources: usize,
    bytes: usize,
    time: Duration,
    interrupt: Option<Arc<AtomicBool>>,
}

/// Jobs that are measured together: a batch.
const BATCH: u32 = 16;
/// Bytes that a batch of several jobs moves at most: a GPU needs few large ones, and software takes
/// seconds for more.
const BATCH_BYTES: usize = 4 << 30;
/// Bytes that are filled at once.
const PIECE: usize = 64 << 20;
/// Elements of a fold that is all overhead.
const SMALL: usize = 256;
/// Bytes that are normal numbers in every type.
const FILL: u8 = 0x3c;

/// An error once the flag is true.
fn go_on(interrupt: Option<&AtomicBool>) -> Result<(), Error> {
    let stopped = interrupt.is_some_and(|flag| flag.load(Ordering::Relaxed));
    if stopped { Err(Error::Cancelled(0)) } else { Ok(()) }
}

impl Bench {
    /// For folds of `sources` tensors of `bytes` bytes each in the device's own memory; each
    /// measurement takes about `time`. Soon after `interrupt` has become true, everything is
    /// [`Error::Cancelled`].
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn new(
        on: &Opened,
        sources: u16,
        bytes: usize,
        time: Duration,
        interrupt: Option<Arc<AtomicBool>>,
    ) -> Result<Self, Error> {
        let sources = usize::from(sources.max(1));
        let device = on.0.device()?;
        let own = Block::of(on, (sources + 1) * bytes, Place::Device, &[])?;
        let pinned = Block::of(on, bytes, Place::Pinned, &[])?;
        let new = Self { device, own, pinned, sources, bytes, time, interrupt };
        let all = (sources + 1) * bytes;
        let piece = vec![FILL; PIECE.min(all)];
        for at in (0..all).step_by(PIECE) {
            go_on(new.interrupt.as_deref())?;
            let part = &piece[..piece.len().min(all - at)];
            // SAFETY: within the block, which nobody else has.
            unsafe { on.0.write(new.own.start.offset(at as u64), part) }?;
        }
        Ok(new)
    }

    /// Jobs of a batch that move so many bytes each.
    fn batch(bytes: usize) -> u32 {
        (BATCH_BYTES / bytes.max(1)).clamp(1, BATCH as usize) as u32
    }

    /// A copy within the device's memory.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn copy(&mut self) -> Result<f64, Error> {
        let (from, to) = (self.at(0), self.at(self.sources));
        self.copies(from, to)
    }

    /// From memory of the host, pinned.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn upload(&mut self) -> Result<f64, Error> {
        let (from, to) = (self.pinned.start, self.at(0));
        self.copies(from, to)
    }

    /// To memory of the host, pinned.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn download(&mut self) -> Result<f64, Error> {
        let (from, to) = (self.at(0), self.pinned.start);
        self.copies(from, to)
    }

    /// A fold of all sources into one more tensor.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn fold(&mut self, dtype: DType, op: ReduceOp) -> Result<f64, Error> {
        let (count, time) = (self.bytes / dtype.size(), self.time);
        let jobs = Self::batch((self.sources + 1) * self.bytes);
        self.folds(dtype, op, count, |device, go_on, start| run(device, jobs, time, go_on, start))
    }

    /// A tiny fold that is submitted and waited for, and one of many that are submitted together.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn trips(&mut self) -> Result<[f64; 2], Error> {
        let time = self.time;
        let mut trip = |jobs| {
            let small = SMALL.min(self.bytes / 4);
            self.folds(DType::F32, ReduceOp::Sum, small, |device, go_on, start| {
                run(device, jobs, time, go_on, start)
            })
        };
        Ok([trip(1)?, trip(BATCH)?])
    }

    fn at(&self, i: usize) -> HostPtr {
        self.own.start.offset((i * self.bytes) as u64)
    }

    fn copies(&mut self, from: HostPtr, to: HostPtr) -> Result<f64, Error> {
        let work = Copy { from, to, bytes: self.bytes };
        let (jobs, time) = (Self::batch(2 * self.bytes), self.time);
        let stop = self.interrupt.clone();
        // SAFETY: both are blocks of that size, and only this device uses them.
        let mut start = |device: &mut AnyDevice| unsafe { device.copy(&work, 0) };
        run(&mut self.device, jobs, time, &|| go_on(stop.as_deref()), &mut start)
    }

    fn folds(
        &mut self,
        dtype: DType,
        op: ReduceOp,
        count: usize,
        time: impl FnOnce(
            &mut AnyDevice,
            &dyn Fn() -> Result<(), Error>,
            &mut dyn FnMut(&mut AnyDevice) -> Result<(), DeviceError>,
        ) -> Result<f64, Error>,
    ) -> Result<f64, Error> {
        let ranks = self.sources as u32;
        let source = |(i, merges)| Source {
            mem: self.at(i),
            form: Form::Leaf,
            weight: Scalar::one(dtype),
            merges,
        };
        let sources: Vec<_> = (0..self.sources).zip(leaf_merges(ranks)).map(source).collect();
        let dests = [self.at(self.sources)];
        let finish = Finish::Final { ranks };
        let work = Fold { dtype, op: Some(op), count, sources: &sources, dests: &dests, finish };
        let stop = self.interrupt.clone();
        // SAFETY: the spans are as long as that, and only this device uses them.
        let mut start = |device: &mut AnyDevice| unsafe { device.fold(&work, 0) };
        time(&mut self.device, &|| go_on(stop.as_deref()), &mut start)
    }

    /// Time from opening a kernel that was never used to its first result: what the compiler takes.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn first(&mut self, dtype: DType, op: ReduceOp) -> Result<f64, Error> {
        let started = Instant::now();
        self.folds(dtype, op, SMALL.min(self.bytes / 8), |device, go_on, start| {
            go_on()?;
            start(device)?;
            wait(device)?;
            Ok(started.elapsed().as_secs_f64())
        })
    }
}
