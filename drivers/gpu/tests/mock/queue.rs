//! The mock's queue: what is recorded is done when its batch is asked for often enough.

use super::{Call, Floats, MockBuffer, MockContext};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use unisono_core::numeric;
use unisono_core::{DType, Finish, Form, Scalar, Source};
use unisono_gpu::{GpuError, Params, Queue, Span, Variant};

/// A span; whoever recorded it has to keep the buffer alive.
struct Place {
    buffer: Weak<MockBuffer>,
    offset: u64,
    bytes: u64,
}

impl Place {
    fn new(span: &Span<'_, MockBuffer>) -> Self {
        assert!(span.offset + span.bytes <= span.buffer.bytes, "a span beyond its buffer");
        Self { buffer: Arc::downgrade(span.buffer), offset: span.offset, bytes: span.bytes }
    }

    /// `bytes` bytes, `start` bytes into the span.
    fn at(&self, start: u64, bytes: usize) -> *mut u8 {
        let buffer = self.buffer.upgrade().expect("the buffer was dropped before its batch ran");
        assert!(start + bytes as u64 <= self.bytes, "{start} + {bytes} in {} bytes", self.bytes);
        buffer.start.as_ptr().wrapping_add((self.offset + start) as usize)
    }
}

enum Job {
    Fold { variant: Variant, params: Box<Params>, spans: Vec<Place> },
    Copy { from: Place, to: Place },
}

pub struct MockQueue {
    context: Arc<MockContext>,
    recorded: Vec<Job>,
    /// Batches, and how often each has still to be asked for.
    running: VecDeque<(usize, Vec<Job>)>,
    submitted: u64,
    complete: u64,
    random: u64,
}

impl MockQueue {
    pub fn new(context: Arc<MockContext>) -> Self {
        let (recorded, running) = (Vec::new(), VecDeque::new());
        Self { context, recorded, running, submitted: 0, complete: 0, random: 1 }
    }

    fn run_first(&mut self) {
        let Some((_, mut jobs)) = self.running.pop_front() else { return };
        // Jobs of a batch are independent: any order will do.
        while !jobs.is_empty() {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (self.random >> 33) as usize % jobs.len();
            self.run(jobs.swap_remove(at));
        }
        self.complete += 1;
    }

    fn run(&self, job: Job) {
        match job {
            Job::Copy { from, to } => {
                let bytes = from.bytes as usize;
                // SAFETY: places in live buffers.
                unsafe { from.at(0, bytes).copy_to(to.at(0, bytes), bytes) };
            }
            Job::Fold { variant, params, spans } => self.fold(&variant, &params, &spans),
        }
    }

    fn fold(&self, variant: &Variant, params: &Params, spans: &[Place]) {
        let Variant { dtype, op, .. } = *variant;
        let count = params.count as usize;
        let (sources, dests) = spans.split_at(usize::from(variant.sources));
        let words: Vec<u32> = params
            .as_bytes()
            .chunks(4)
            .map(|w| u32::from_le_bytes(w.try_into().unwrap()))
            .collect();
        let finish = if variant.partial {
            Finish::Partial
        } else {
            Finish::Final { ranks: words[1] >> words[3] }
        };
        let sources: Vec<Source<&[u8]>> = sources
            .iter()
            .enumerate()
            .map(|(i, place)| {
                let partial = variant.partials >> i & 1 == 1;
                let form = if partial { Form::Partial } else { Form::Leaf };
                let bytes = count * numeric::form_size(dtype, form);
                let start = place.at(u64::from(params.sources[i]), bytes);
                // SAFETY: a place in a live buffer, written by nobody now.
                let mem = unsafe { std::slice::from_raw_parts(start, bytes) };
                let weight = scalar(dtype, params.weights[i]);
                Source { mem, form, weight, merges: (variant.merges >> (4 * i) & 15) as u8 }
            })
            .collect();
        let mut result = vec![0; count * numeric::dest_size(dtype, op, finish, &sources)];
        numeric::fold(dtype, op, finish, &sources, &mut result).unwrap();
        let native = variant.arithmetic.native_f32;
        if dtype == DType::F32 {
            match self.context.config.floats {
                Floats::Flushing if native => result.chunks_exact_mut(4).for_each(flush),
                Floats::Broken => result.iter_mut().step_by(4).for_each(|byte| *byte ^= 1),
                _ => {}
            }
        }
        for (place, &start) in dests.iter().zip(&params.dests) {
            let to = place.at(u64::from(start), result.len());
            // SAFETY: a place in a live buffer; the sources have been read.
            unsafe { to.copy_from_nonoverlapping(result.as_ptr(), result.len()) };
        }
    }
}

/// A weight that rounds to what the kernel was given.
fn scalar(dtype: DType, [low, high]: [u32; 2]) -> Scalar {
    match dtype.acc() {
        DType::F32 => Scalar::from_f64(f64::from(f32::from_bits(low))),
        _ => Scalar(u64::from(low) | u64::from(high) << 32),
    }
}

/// A subnormal binary32 becomes zero.
fn flush(value: &mut [u8]) {
    if value[3] & 0x7f == 0 && value[2] & 0x80 == 0 {
        value[..3].fill(0);
    }
}

impl Queue for MockQueue {
    type Buffer = MockBuffer;
    type Kernel = Variant;

    fn compile(&mut self, variant: &Variant) -> Result<Variant, GpuError> {
        self.context.enter(Call::Compile)?;
        if self.context.config.floats == Floats::Missing && variant.arithmetic.native_f32 {
            let (device, kernel) = ("mock".to_owned(), "fold".to_owned());
            return Err(GpuError::Build { device, kernel, text: "what is a float?".to_owned() });
        }
        Ok(*variant)
    }

    unsafe fn dispatch(
        &mut self,
        kernel: &Variant,
        params: &Params,
        spans: &[Span<'_, MockBuffer>],
        groups: [u32; 2],
    ) -> Result<(), GpuError> {
        assert!(self.has_room(1), "no room for a kernel");
        self.context.enter(Call::Dispatch)?;
        let limits = &self.context.config.limits;
        assert_eq!(spans.len(), usize::from(kernel.sources + kernel.dests));
        assert!(spans.len() <= limits.spans_max && params.count > 0);
        let small = kernel.dtype.size() as u32;
        let starts = params.sources[..usize::from(kernel.sources)].iter();
        let starts = starts.chain(&params.dests[..usize::from(kernel.dests)]);
        for (span, &start) in spans.iter().zip(starts) {
            assert!(span.offset.is_multiple_of(limits.span_align), "a span starts anywhere");
            assert!(limits.pinned_kernels || !span.buffer.pinned, "a kernel on pinned memory");
            assert!(span.bytes <= limits.span_max && span.bytes.is_multiple_of(4), "a span");
            assert!(u64::from(start) < limits.span_align && start.is_multiple_of(small.min(4)));
        }
        assert_eq!(groups, kernel.groups(params.count, limits.groups_max));
        assert!(groups.iter().all(|&side| side >= 1 && side <= limits.groups_max));
        let spans = spans.iter().map(Place::new).collect();
        self.recorded.push(Job::Fold { variant: *kernel, params: Box::new(*params), spans });
        Ok(())
    }

    unsafe fn copy(
        &mut self,
        from: Span<'_, MockBuffer>,
        to: Span<'_, MockBuffer>,
    ) -> Result<(), GpuError> {
        assert!(self.has_room(1), "no room for a copy");
        self.context.enter(Call::Copy)?;
        assert!(from.bytes == to.bytes && from.bytes > 0);
        self.recorded.push(Job::Copy { from: Place::new(&from), to: Place::new(&to) });
        Ok(())
    }

    fn has_room(&self, jobs: usize) -> bool {
        let config = &self.context.config;
        self.running.len() < config.batches && self.recorded.len() + jobs <= config.jobs
    }

    fn submit(&mut self) -> Result<u64, GpuError> {
        let jobs = std::mem::take(&mut self.recorded);
        if jobs.is_empty() {
            return Ok(self.submitted);
        }
        self.context.enter(Call::Submit)?;
        self.running.push_back((self.context.config.delay, jobs));
        self.submitted += 1;
        Ok(self.submitted)
    }

    fn poll(&mut self) -> Result<u64, GpuError> {
        if let Err(error) = self.context.enter(Call::Poll) {
            // Lost: nothing runs any more.
            self.running.clear();
            return Err(error);
        }
        match self.running.front_mut() {
            Some((0, _)) => self.run_first(),
            Some((left, _)) => *left -= 1,
            None => {}
        }
        Ok(self.complete)
    }

    fn wait(&mut self, batch: u64) -> Result<(), GpuError> {
        self.context.enter(Call::Poll)?;
        assert!(batch <= self.submitted, "waits for a batch that does not exist");
        while self.complete < batch {
            self.run_first();
        }
        Ok(())
    }
}

impl Drop for MockQueue {
    fn drop(&mut self) {
        while !self.running.is_empty() {
            self.run_first();
        }
    }
}
