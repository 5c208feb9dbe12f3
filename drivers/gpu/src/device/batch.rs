//! Records steps into batches, and submits those.

use super::flow::Flow;
use super::job::{Job, Work};
use super::step::Phase;
use crate::backend::{Context, Queue};
use crate::error::GpuError;

impl<C: Context> Flow<C> {
    /// Records the phase of a step; `false`: not all of it yet.
    pub fn record(&mut self, index: usize) -> bool {
        if let Err(error) = self.try_record(index) {
            match error {
                None => return false,
                Some(error) => {
                    if matches!(error, GpuError::Lost { .. }) {
                        self.lost.get_or_insert(error.clone());
                    }
                    self.steps[index].phase = Phase::Failed;
                    if let Some(job) = self.steps[index].job {
                        self.fail(job, error);
                    }
                }
            }
        }
        self.waiting.push_back(index);
        true
    }

    /// `Err(None)`: the queue has no room now.
    fn try_record(&mut self, index: usize) -> Result<(), Option<GpuError>> {
        loop {
            let step = &self.steps[index];
            let left = match step.phase {
                Phase::Failed => 0,
                Phase::Run => 1 - step.recorded,
                Phase::In | Phase::Out => step.moves().len() - step.recorded,
            };
            if left == 0 {
                return Ok(());
            }
            if let Some(error) = &self.lost {
                return Err(Some(error.clone()));
            }
            if !self.queue.has_room(1) {
                self.submit();
                if !self.queue.has_room(1) {
                    return Err(None);
                }
                // The submission may have failed, and this step with it.
                continue;
            }
            self.record_one(index)?;
        }
    }

    /// Records the kernel, or the next copy, of a step.
    fn record_one(&mut self, index: usize) -> Result<(), GpuError> {
        let step = &mut self.steps[index];
        if step.phase == Phase::Run {
            let job = step.job.and_then(|job| self.jobs[job].as_ref());
            if let Some(Job { work: Work::Fold { kernel, .. }, .. }) = job {
                let spans = step.spans();
                // SAFETY: the step holds the buffers until the batch is complete; the rest is
                // what the submitter of the job has promised.
                unsafe { self.queue.dispatch(kernel, &step.params, &spans, step.groups) }?;
            }
        } else if let Some(copy) = step.moves().get(step.recorded) {
            let bytes = copy.bytes as u64;
            let (from, to) = (step.span(copy.from, bytes), step.span(copy.to, bytes));
            // SAFETY: as above.
            unsafe { self.queue.copy(from, to) }?;
        }
        step.recorded += 1;
        step.batch = self.submitted + 1;
        self.recorded += 1;
        Ok(())
    }

    /// Starts what is recorded.
    pub fn submit(&mut self) {
        if self.recorded == 0 {
            return;
        }
        self.recorded = 0;
        match self.queue.submit() {
            Ok(batch) => self.submitted = batch,
            Err(error) => self.fail_batch(error),
        }
    }

    /// What was recorded is dropped: its jobs fail, once earlier batches have let go of them.
    fn fail_batch(&mut self, error: GpuError) {
        for index in 0..self.steps.len() {
            let step = &mut self.steps[index];
            if let Some(job) = step.job.filter(|_| step.batch == self.submitted + 1) {
                (step.phase, step.batch) = (Phase::Failed, self.submitted);
                self.fail(job, error.clone());
            }
        }
        if matches!(error, GpuError::Lost { .. }) {
            self.lost.get_or_insert(error);
        }
    }
}
