//! One command buffer and what its jobs need, used again and again.

use crate::buffer::{VulkanBuffer, WORD};
use crate::context::VulkanContext;
use crate::fault;
use crate::pipeline::VulkanKernel;
use ash::vk;
use std::sync::Arc;
use unisono_gpu::{DESTS_MAX, GpuError, Params, SOURCES_MAX, Span};
use vulkano::VulkanObject;
use vulkano::command_buffer::pool::{
    CommandBufferAllocateInfo, CommandPool, CommandPoolCreateFlags, CommandPoolCreateInfo,
};
use vulkano::descriptor_set::layout::DescriptorType;
use vulkano::descriptor_set::pool::{DescriptorPool, DescriptorPoolCreateInfo};
use vulkano::device::Device;
use vulkano::sync::fence::{Fence, FenceCreateInfo};

/// Most jobs of a batch.
pub(crate) const JOBS: usize = 128;
/// Bytes between the parameters of two jobs: no device wants them further apart.
pub(crate) const PARAMS: u64 = 256;
const _: () = assert!(size_of::<Params>() as u64 <= PARAMS);

/// Most buffers of a kernel: parameters, sources, destinations.
const BUFFERS: usize = 1 + SOURCES_MAX + DESTS_MAX;

/// What kernels and copies do to memory.
const WORK: vk::PipelineStageFlags = vk::PipelineStageFlags::from_raw(
    vk::PipelineStageFlags::COMPUTE_SHADER.as_raw() | vk::PipelineStageFlags::TRANSFER.as_raw(),
);
const WRITES: vk::AccessFlags = vk::AccessFlags::from_raw(
    vk::AccessFlags::SHADER_WRITE.as_raw() | vk::AccessFlags::TRANSFER_WRITE.as_raw(),
);
const READS: vk::AccessFlags = vk::AccessFlags::from_raw(
    vk::AccessFlags::SHADER_READ.as_raw() | vk::AccessFlags::TRANSFER_READ.as_raw(),
);

/// Sets that a pool can hold: those of one batch, and as many that wait to be used again.
const SETS: usize = 2 * JOBS;

/// A command buffer, its descriptor sets, and the parameters of its jobs.
pub(crate) struct Batch {
    device: Arc<Device>,
    pool: CommandPool,
    commands: vk::CommandBuffer,
    sets: Sets,
    fence: Fence,
    /// Where the parameters lie, and where the first job's start.
    params: Arc<VulkanBuffer>,
    params_start: u64,
    jobs: usize,
    bound: vk::Pipeline,
    /// The number that it was last submitted as.
    number: u64,
}

/// Descriptor sets, which are kept and used again.
struct Sets {
    pool: DescriptorPool,
    allocated: usize,
    kinds: Vec<Kind>,
}

/// The sets of one layout.
struct Kind {
    layout: vk::DescriptorSetLayout,
    sets: Vec<vk::DescriptorSet>,
    used: usize,
}

impl Batch {
    /// The `index`-th batch of a queue whose parameters lie in `params`.
    pub(crate) fn new(
        context: &VulkanContext,
        params: Arc<VulkanBuffer>,
        index: usize,
    ) -> Result<Self, GpuError> {
        let device = context.vulkano_device().clone();
        let name = context.name();
        let info = CommandPoolCreateInfo {
            flags: CommandPoolCreateFlags::TRANSIENT,
            queue_family_index: context.vulkano_queue().queue_family_index(),
            ..CommandPoolCreateInfo::default()
        };
        let pool = CommandPool::new(device.clone(), info)
            .map_err(|error| fault::wrapped(name, "vkCreateCommandPool", error))?;
        let commands = pool
            .allocate_command_buffers(CommandBufferAllocateInfo::default())
            .map_err(|error| fault::wrapped(name, "vkAllocateCommandBuffers", error))?
            .next()
            .map_or(vk::CommandBuffer::null(), |commands| commands.handle());
        let fence = Fence::new(device.clone(), FenceCreateInfo::default())
            .map_err(|error| fault::wrapped(name, "vkCreateFence", error))?;
        Ok(Self {
            sets: Sets::new(&device, name)?,
            device,
            pool,
            commands,
            fence,
            params,
            params_start: (index * JOBS) as u64 * PARAMS,
            jobs: 0,
            bound: vk::Pipeline::null(),
            number: 0,
        })
    }

    /// Jobs that are recorded.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs
    }

    /// The number that it was last submitted as.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its fence, for devices without timeline semaphores.
    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    /// What to submit.
    pub(crate) fn commands(&self) -> vk::CommandBuffer {
        self.commands
    }

    /// It was submitted as batch `number`.
    pub(crate) fn submitted(&mut self, number: u64) {
        self.number = number;
    }

    /// Makes room for a job; the first one begins the recording.
    ///
    /// # Safety
    /// The batch is not under way.
    unsafe fn begin(&mut self) -> Result<(), (&'static str, vk::Result)> {
        if self.jobs > 0 {
            return Ok(());
        }
        let fns = self.device.fns();
        let handle = self.device.handle();
        let (reset, flags) = (fns.v1_0.reset_command_pool, vk::CommandPoolResetFlags::empty());
        // SAFETY: the batch is not under way.
        unsafe { reset(handle, self.pool.handle(), flags) }
            .result()
            .map_err(|result| ("vkResetCommandPool", result))?;
        // SAFETY: as above.
        unsafe { self.sets.rewind(&self.device) }?;
        let info = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the command buffer has just been reset.
        unsafe { (fns.v1_0.begin_command_buffer)(self.commands, &info) }
            .result()
            .map_err(|result| ("vkBeginCommandBuffer", result))?;
        self.bound = vk::Pipeline::null();
        // Earlier batches, whoever's on this queue, are done with memory before this one begins;
        // what the host has written is visible by the submission itself.
        // SAFETY: the command buffer is being recorded.
        unsafe { self.barrier(WORK, WRITES, WORK, READS | WRITES) };
        Ok(())
    }

    /// Ends the recording: what follows is another batch.
    ///
    /// # Safety
    /// There are jobs in it.
    pub(crate) unsafe fn end(&mut self) -> Result<(), vk::Result> {
        self.jobs = 0;
        let host = vk::AccessFlags::HOST_READ | vk::AccessFlags::HOST_WRITE;
        // SAFETY: the command buffer is being recorded.
        unsafe { self.barrier(WORK, WRITES, vk::PipelineStageFlags::HOST, host) };
        // SAFETY: as above.
        unsafe { (self.device.fns().v1_0.end_command_buffer)(self.commands) }.result()
    }

    /// Orders memory accesses.
    ///
    /// # Safety
    /// The command buffer is being recorded.
    unsafe fn barrier(
        &self,
        from: vk::PipelineStageFlags,
        written: vk::AccessFlags,
        to: vk::PipelineStageFlags,
        used: vk::AccessFlags,
    ) {
        let memory = vk::MemoryBarrier::default().src_access_mask(written).dst_access_mask(used);
        let (none, flags) = (std::ptr::null(), vk::DependencyFlags::empty());
        let barrier = self.device.fns().v1_0.cmd_pipeline_barrier;
        // SAFETY: one memory barrier, no others, and the command buffer is being recorded.
        unsafe {
            barrier(self.commands, from, to, flags, 1, &memory, 0, none, 0, none.cast());
        }
    }

    /// Adds a kernel. Fails without a change to the jobs.
    ///
    /// # Safety
    /// As for [`unisono_gpu::Queue::dispatch`]; the batch is not under way and not full.
    pub(crate) unsafe fn dispatch(
        &mut self,
        kernel: &VulkanKernel,
        params: &Params,
        spans: &[Span<'_, VulkanBuffer>],
        groups: [u32; 2],
    ) -> Result<(), (&'static str, vk::Result)> {
        // SAFETY: the caller's promise.
        unsafe { self.begin() }?;
        let set = self
            .sets
            .next(&self.device, kernel.set_layout())
            .map_err(|result| ("vkAllocateDescriptorSets", result))?;
        let start = self.params_start + self.jobs as u64 * PARAMS;
        if let Some(mapped) = self.params.mapped() {
            // SAFETY: every batch has room for the parameters of `JOBS` jobs, and this one is not
            // under way.
            unsafe { mapped.add(start as usize).cast::<Params>().write(*params) };
        }
        let fns = &self.device.fns().v1_0;
        let mut infos = [vk::DescriptorBufferInfo::default(); BUFFERS];
        infos[0] = describe(&self.params, start, PARAMS);
        for (info, span) in infos[1..].iter_mut().zip(spans) {
            *info = describe(span.buffer, span.offset, span.bytes);
        }
        // One write runs on from binding to binding.
        let write = vk::WriteDescriptorSet::default()
            .dst_set(set)
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .buffer_info(&infos[..=spans.len()]);
        let none = std::ptr::null();
        let (commands, compute) = (self.commands, vk::PipelineBindPoint::COMPUTE);
        // SAFETY: the set is in no batch under way, and has as many buffers as the kernel has
        // spans, which are valid until the batch is complete; the command buffer is being recorded.
        unsafe {
            (fns.update_descriptor_sets)(self.device.handle(), 1, &write, 0, none);
            if self.bound != kernel.handle() {
                (fns.cmd_bind_pipeline)(commands, compute, kernel.handle());
                self.bound = kernel.handle();
            }
            let bind = fns.cmd_bind_descriptor_sets;
            bind(commands, compute, kernel.layout(), 0, 1, &set, 0, none.cast());
            (fns.cmd_dispatch)(commands, groups[0], groups[1], 1);
        }
        self.jobs += 1;
        Ok(())
    }

    /// Adds a copy.
    ///
    /// # Safety
    /// As for [`unisono_gpu::Queue::copy`]; the batch is not under way and not full.
    pub(crate) unsafe fn copy(
        &mut self,
        from: &Span<'_, VulkanBuffer>,
        to: &Span<'_, VulkanBuffer>,
    ) -> Result<(), (&'static str, vk::Result)> {
        // SAFETY: the caller's promise.
        unsafe { self.begin() }?;
        let region = vk::BufferCopy {
            src_offset: from.buffer.base() + from.offset,
            dst_offset: to.buffer.base() + to.offset,
            size: from.bytes,
        };
        let (from, to) = (from.buffer.handle(), to.buffer.handle());
        let copy = self.device.fns().v1_0.cmd_copy_buffer;
        // SAFETY: both spans are valid until the batch is complete; the command buffer is being
        // recorded.
        unsafe { copy(self.commands, from, to, 1, &region) };
        self.jobs += 1;
        Ok(())
    }
}

/// A span as a kernel's argument, to the end of its last word.
fn describe(buffer: &VulkanBuffer, offset: u64, bytes: u64) -> vk::DescriptorBufferInfo {
    vk::DescriptorBufferInfo {
        buffer: buffer.handle(),
        offset: buffer.base() + offset,
        range: bytes.max(1).next_multiple_of(WORD),
    }
}

impl Sets {
    fn new(device: &Arc<Device>, name: &str) -> Result<Self, GpuError> {
        let info = DescriptorPoolCreateInfo {
            max_sets: SETS as u32,
            pool_sizes: [(DescriptorType::StorageBuffer, (SETS * BUFFERS) as u32)]
                .into_iter()
                .collect(),
            ..DescriptorPoolCreateInfo::default()
        };
        let pool = DescriptorPool::new(device.clone(), info)
            .map_err(|error| fault::wrapped(name, "vkCreateDescriptorPool", error))?;
        Ok(Self { pool, allocated: 0, kinds: Vec::new() })
    }

    /// All sets can be used again.
    ///
    /// # Safety
    /// None is in a batch under way.
    unsafe fn rewind(&mut self, device: &Device) -> Result<(), (&'static str, vk::Result)> {
        for kind in &mut self.kinds {
            kind.used = 0;
        }
        if self.allocated + JOBS > SETS {
            // The next batch might not find enough sets of its own kinds.
            self.kinds.clear();
            self.allocated = 0;
            let (reset, flags) =
                (device.fns().v1_0.reset_descriptor_pool, vk::DescriptorPoolResetFlags::empty());
            // SAFETY: no set is in use.
            unsafe { reset(device.handle(), self.pool.handle(), flags) }
                .result()
                .map_err(|result| ("vkResetDescriptorPool", result))?;
        }
        Ok(())
    }

    /// A set that this batch has not used yet.
    fn next(
        &mut self,
        device: &Device,
        layout: vk::DescriptorSetLayout,
    ) -> Result<vk::DescriptorSet, vk::Result> {
        let index = self.kinds.iter().position(|kind| kind.layout == layout).unwrap_or_else(|| {
            self.kinds.push(Kind { layout, sets: Vec::new(), used: 0 });
            self.kinds.len() - 1
        });
        let kind = &mut self.kinds[index];
        if kind.used == kind.sets.len() {
            let info = vk::DescriptorSetAllocateInfo::default()
                .descriptor_pool(self.pool.handle())
                .set_layouts(std::slice::from_ref(&layout));
            let mut set = vk::DescriptorSet::null();
            let allocate = device.fns().v1_0.allocate_descriptor_sets;
            // SAFETY: one layout, room for one set, and the pool is used by this queue alone.
            unsafe { allocate(device.handle(), &info, &mut set) }.result()?;
            kind.sets.push(set);
            self.allocated += 1;
        }
        kind.used += 1;
        Ok(kind.sets[kind.used - 1])
    }
}
