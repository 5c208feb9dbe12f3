//! Work: jobs are enqueued as they come, and flushed as a batch.

use crate::buffer::{Buffer, Handle};
use crate::context::OpenCl;
use crate::owned::{ClEvent, ClQueue, Owned};
use crate::program::{Inner, Kernel};
use opencl3::command_queue::{
    enqueue_barrier_with_wait_list, enqueue_copy_buffer, enqueue_nd_range_kernel,
    enqueue_read_buffer, enqueue_svm_mem_cpy, enqueue_write_buffer, finish, flush,
};
use opencl3::event::wait_for_events;
use opencl3::event::{CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS, get_event_info};
use opencl3::kernel::{set_kernel_arg, set_kernel_arg_svm_pointer};
use opencl3::types::{CL_FALSE, cl_command_queue, cl_event, cl_kernel};
use std::collections::VecDeque;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use unisono_gpu::{GpuError, Params, Queue, Span, Variant};

/// Most jobs in a batch.
const JOBS_MAX: usize = 128;
/// Most batches under way.
const BATCHES_MAX: usize = 64;

/// The events of a batch's jobs; the last one completes when all have.
type Batch = Vec<Owned<ClEvent>>;

/// One command queue.
///
/// The device may run the jobs of a batch at the same time where it can; a barrier ends the batch.
/// Elsewhere the jobs run in order.
#[derive(Debug)]
pub struct OpenClQueue {
    cl: Arc<OpenCl>,
    queue: Owned<ClQueue>,
    /// Tells the kernels of this queue from others'.
    number: u64,
    /// What is recorded.
    batch: Batch,
    running: VecDeque<Batch>,
    /// Batches for reuse.
    spare: Vec<Batch>,
    started: u64,
    complete: u64,
    lost: Option<GpuError>,
}

impl OpenClQueue {
    pub(crate) fn new(cl: Arc<OpenCl>) -> Result<Self, GpuError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let queue = cl.new_queue()?;
        Ok(Self {
            cl,
            queue,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            batch: Vec::with_capacity(JOBS_MAX + 1),
            running: VecDeque::with_capacity(BATCHES_MAX),
            spare: Vec::with_capacity(BATCHES_MAX),
            started: 0,
            complete: 0,
            lost: None,
        })
    }

    /// The command queue, for work of the caller that has to come between the group's.
    #[must_use]
    pub const fn raw(&self) -> cl_command_queue {
        self.queue.get()
    }

    /// Takes the event of a job.
    fn job(&mut self, call: &'static str, event: Result<cl_event, i32>) -> Result<(), GpuError> {
        let event = event.map_err(|code| self.cl.name().failed(call, code))?;
        // SAFETY: the call gave the reference away.
        self.batch.push(unsafe { Owned::new(event) });
        Ok(())
    }

    /// What every call asks first.
    fn check(&self) -> Result<(), GpuError> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        if self.batch.len() < JOBS_MAX { Ok(()) } else { Err(GpuError::Busy) }
    }

    /// Sets the arguments: the parameters, then each span's buffer and offset.
    fn set_arguments(
        &self,
        kernel: cl_kernel,
        params: &Params,
        spans: &[Span<'_, Buffer>],
    ) -> Result<(), GpuError> {
        let name = self.cl.name();
        let failed = |code| name.failed("clSetKernelArg", code);
        let bytes = params.as_bytes();
        // SAFETY: the first argument is as long as that; the call copies it.
        unsafe { set_kernel_arg(kernel, 0, bytes.len(), bytes.as_ptr().cast()) }.map_err(failed)?;
        let mut index = 1;
        for span in spans {
            span.buffer.check(span.offset, span.bytes, name)?;
            let set = match span.buffer.kernel_handle() {
                // SAFETY: the argument is a pointer, the address is of shared virtual memory.
                Some(Handle::Address(start)) => unsafe {
                    set_kernel_arg_svm_pointer(kernel, index, start.as_ptr().cast_const().cast())
                },
                // SAFETY: the argument is a pointer, which a buffer is given for.
                Some(Handle::Object(mem)) => unsafe {
                    set_kernel_arg(kernel, index, size_of_val(&mem), (&raw const mem).cast())
                },
                None => {
                    return Err(GpuError::Address {
                        device: name.name(),
                        start: span.buffer.mapped().map_or(0, |start| start.as_ptr().addr()),
                        bytes: span.bytes,
                        text: "pinned memory is for copies only on this device",
                    });
                }
            };
            set.map_err(failed)?;
            let offset = span.offset;
            // SAFETY: the argument is a `ulong`; the call copies it.
            unsafe {
                set_kernel_arg(kernel, index + 1, size_of::<u64>(), (&raw const offset).cast())
            }
            .map_err(failed)?;
            index += 2;
        }
        Ok(())
    }

    /// A copy between two places of host memory, on a device that copies only from and to its own.
    fn bounce(&mut self, from: *const u8, to: *mut u8, bytes: usize) -> Result<(), GpuError> {
        let object = self.cl.object(0, bytes as u64, null_mut())?;
        let (queue, mem) = (self.queue.get(), object.get());
        // SAFETY: the caller keeps the source until the batch is complete. The queue keeps the
        // object until its commands are.
        let event =
            unsafe { enqueue_write_buffer(queue, mem, CL_FALSE, 0, bytes, from.cast(), 0, null()) };
        self.job("clEnqueueWriteBuffer", event)?;
        let written = self.batch.last().map_or(null_mut(), Owned::get);
        // SAFETY: as above, for the destination.
        let event = unsafe {
            enqueue_read_buffer(queue, mem, CL_FALSE, 0, bytes, to.cast(), 1, &raw const written)
        };
        self.job("clEnqueueReadBuffer", event)
    }

    /// Has the oldest batch ended? `Some` with a code if one of its jobs failed.
    fn ended(batch: &Batch) -> Result<bool, i32> {
        let status = |event: &Owned<ClEvent>| {
            get_event_info(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS).map(i32::from)
        };
        let Some(last) = batch.last() else { return Ok(true) };
        match status(last)? {
            CL_COMPLETE => {}
            code if code < 0 => return Err(code),
            _ => return Ok(false),
        }
        // The status alone does not promise that memory is up to date; a wait does.
        wait_for_events(&[last.get()])?;
        for event in batch {
            match status(event)? {
                code if code < 0 => return Err(code),
                _ => {}
            }
        }
        Ok(true)
    }

    /// No batch will complete any more.
    fn lose(&mut self, code: i32) -> GpuError {
        let text = format!("a job failed: {}", self.cl.name().text(code));
        let lost = GpuError::Lost { device: self.cl.name().name(), text };
        // Whatever still runs uses memory that the caller is about to free.
        let _ = finish(self.queue.get());
        self.batch.clear();
        self.running.clear();
        self.lost = Some(lost.clone());
        lost
    }
}

impl Queue for OpenClQueue {
    type Buffer = Buffer;
    type Kernel = Kernel;

    fn compile(&mut self, variant: &Variant) -> Result<Kernel, GpuError> {
        self.cl.programs().kernel(&self.cl, variant, self.number)
    }

    unsafe fn dispatch(
        &mut self,
        kernel: &Kernel,
        params: &Params,
        spans: &[Span<'_, Buffer>],
        groups: [u32; 2],
    ) -> Result<(), GpuError> {
        self.check()?;
        let Inner { kernel, queue, spans: expected, group_size } = &*kernel.0;
        if *queue != self.number || *expected != spans.len() {
            return Err(GpuError::Driver {
                device: self.cl.name().name(),
                call: "dispatch",
                text: "the kernel was compiled for another queue or other spans".to_owned(),
            });
        }
        self.set_arguments(kernel.get(), params, spans)?;
        let local = [*group_size, 1];
        let global = [groups[0] as usize * group_size, groups[1] as usize];
        // SAFETY: sizes and arguments are those of the kernel; the caller keeps the spans.
        let event = unsafe {
            let (queue, kernel) = (self.queue.get(), kernel.get());
            let (global, local) = (global.as_ptr(), local.as_ptr());
            enqueue_nd_range_kernel(queue, kernel, 2, null(), global, local, 0, null())
        };
        self.job("clEnqueueNDRangeKernel", event)
    }

    unsafe fn copy(
        &mut self,
        from: Span<'_, Buffer>,
        to: Span<'_, Buffer>,
    ) -> Result<(), GpuError> {
        self.check()?;
        for span in [&from, &to] {
            span.buffer.check(span.offset, from.bytes, self.cl.name())?;
        }
        if from.bytes == 0 {
            return Ok(());
        }
        let (queue, bytes) = (self.queue.get(), from.bytes as usize);
        let (at, to_at) = (from.offset as usize, to.offset as usize);
        // SAFETY, of all four calls: both spans lie in their buffers, and the caller keeps them.
        match (from.buffer.handle(), to.buffer.handle()) {
            (Handle::Object(from), Handle::Object(to)) => {
                // SAFETY: as above.
                let event =
                    unsafe { enqueue_copy_buffer(queue, from, to, at, to_at, bytes, 0, null()) };
                self.job("clEnqueueCopyBuffer", event)
            }
            (Handle::Address(from), Handle::Object(to)) => {
                // SAFETY: as above.
                let event = unsafe {
                    let from = from.as_ptr().add(at).cast();
                    enqueue_write_buffer(queue, to, CL_FALSE, to_at, bytes, from, 0, null())
                };
                self.job("clEnqueueWriteBuffer", event)
            }
            (Handle::Object(from), Handle::Address(to)) => {
                // SAFETY: as above.
                let event = unsafe {
                    let to = to.as_ptr().add(to_at).cast();
                    enqueue_read_buffer(queue, from, CL_FALSE, at, bytes, to, 0, null())
                };
                self.job("clEnqueueReadBuffer", event)
            }
            (Handle::Address(from), Handle::Address(to)) => {
                // SAFETY: as above.
                let (from, to) = unsafe { (from.as_ptr().add(at), to.as_ptr().add(to_at)) };
                if !self.cl.abilities().shared {
                    return self.bounce(from, to, bytes);
                }
                // SAFETY: as above.
                let event = unsafe {
                    enqueue_svm_mem_cpy(queue, CL_FALSE, to.cast(), from.cast(), bytes, 0, null())
                };
                self.job("clEnqueueSVMMemcpy", event)
            }
        }
    }

    fn has_room(&self, jobs: usize) -> bool {
        // A copy may take two.
        self.batch.len() + 2 * jobs <= JOBS_MAX && self.running.len() < BATCHES_MAX
    }

    fn submit(&mut self) -> Result<u64, GpuError> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        if self.batch.is_empty() {
            return Ok(self.started);
        }
        let queue = self.queue.get();
        if self.cl.abilities().out_of_order {
            // SAFETY: waits for all that came before, and all that comes waits for it.
            let event = unsafe { enqueue_barrier_with_wait_list(queue, 0, null()) };
            match event {
                // SAFETY: the call gave the reference away.
                Ok(event) => self.batch.push(unsafe { Owned::new(event) }),
                Err(code) => return Err(self.lose(code)),
            }
        }
        if let Err(code) = flush(queue) {
            return Err(self.lose(code));
        }
        let next = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(JOBS_MAX + 1));
        self.running.push_back(std::mem::replace(&mut self.batch, next));
        self.started += 1;
        Ok(self.started)
    }

    fn poll(&mut self) -> Result<u64, GpuError> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        while let Some(batch) = self.running.front() {
            match Self::ended(batch) {
                Ok(false) => break,
                Ok(true) => {
                    self.complete += 1;
                    if let Some(mut batch) = self.running.pop_front() {
                        batch.clear();
                        self.spare.push(batch);
                    }
                }
                Err(code) => return Err(self.lose(code)),
            }
        }
        Ok(self.complete)
    }

    fn wait(&mut self, batch: u64) -> Result<(), GpuError> {
        while self.poll()? < batch {
            let Some(last) = self.running.front().and_then(|batch| batch.last()) else {
                return Err(GpuError::Driver {
                    device: self.cl.name().name(),
                    call: "wait",
                    text: format!("batch {batch} was never started"),
                });
            };
            if let Err(code) = wait_for_events(&[last.get()]) {
                return Err(self.lose(code));
            }
        }
        Ok(())
    }
}

impl Drop for OpenClQueue {
    fn drop(&mut self) {
        // Work under way uses memory that may be freed next.
        if !(self.batch.is_empty() && self.running.is_empty()) {
            let _ = finish(self.queue.get());
        }
    }
}
