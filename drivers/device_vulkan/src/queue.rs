//! Where one member's work goes: a ring of batches.

use crate::batch::{Batch, JOBS, PARAMS};
use crate::buffer::VulkanBuffer;
use crate::context::VulkanContext;
use crate::fault;
use crate::memory::Use;
use crate::pipeline::VulkanKernel;
use ash::vk;
use std::sync::Arc;
use unisono_gpu::{GpuError, Params, Queue, Span, Variant};
use vulkano::VulkanObject;
use vulkano::sync::semaphore::{Semaphore, SemaphoreCreateInfo, SemaphoreType, SemaphoreWaitInfo};

/// Batches under way or recorded.
const BATCHES: usize = 4;

/// A queue of a [`VulkanContext`]; several share one Vulkan queue.
pub struct VulkanQueue {
    batches: Vec<Batch>,
    /// Counts complete batches, where the device can.
    timeline: Option<Semaphore>,
    /// Number of the last batch that was started; the next one is being recorded.
    last: u64,
    /// Number of the last batch known to be complete.
    done: u64,
    /// Once the device is lost, it stays so.
    lost: Option<GpuError>,
    context: Arc<VulkanContext>,
}

impl VulkanQueue {
    pub(crate) fn new(context: Arc<VulkanContext>) -> Result<Self, GpuError> {
        let timeline = if context.has_timeline() {
            let info = SemaphoreCreateInfo {
                semaphore_type: SemaphoreType::Timeline,
                ..SemaphoreCreateInfo::default()
            };
            let made = Semaphore::new(context.vulkano_device().clone(), info);
            let failed = |error| fault::wrapped(context.name(), "vkCreateSemaphore", error);
            Some(made.map_err(failed)?)
        } else {
            None
        };
        let params =
            VulkanBuffer::alloc(&context, (BATCHES * JOBS) as u64 * PARAMS, Use::Parameters)?;
        let params = Arc::new(params);
        let batches = (0..BATCHES).map(|index| Batch::new(&context, params.clone(), index));
        let batches = batches.collect::<Result<_, _>>()?;
        Ok(Self { batches, timeline, last: 0, done: 0, lost: None, context })
    }

    /// Where batch `number` is, or was.
    fn slot(number: u64) -> usize {
        (number % BATCHES as u64) as usize
    }

    /// The batch to record into, with room for one more job.
    fn open(&mut self) -> Result<&mut Batch, GpuError> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        if !self.has_room(1) {
            return Err(GpuError::Busy);
        }
        Ok(&mut self.batches[Self::slot(self.last + 1)])
    }

    /// An error, which is remembered if the device is lost.
    fn fault(&mut self, error: GpuError) -> GpuError {
        if matches!(error, GpuError::Lost { .. }) {
            // Nothing is under way any more after this, whatever it returns.
            let _ = self.context.vulkano_queue().with(|mut queue| queue.wait_idle());
            self.lost = Some(error.clone());
        }
        error
    }

    fn failed(&mut self, (call, result): (&'static str, vk::Result)) -> GpuError {
        let error = self.context.fault(call, result);
        self.fault(error)
    }

    /// Hands a recorded batch to the driver.
    fn start(&mut self, number: u64) -> Result<(), vk::Result> {
        let batch = &self.batches[Self::slot(number)];
        let commands = [batch.commands()];
        let submit = self.context.vulkano_device().fns().v1_0.queue_submit;
        let info = vk::SubmitInfo::default().command_buffers(&commands);
        let queue = self.context.vulkano_queue();
        // Other members and the caller may use the queue at the same time: `with` locks it.
        let Some(timeline) = &self.timeline else {
            let fence = batch.fence().handle();
            // SAFETY: the batch is recorded and not under way, nor is its fence.
            return queue.with(|_| unsafe { submit(queue.handle(), 1, &info, fence) }.result());
        };
        let (values, semaphores) = ([number], [timeline.handle()]);
        let mut signal =
            vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let info = info.signal_semaphores(&semaphores).push_next(&mut signal);
        // SAFETY: the batch is recorded and not under way; the semaphore's value is lower.
        queue.with(|_| unsafe { submit(queue.handle(), 1, &info, vk::Fence::null()) }.result())
    }

    /// Number of the last complete batch, from the driver.
    fn count(&self) -> Result<u64, GpuError> {
        let name = self.context.name();
        if let Some(timeline) = &self.timeline {
            let value = timeline
                .counter_value()
                .map_err(|error| fault::wrapped(name, "vkGetSemaphoreCounterValue", error))?;
            // A device that gets lost may say anything.
            return Ok(value.clamp(self.done, self.last));
        }
        let mut done = self.done;
        while done < self.last {
            let batch = &self.batches[Self::slot(done + 1)];
            let signaled = batch
                .fence()
                .is_signaled()
                .map_err(|error| fault::wrapped(name, "vkGetFenceStatus", error))?;
            if !signaled {
                break;
            }
            done += 1;
        }
        Ok(done)
    }

    /// All batches up to `number` are complete.
    fn complete(&mut self, number: u64) -> Result<(), GpuError> {
        while self.done < number {
            if self.timeline.is_none() {
                let fence = self.batches[Self::slot(self.done + 1)].fence();
                // SAFETY: it is signaled, and its batch is complete.
                let reset = unsafe { fence.reset() };
                reset.map_err(|e| fault::wrapped(self.context.name(), "vkResetFences", e))?;
            }
            self.done += 1;
        }
        Ok(())
    }

    /// Blocks until batch `number`, which was started, is complete.
    fn block(&self, number: u64) -> Result<(), GpuError> {
        let name = self.context.name();
        if let Some(timeline) = &self.timeline {
            let info = SemaphoreWaitInfo { value: number, ..SemaphoreWaitInfo::default() };
            return timeline
                .wait(info, None)
                .map_err(|error| fault::wrapped(name, "vkWaitSemaphores", error));
        }
        for number in self.done + 1..=number {
            self.batches[Self::slot(number)]
                .fence()
                .wait(None)
                .map_err(|error| fault::wrapped(name, "vkWaitForFences", error))?;
        }
        Ok(())
    }
}

impl Queue for VulkanQueue {
    type Buffer = VulkanBuffer;
    type Kernel = VulkanKernel;

    fn compile(&mut self, variant: &Variant) -> Result<VulkanKernel, GpuError> {
        self.context.pipelines().get(variant)
    }

    unsafe fn dispatch(
        &mut self,
        kernel: &VulkanKernel,
        params: &Params,
        spans: &[Span<'_, VulkanBuffer>],
        groups: [u32; 2],
    ) -> Result<(), GpuError> {
        debug_assert_eq!(spans.len(), kernel.spans());
        let batch = self.open()?;
        // SAFETY: the caller's promise; the batch is open.
        let added = unsafe { batch.dispatch(kernel, params, spans, groups) };
        added.map_err(|failure| self.failed(failure))
    }

    unsafe fn copy(
        &mut self,
        from: Span<'_, VulkanBuffer>,
        to: Span<'_, VulkanBuffer>,
    ) -> Result<(), GpuError> {
        debug_assert_eq!(from.bytes, to.bytes);
        if from.bytes == 0 {
            return Ok(());
        }
        let batch = self.open()?;
        // SAFETY: the caller's promise; the batch is open.
        let added = unsafe { batch.copy(&from, &to) };
        added.map_err(|failure| self.failed(failure))
    }

    fn has_room(&self, jobs: usize) -> bool {
        let next = &self.batches[Self::slot(self.last + 1)];
        next.number() <= self.done && next.jobs() + jobs <= JOBS
    }

    fn submit(&mut self) -> Result<u64, GpuError> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let number = self.last + 1;
        let batch = &mut self.batches[Self::slot(number)];
        if batch.jobs() == 0 {
            return Ok(self.last);
        }
        // SAFETY: there are jobs.
        unsafe { batch.end() }.map_err(|result| self.failed(("vkEndCommandBuffer", result)))?;
        self.start(number).map_err(|result| self.failed(("vkQueueSubmit", result)))?;
        self.batches[Self::slot(number)].submitted(number);
        self.last = number;
        Ok(number)
    }

    fn poll(&mut self) -> Result<u64, GpuError> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        if self.done < self.last {
            let done = self.count().map_err(|error| self.fault(error))?;
            self.complete(done)?;
        }
        Ok(self.done)
    }

    fn wait(&mut self, batch: u64) -> Result<(), GpuError> {
        let batch = batch.min(self.last);
        if self.poll()? < batch {
            self.block(batch).map_err(|error| self.fault(error))?;
            self.complete(batch)?;
        }
        Ok(())
    }
}

impl Drop for VulkanQueue {
    fn drop(&mut self) {
        if self.lost.is_none()
            && self.done < self.last
            && let Err(error) = self.block(self.last)
        {
            tracing::warn!("a queue is dropped while work is under way: {error}");
        }
    }
}

impl std::fmt::Debug for VulkanQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { last, done, .. } = self;
        f.debug_struct("VulkanQueue")
            .field("last", last)
            .field("done", done)
            .finish_non_exhaustive()
    }
}
