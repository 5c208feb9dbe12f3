//! All that is under way on one queue: jobs become steps, steps are recorded (see `batch`), and
//! what is complete goes on or ends.

use super::job::{Job, Work};
use super::slots::Slots;
use super::step::{Phase, Step};
use super::{Kernel, Options};
use crate::backend::{Context, Queue};
use crate::error::GpuError;
use crate::kernel::Variant;
use crate::memory::Memory;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use unisono_driver::Done;

/// Most jobs at a time; more than the engine of a member has chunks in flight.
const JOBS_MAX: usize = 64;
/// Most steps at a time.
const STEPS_MAX: usize = 64;

/// All that is under way on one queue.
pub(super) struct Flow<C: Context> {
    // First, so that it is dropped first: that waits for its batches.
    pub queue: C::Queue,
    pub memory: Arc<Memory<C>>,
    pub slots: Slots<C>,
    pub import_min: usize,
    kernels: HashMap<Variant, Kernel<C>>,
    pub jobs: Vec<Option<Job<Kernel<C>>>>,
    /// How many there are.
    active: usize,
    pub steps: Vec<Step<C::Buffer>>,
    /// Jobs that have steps to make, in order.
    pending: VecDeque<usize>,
    /// Steps whose next phase is to be recorded, in order.
    ready: VecDeque<usize>,
    /// Steps whose phase is recorded, by batch.
    pub waiting: VecDeque<usize>,
    done: VecDeque<Done<GpuError>>,
    /// Work in the batch that is recorded.
    pub recorded: usize,
    pub submitted: u64,
    complete: u64,
    pub lost: Option<GpuError>,
}

impl<C: Context> Drop for Flow<C> {
    fn drop(&mut self) {
        // Nothing that batches use may be freed before they are complete. An error says that
        // they use nothing any more.
        if self.complete < self.submitted {
            let _ = self.queue.wait(self.submitted);
        }
    }
}

/// What came of an attempt to make a step.
pub(super) enum Made {
    /// This one, to be recorded.
    Step(usize),
    /// Some of the job is done, without a step.
    Nothing,
    /// Not now: all steps or slots are in use.
    NoRoom,
}

impl<C: Context> Flow<C> {
    pub fn new(memory: &Arc<Memory<C>>, options: &Options) -> Result<Self, GpuError> {
        let context = memory.context();
        Ok(Self {
            slots: Slots::new(context, options.slots, options.slot_bytes)?,
            queue: Arc::clone(context).queue()?,
            memory: Arc::clone(memory),
            import_min: options.import_min,
            kernels: HashMap::new(),
            active: 0,
            jobs: (0..JOBS_MAX).map(|_| None).collect(),
            steps: (0..STEPS_MAX).map(|_| Step::new()).collect(),
            pending: VecDeque::with_capacity(JOBS_MAX),
            ready: VecDeque::with_capacity(STEPS_MAX),
            waiting: VecDeque::with_capacity(STEPS_MAX),
            done: VecDeque::with_capacity(JOBS_MAX),
            recorded: 0,
            submitted: 0,
            complete: 0,
            lost: None,
        })
    }

    /// The kernel of a variant, compiled when it is first asked for.
    pub fn kernel(&mut self, variant: &Variant) -> Result<Kernel<C>, GpuError> {
        if let Some(kernel) = self.kernels.get(variant) {
            return Ok(kernel.clone());
        }
        let kernel = self.queue.compile(variant)?;
        self.kernels.insert(*variant, kernel.clone());
        Ok(kernel)
    }

    /// May work be started?
    pub fn check_open(&self) -> Result<(), GpuError> {
        match &self.lost {
            Some(error) => Err(error.clone()),
            None if self.has_room() => Ok(()),
            None => Err(GpuError::Busy),
        }
    }

    /// Jobs and completions that wait to be polled take room.
    pub fn has_room(&self) -> bool {
        self.active + self.done.len() < JOBS_MAX
    }

    /// Nothing under way and nothing to be polled.
    pub fn is_idle(&self) -> bool {
        self.done.is_empty() && self.active == 0
    }

    /// Takes a job; there is room.
    pub fn start(&mut self, job: Job<Kernel<C>>) {
        let Some(free) = self.jobs.iter().position(Option::is_none) else { return };
        self.jobs[free] = Some(job);
        self.active += 1;
        self.pending.push_back(free);
        self.advance();
    }

    /// Submits what is recorded.
    pub fn flush(&mut self) {
        self.advance();
        self.submit();
    }

    /// The next completion.
    pub fn poll(&mut self) -> Option<Done<GpuError>> {
        if self.done.is_empty() {
            self.turn();
        }
        self.done.pop_front()
    }

    /// In a child of the process: a job that will never be complete. Nothing of the driver's is
    /// touched, not even to free it.
    pub fn abandon(&mut self, error: &GpuError) -> Option<Done<GpuError>> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        let job = self.jobs.iter_mut().find_map(Option::take)?;
        self.active -= 1;
        let token = job.token;
        std::mem::forget(job);
        Some(Done { token, result: Err(error.clone()) })
    }

    /// Finds out what is complete, goes on with it, and starts what can be started.
    fn turn(&mut self) {
        if self.submitted > self.complete {
            match self.queue.poll() {
                Ok(complete) => self.complete = complete,
                Err(error) => return self.lose(error),
            }
        }
        self.finish();
        let before = self.recorded;
        self.advance();
        // Whoever asks for completions has flushed what these phases belong to. Work that has not
        // been flushed is gathered while the device has something to do, and no longer.
        if self.recorded > before || self.submitted == self.complete {
            self.submit();
            self.finish();
        }
    }

    /// Records whatever there is room for.
    fn advance(&mut self) {
        while let Some(&index) = self.ready.front() {
            if !self.record(index) {
                return;
            }
            self.ready.pop_front();
        }
        while let Some(&index) = self.pending.front() {
            if !self.issue(index) {
                return;
            }
        }
    }

    /// Makes the next step of the first job that waits; `false`: not now.
    fn issue(&mut self, index: usize) -> bool {
        let Some(job) = &mut self.jobs[index] else { return self.retire(index) };
        if job.error.is_none() {
            job.error.clone_from(&self.lost);
        }
        if job.is_issued() {
            return self.retire(index);
        }
        let made = match job.work {
            Work::Fold { .. } => self.make_fold_step(index),
            Work::Copy { .. } => self.make_copy_step(index),
        };
        match made {
            Ok(Made::Nothing) => true,
            Ok(Made::Step(step)) => {
                let done = self.record(step);
                if !done {
                    self.ready.push_back(step);
                }
                done
            }
            // What is recorded must be under way for steps and slots to become free.
            Ok(Made::NoRoom) => {
                self.submit();
                false
            }
            Err(error) => {
                self.fail(index, error);
                true
            }
        }
    }

    /// The first job that waits has all its steps.
    fn retire(&mut self, index: usize) -> bool {
        self.pending.pop_front();
        self.settle(index);
        true
    }

    /// Goes on with the steps whose batches are complete.
    fn finish(&mut self) {
        while let Some(&index) = self.waiting.front() {
            if self.steps[index].batch > self.complete {
                return;
            }
            self.waiting.pop_front();
            let step = &mut self.steps[index];
            match step.after(Some(step.phase)) {
                Some(next) => {
                    (step.phase, step.recorded) = (next, 0);
                    self.ready.push_back(index);
                }
                None => self.end_step(index),
            }
        }
    }

    /// A step is done, or has failed.
    fn end_step(&mut self, index: usize) {
        let step = &mut self.steps[index];
        let Some(job) = step.job else { return };
        if step.phase != Phase::Failed {
            for copy in &step.after {
                // SAFETY: from a slot, which is apart from everything else, to the caller's span.
                unsafe { copy.run() };
            }
        }
        self.release(index);
        if let Some(job) = &mut self.jobs[job] {
            job.steps -= 1;
        }
        if !self.pending.contains(&job) {
            self.settle(job);
        }
    }

    /// A free step for a job, with a slot if it needs one.
    pub fn free_step(&mut self, job: usize, staged: bool) -> Result<Option<usize>, GpuError> {
        let free = self.steps.iter().position(|step| step.job.is_none());
        let Some(index) = free else { return Ok(None) };
        let slot = if staged { self.slots.take()? } else { None };
        if staged && slot.is_none() {
            return Ok(None);
        }
        (self.steps[index].job, self.steps[index].slot) = (Some(job), slot);
        Ok(Some(index))
    }

    /// A step is as it should be: its first phase can be recorded.
    pub fn start_step(&mut self, index: usize) {
        let step = &mut self.steps[index];
        step.phase = step.after(None).unwrap_or(Phase::Run);
        step.recorded = 0;
    }

    /// So many more elements of a job are done, or part of a step.
    pub fn count_issued(&mut self, job: usize, elements: usize, steps: usize) {
        if let Some(job) = &mut self.jobs[job] {
            job.issued += elements;
            job.steps += steps;
        }
    }

    /// Makes a step free again.
    pub fn release(&mut self, index: usize) {
        let step = &mut self.steps[index];
        if let Some(slot) = step.slot.take() {
            self.slots.give_back(slot);
        }
        step.clear();
    }

    /// Completes a job that has nothing under way or to come.
    fn settle(&mut self, index: usize) {
        let job = self.jobs[index].take_if(|job| job.steps == 0 && job.is_issued());
        if let Some(Job { token, error, .. }) = job {
            self.active -= 1;
            self.done.push_back(Done { token, result: error.map_or(Ok(()), Err) });
        }
    }

    /// The first error of a job is its result.
    pub fn fail(&mut self, index: usize, error: GpuError) {
        if let Some(job) = &mut self.jobs[index] {
            job.error.get_or_insert(error);
        }
    }

    /// The device is gone, and uses no memory any more: everything ends, with its words.
    fn lose(&mut self, error: GpuError) {
        let error = self.lost.get_or_insert(error).clone();
        self.pending.clear();
        self.ready.clear();
        self.waiting.clear();
        (self.active, self.recorded, self.complete) = (0, 0, self.submitted);
        for index in 0..self.steps.len() {
            self.release(index);
        }
        for job in self.jobs.iter_mut().filter_map(Option::take) {
            let result = Err(job.error.unwrap_or_else(|| error.clone()));
            self.done.push_back(Done { token: job.token, result });
        }
    }
}
