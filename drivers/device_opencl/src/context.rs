//! One device, opened.

use crate::buffer::{Allocation, Buffer, Mapped, Memory};
use crate::card::{Abilities, PAGE, abilities, card, limits};
use crate::discover::{Found, find};
use crate::error::{Device, remark};
use crate::options::Options;
use crate::owned::{ClBuffer, ClContext, ClEvent, ClQueue, Owned};
use crate::program::Programs;
use crate::queue::OpenClQueue;
use crate::zero_copy;
use opencl3::command_queue::{
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, create_command_queue, enqueue_map_buffer,
};
use opencl3::context::context::{CL_CONTEXT_PLATFORM, create_context};
use opencl3::device::Device as DeviceId;
use opencl3::memory::{
    CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_CONTEXT, CL_MEM_FLAGS,
    CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, CL_MEM_SIZE, CL_MEM_SVM_FINE_GRAIN_BUFFER,
    CL_MEM_USE_HOST_PTR, CL_MEM_WRITE_ONLY, ClMem, create_buffer, get_mem_object_info, svm_alloc,
};
use opencl3::types::{CL_TRUE, cl_context};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;
use unisono_gpu::{Card, Context, GpuError, Limits, Place};

/// One OpenCL device, opened.
#[derive(Debug)]
pub struct OpenCl {
    context: Arc<Owned<ClContext>>,
    id: DeviceId,
    name: Arc<Device>,
    card: Card,
    limits: Limits,
    abilities: Abilities,
    /// For mapping pinned memory.
    service: Arc<Owned<ClQueue>>,
    programs: Programs,
}

impl OpenCl {
    /// Opens a device by its index in [`crate::devices`].
    ///
    /// # Errors
    /// [`GpuError::Missing`], [`GpuError::NoDevice`], or what the driver says.
    pub fn open(index: usize, options: &Options) -> Result<Arc<Self>, GpuError> {
        let found = find()?;
        let Some(Found { device, card }) = found.get(index) else {
            let there = found.iter().map(|found| found.card.name.as_str());
            let there = there.enumerate().map(|(i, name)| format!("{i}: {name}"));
            return Err(GpuError::NoDevice {
                api: "OpenCL",
                wanted: index.to_string(),
                there: there.collect::<Vec<_>>().join(", "),
            });
        };
        let name = Arc::new(Device::new(&card.name));
        let platform = device.platform().map_err(|e| name.failed("clGetDeviceInfo", e.0))?;
        let properties = [CL_CONTEXT_PLATFORM, platform as isize, 0];
        let raw =
            create_context(&[device.id()], properties.as_ptr(), Some(remark), name.user_data())
                .map_err(|code| name.failed("clCreateContext", code))?;
        // SAFETY: the call gave the reference away.
        let context = unsafe { Owned::new(raw) };
        Self::new(context, *device, name, card.clone(), options)
    }

    /// A device in a context that the caller already has, so that buffers and kernels of the
    /// caller and of the group are for each other.
    ///
    /// # Errors
    /// [`GpuError::NoDevice`] if the device is not of the context, or what the driver says.
    pub fn from_context(
        context: &opencl3::context::Context,
        device: &DeviceId,
        options: &Options,
    ) -> Result<Arc<Self>, GpuError> {
        let found = find()?;
        let known = found.iter().position(|found| found.device.id() == device.id());
        // Part of a device is in no list.
        let index = known.unwrap_or(found.len());
        let card = known
            .map_or_else(|| card(device, index, "part of a device,"), |i| found[i].card.clone());
        if !context.devices().contains(&device.id()) {
            return Err(GpuError::NoDevice {
                api: "OpenCL",
                wanted: card.name,
                there: format!("{} others in the context given", context.devices().len()),
            });
        }
        let name = Arc::new(Device::new(&card.name));
        // SAFETY: the caller's reference keeps it alive for now.
        let context = unsafe { Owned::share(context.get()) }
            .map_err(|code| name.failed("clRetainContext", code))?;
        Self::new(context, *device, name, card, options)
    }

    fn new(
        context: Owned<ClContext>,
        id: DeviceId,
        name: Arc<Device>,
        card: Card,
        options: &Options,
    ) -> Result<Arc<Self>, GpuError> {
        let context = Arc::new(context);
        let service = new_queue(&context, &id, &name, false)?;
        let mut limits = limits(&id, options);
        if limits.unified && !zero_copy::works(context.get(), service.get()) {
            tracing::warn!(target: "unisono::opencl", "{} copies imported memory", card.name);
            (limits.unified, limits.import_align) = (false, None);
        }
        Ok(Arc::new(Self {
            context,
            id,
            name,
            card,
            limits,
            abilities: abilities(&id, options),
            service: Arc::new(service),
            programs: Programs::default(),
        }))
    }

    /// The context, for buffers and kernels of the caller; it lives as long as this does.
    #[must_use]
    pub fn raw(&self) -> cl_context {
        self.context.get()
    }

    /// The device.
    #[must_use]
    pub const fn id(&self) -> &DeviceId {
        &self.id
    }

    /// The context as `opencl3` has it, for buffers and kernels of the caller.
    ///
    /// # Errors
    /// What the driver says.
    pub fn context(&self) -> Result<opencl3::context::Context, GpuError> {
        // SAFETY: the context is alive.
        let shared = unsafe { Owned::<ClContext>::share(self.raw()) }
            .map_err(|code| self.name.failed("clRetainContext", code))?;
        let raw = shared.get();
        // The reference now belongs to what is returned.
        std::mem::forget(shared);
        Ok(opencl3::context::Context::new(raw, &[self.id.id()]))
    }

    /// Takes in a buffer of the caller, who may drop theirs. What the caller's kernels write to it
    /// must be complete before a group reads it, and the other way round.
    ///
    /// # Errors
    /// [`GpuError::Address`] if the buffer is of another context, or what the driver says.
    pub fn adopt<T>(&self, buffer: &opencl3::memory::Buffer<T>) -> Result<Buffer, GpuError> {
        let mem = buffer.get();
        let info = |query| {
            let info = get_mem_object_info(mem, query);
            info.map_err(|code| self.name.failed("clGetMemObjectInfo", code))
        };
        let bytes = usize::from(info(CL_MEM_SIZE)?) as u64;
        let context = isize::from(info(CL_MEM_CONTEXT)?) as cl_context;
        let (device, start) = (self.name.name(), mem.addr());
        let refuse = |text| Err(GpuError::Address { device, start, bytes, text });
        if context != self.raw() {
            return refuse("the buffer is of another OpenCL context");
        }
        // Drivers take such a buffer for a kernel's argument; what it then does is undefined.
        if u64::from(info(CL_MEM_FLAGS)?) & (CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY) != 0 {
            return refuse("the buffer must be CL_MEM_READ_WRITE");
        }
        // SAFETY: the caller's reference keeps it alive for now.
        let object = unsafe { Owned::share(mem) }
            .map_err(|code| self.name.failed("clRetainMemObject", code))?;
        Ok(Buffer { memory: Memory::Device(object), bytes })
    }

    pub(crate) fn name(&self) -> &Device {
        &self.name
    }

    pub(crate) const fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    pub(crate) const fn programs(&self) -> &Programs {
        &self.programs
    }

    /// A command queue of this context.
    pub(crate) fn new_queue(&self) -> Result<Owned<ClQueue>, GpuError> {
        new_queue(&self.context, &self.id, &self.name, self.abilities.out_of_order)
    }

    /// A buffer object.
    pub(crate) fn object(
        &self,
        flags: u64,
        bytes: u64,
        host: *mut u8,
    ) -> Result<Owned<ClBuffer>, GpuError> {
        let flags = flags | CL_MEM_READ_WRITE;
        // SAFETY: the flags fit the pointer: there is one only with `CL_MEM_USE_HOST_PTR`.
        let mem = unsafe { create_buffer(self.raw(), flags, bytes as usize, host.cast()) };
        let mem = mem.map_err(|code| self.name.no_memory("clCreateBuffer", bytes, code))?;
        // SAFETY: the call gave the reference away.
        Ok(unsafe { Owned::new(mem) })
    }

    /// Shared virtual memory, at a page.
    fn shared(&self, bytes: u64) -> Result<Memory, GpuError> {
        let flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;
        // The call itself aligns to no more than the largest vector.
        let size = (bytes + PAGE) as usize;
        // SAFETY: plain flags; the device has fine-grained shared memory.
        let start = unsafe { svm_alloc(self.raw(), flags, size, 0) };
        let start = start.map_err(|code| self.name.no_memory("clSVMAlloc", bytes, code))?;
        let Some(start) = NonNull::new(start.cast()) else {
            return Err(self.name.no_memory("clSVMAlloc", bytes, 0));
        };
        // SAFETY: allocated above, a page longer than what is used.
        let allocation = unsafe { Allocation::new(self.context.clone(), start, PAGE as usize) };
        Ok(Memory::Shared(allocation))
    }

    /// Host memory that the device copies from and to at full speed, mapped for good.
    fn pinned(&self, bytes: u64) -> Result<Memory, GpuError> {
        let object = self.object(CL_MEM_ALLOC_HOST_PTR, bytes, null_mut())?;
        let mut start = null_mut();
        let flags = CL_MAP_READ | CL_MAP_WRITE;
        let (queue, size) = (self.service.get(), bytes as usize);
        // SAFETY: the queue and the object are of this context; the call blocks.
        let event = unsafe {
            let mem = object.get();
            enqueue_map_buffer(queue, mem, CL_TRUE, flags, 0, size, &mut start, 0, null())
        };
        let event = event.map_err(|code| self.name.no_memory("clEnqueueMapBuffer", bytes, code))?;
        // SAFETY: the call gave the reference away.
        drop(unsafe { Owned::<ClEvent>::new(event) });
        let Some(start) = NonNull::new(start.cast()) else {
            return Err(self.name.failed("clEnqueueMapBuffer", 0));
        };
        Ok(Memory::Pinned(Mapped { object, start, queue: self.service.clone() }))
    }
}

impl Context for OpenCl {
    type Buffer = Buffer;
    type Queue = OpenClQueue;

    fn card(&self) -> &Card {
        &self.card
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc(&self, bytes: u64, place: Place) -> Result<Buffer, GpuError> {
        // Kernels read whole words, and a buffer of nothing is an error.
        let size = bytes.max(1).next_multiple_of(4);
        if size > self.limits.buffer_max {
            let text = format!("a buffer has at most {} bytes", self.limits.buffer_max);
            return Err(GpuError::OutOfMemory { device: self.name.name(), bytes, text });
        }
        let memory = match place {
            // Shared memory is the device's own where that is the host's.
            Place::Device if self.abilities.shared && self.limits.unified => self.shared(size)?,
            Place::Device => Memory::Device(self.object(0, size, null_mut())?),
            Place::Pinned if self.abilities.shared => self.shared(size)?,
            Place::Pinned => self.pinned(size)?,
        };
        Ok(Buffer { memory, bytes })
    }

    unsafe fn import(&self, start: NonNull<u8>, bytes: u64) -> Result<Buffer, GpuError> {
        let refuse = |text| {
            let (device, start) = (self.name.name(), start.as_ptr().addr());
            Err(GpuError::Address { device, start, bytes, text })
        };
        let Some(align) = self.limits.import_align else {
            return refuse("this device does not import memory");
        };
        if !(start.as_ptr().addr() as u64 | bytes).is_multiple_of(align) || bytes == 0 {
            return refuse("imported memory has to start and end at a page");
        }
        if bytes > self.limits.buffer_max {
            return refuse("it is longer than the largest buffer");
        }
        let object = self.object(CL_MEM_USE_HOST_PTR, bytes, start.as_ptr())?;
        Ok(Buffer { memory: Memory::Imported(object, start), bytes })
    }

    fn mapped(&self, buffer: &Buffer) -> Option<NonNull<u8>> {
        buffer.mapped()
    }

    fn bytes(&self, buffer: &Buffer) -> u64 {
        buffer.bytes
    }

    fn queue(self: Arc<Self>) -> Result<OpenClQueue, GpuError> {
        OpenClQueue::new(self)
    }
}

/// The old call: drivers before OpenCL 2.0 have no other, and it does all that is needed.
fn new_queue(
    context: &Owned<ClContext>,
    device: &DeviceId,
    name: &Device,
    out_of_order: bool,
) -> Result<Owned<ClQueue>, GpuError> {
    let flags = if out_of_order { CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE } else { 0 };
    // SAFETY: the device has what the flags ask for.
    let queue = unsafe { create_command_queue(context.get(), device.id(), flags) };
    let queue = queue.map_err(|code| name.failed("clCreateCommandQueue", code))?;
    // SAFETY: the call gave the reference away.
    Ok(unsafe { Owned::new(queue) })
}
