//! Buffers: allocated, imported from the host, or the caller's.

use crate::context::{GRAIN, VulkanContext};
use crate::fault;
use crate::memory::{HOST, Use};
use ash::vk;
use std::ptr::NonNull;
use std::sync::Arc;
use unisono_gpu::{Context, GpuError};
use vulkano::VulkanObject;
use vulkano::buffer::sys::RawBuffer;
use vulkano::buffer::{Buffer, BufferCreateInfo, BufferMemory, BufferUsage, Subbuffer};
use vulkano::device::{Device, DeviceOwned};
use vulkano::memory::{
    DeviceMemory, ExternalMemoryHandleTypes, MemoryAllocateInfo, MemoryMapInfo,
    MemoryPropertyFlags, ResourceMemory,
};

/// Kernels read whole words of so many bytes.
pub(crate) const WORD: u64 = 4;

/// What kernels and copies ask of a buffer.
fn usage() -> BufferUsage {
    BufferUsage::STORAGE_BUFFER | BufferUsage::TRANSFER_SRC | BufferUsage::TRANSFER_DST
}

/// Memory that the device can reach.
#[derive(Debug)]
pub struct VulkanBuffer {
    handle: vk::Buffer,
    /// Where it starts in the Vulkan buffer.
    base: u64,
    bytes: u64,
    /// Where the host reaches it.
    mapped: Option<NonNull<u8>>,
    owner: Owner,
}

/// What keeps the Vulkan buffer alive.
#[derive(Debug)]
enum Owner {
    Vulkano(Subbuffer<[u8]>),
    // Only dropped.
    #[expect(dead_code, reason = "owns what the buffer is made of")]
    Imported(Imported),
}

// SAFETY: the address is only handed out; who may use the memory behind it is the business of the
// unsafe calls that do so. All else can be shared.
unsafe impl Send for VulkanBuffer {}
// SAFETY: as above.
unsafe impl Sync for VulkanBuffer {}

impl VulkanBuffer {
    /// Allocates.
    pub(crate) fn alloc(
        context: &VulkanContext,
        bytes: u64,
        purpose: Use,
    ) -> Result<Self, GpuError> {
        let most = context.limits().buffer_max;
        let bytes = bytes.max(1);
        if bytes > most {
            return Err(GpuError::OutOfMemory {
                device: context.name().to_owned(),
                bytes,
                text: format!("the device's largest buffer has {most} bytes"),
            });
        }
        let size = bytes.next_multiple_of(GRAIN);
        let device = context.vulkano_device();
        let failed = |call| move |error| fault::wrapped_memory(context.name(), call, size, error);
        let info = BufferCreateInfo { size, usage: usage(), ..BufferCreateInfo::default() };
        let raw = RawBuffer::new(device.clone(), info).map_err(failed("vkCreateBuffer"))?;
        let needs = raw.memory_requirements();
        let kind = context
            .memory_type(needs.memory_type_bits, purpose)
            .ok_or_else(|| context.fault("memory type", vk::Result::ERROR_FEATURE_NOT_PRESENT))?;
        let info = MemoryAllocateInfo {
            allocation_size: needs.layout.size(),
            memory_type_index: kind as u32,
            ..MemoryAllocateInfo::default()
        };
        let mut memory =
            DeviceMemory::allocate(device.clone(), info).map_err(failed("vkAllocateMemory"))?;
        if context.is_mapped(kind, purpose) {
            let all = MemoryMapInfo { size: needs.layout.size(), ..MemoryMapInfo::default() };
            memory.map(all).map_err(failed("vkMapMemory"))?;
        }
        let buffer = raw
            .bind_memory(ResourceMemory::new_dedicated(memory))
            .map_err(|(error, ..)| failed("vkBindBufferMemory")(error))?;
        let subbuffer = Subbuffer::new(Arc::new(buffer));
        let mapped = subbuffer.mapped_slice().ok().map(NonNull::cast);
        Ok(Self::of(subbuffer, mapped))
    }

    /// Takes the caller's.
    pub(crate) fn adopt(
        context: &VulkanContext,
        subbuffer: Subbuffer<[u8]>,
    ) -> Result<Self, GpuError> {
        let refuse = |text| GpuError::Address {
            device: context.name().to_owned(),
            start: subbuffer.offset() as usize,
            bytes: subbuffer.size(),
            text,
        };
        let buffer = subbuffer.buffer();
        if buffer.device() != context.vulkano_device() {
            return Err(refuse("the buffer is another device's"));
        }
        if !buffer.usage().contains(usage()) {
            return Err(refuse(
                "the buffer needs the usages STORAGE_BUFFER, TRANSFER_SRC and TRANSFER_DST",
            ));
        }
        if !subbuffer.offset().is_multiple_of(context.limits().span_align) {
            return Err(refuse("it starts at no multiple of minStorageBufferOffsetAlignment"));
        }
        let end = subbuffer.offset() + subbuffer.size();
        if end.next_multiple_of(WORD) > buffer.size() {
            return Err(refuse("the buffer must end at a multiple of 4 bytes"));
        }
        let mapped = Self::adopted_address(context, &subbuffer);
        Ok(Self::of(subbuffer, mapped))
    }

    /// Where the host reaches the caller's buffer, at full speed, if it does.
    fn adopted_address(
        context: &VulkanContext,
        subbuffer: &Subbuffer<[u8]>,
    ) -> Option<NonNull<u8>> {
        let BufferMemory::Normal(memory) = subbuffer.buffer().memory() else { return None };
        let kind = memory.device_memory().memory_type_index() as usize;
        let types = &context.vulkano_device().physical_device().memory_properties().memory_types;
        let reachable = context.limits().unified && types[kind].property_flags.contains(HOST);
        subbuffer.mapped_slice().ok().filter(|_| reachable).map(NonNull::cast)
    }

    fn of(subbuffer: Subbuffer<[u8]>, mapped: Option<NonNull<u8>>) -> Self {
        let buffer: &Buffer = subbuffer.buffer();
        Self {
            handle: buffer.handle(),
            base: subbuffer.offset(),
            bytes: subbuffer.size(),
            mapped,
            owner: Owner::Vulkano(subbuffer),
        }
    }

    /// Imports memory of the host.
    ///
    /// # Safety
    /// The pages must stay mapped until the buffer is dropped.
    pub(crate) unsafe fn import(
        context: &VulkanContext,
        start: NonNull<u8>,
        bytes: u64,
    ) -> Result<Self, GpuError> {
        // Drivers take unaligned memory without a word, and then reach something else.
        let refuse = |text| GpuError::Address {
            device: context.name().to_owned(),
            start: start.as_ptr() as usize,
            bytes,
            text,
        };
        let Some(align) = context.limits().import_align else {
            return Err(refuse("it does not import host memory (VK_EXT_external_memory_host)"));
        };
        let aligned = |n: u64| n.is_multiple_of(align);
        if !aligned(start.as_ptr() as u64) || !aligned(bytes) || bytes == 0 {
            return Err(refuse("imported memory starts and ends at multiples of import_align"));
        }
        // SAFETY: the caller keeps the pages.
        let imported = unsafe { Imported::new(context, start, bytes) }?;
        Ok(Self {
            handle: imported.raw.handle(),
            base: 0,
            bytes,
            mapped: Some(start),
            owner: Owner::Imported(imported),
        })
    }

    /// The Vulkan buffer.
    pub(crate) fn handle(&self) -> vk::Buffer {
        self.handle
    }

    /// Where it starts in the Vulkan buffer.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the host reaches it, if it does.
    #[must_use]
    pub fn mapped(&self) -> Option<NonNull<u8>> {
        self.mapped
    }

    /// vulkano's buffer, for kernels of the caller's own; `None` for imported memory.
    #[must_use]
    pub fn subbuffer(&self) -> Option<&Subbuffer<[u8]>> {
        match &self.owner {
            Owner::Vulkano(subbuffer) => Some(subbuffer),
            Owner::Imported(_) => None,
        }
    }
}

/// Imported memory. vulkano cannot import host memory, and counts what it has allocated, so that
/// memory that it has not cannot be handed to it.
#[derive(Debug)]
struct Imported {
    // Dropped first: a buffer goes before its memory.
    raw: RawBuffer,
    #[expect(dead_code, reason = "owns what the buffer is made of")]
    memory: HostMemory,
}

/// Freed when it is dropped.
#[derive(Debug)]
struct HostMemory {
    handle: vk::DeviceMemory,
    device: Arc<Device>,
}

impl Imported {
    /// # Safety
    /// The pages must stay mapped until it is dropped.
    unsafe fn new(
        context: &VulkanContext,
        start: NonNull<u8>,
        bytes: u64,
    ) -> Result<Self, GpuError> {
        let device = context.vulkano_device();
        let fns = device.fns();
        let failed = |call| move |result| fault::raw_memory(context.name(), call, bytes, result);
        let from = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;
        let pointer = start.as_ptr().cast();
        let mut host = vk::MemoryHostPointerPropertiesEXT::default();
        let query = fns.ext_external_memory_host.get_memory_host_pointer_properties_ext;
        // SAFETY: the extension is on; the pointer is aligned and its pages are mapped.
        unsafe { query(device.handle(), from, pointer, &mut host) }
            .result()
            .map_err(failed("vkGetMemoryHostPointerPropertiesEXT"))?;
        let info = BufferCreateInfo {
            size: bytes,
            usage: usage(),
            external_memory_handle_types: ExternalMemoryHandleTypes::HOST_ALLOCATION,
            ..BufferCreateInfo::default()
        };
        let raw = RawBuffer::new(device.clone(), info).map_err(|error| {
            fault::wrapped_memory(context.name(), "vkCreateBuffer", bytes, error)
        })?;
        let needs = raw.memory_requirements();
        let kind = Self::memory_type(device, needs.memory_type_bits & host.memory_type_bits)
            .filter(|_| needs.layout.size() <= bytes)
            .ok_or_else(|| context.fault("import", vk::Result::ERROR_FEATURE_NOT_PRESENT))?;
        // SAFETY: the caller keeps the pages, which `host` says can be imported as this type.
        let memory = unsafe { HostMemory::new(context, start, bytes, kind) }?;
        let bind = fns.v1_0.bind_buffer_memory;
        // SAFETY: both are this device's, the buffer is not bound yet, and the memory is as large.
        unsafe { bind(device.handle(), raw.handle(), memory.handle, 0) }
            .result()
            .map_err(failed("vkBindBufferMemory"))?;
        Ok(Self { raw, memory })
    }

    /// A type that the host sees without flushes, cached if possible.
    fn memory_type(device: &Device, allowed: u32) -> Option<u32> {
        let types = &device.physical_device().memory_properties().memory_types;
        let find = |flags: MemoryPropertyFlags| {
            let fits =
                |i: &usize| allowed & (1 << i) != 0 && types[*i].property_flags.contains(flags);
            (0..types.len()).find(fits).map(|i| i as u32)
        };
        let coherent = MemoryPropertyFlags::HOST_VISIBLE | MemoryPropertyFlags::HOST_COHERENT;
        find(HOST).or_else(|| find(coherent))
    }
}

impl HostMemory {
    /// # Safety
    /// The pages must be mapped until it is dropped; the type is one that they can be imported as.
    unsafe fn new(
        context: &VulkanContext,
        start: NonNull<u8>,
        bytes: u64,
        kind: u32,
    ) -> Result<Self, GpuError> {
        let device = context.vulkano_device();
        let mut import = vk::ImportMemoryHostPointerInfoEXT::default()
            .handle_type(vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT)
            .host_pointer(start.as_ptr().cast());
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(bytes)
            .memory_type_index(kind)
            .push_next(&mut import);
        let mut handle = vk::DeviceMemory::null();
        let allocate = device.fns().v1_0.allocate_memory;
        // SAFETY: the pages stay mapped, and all structures live until the call returns.
        unsafe { allocate(device.handle(), &info, std::ptr::null(), &mut handle) }
            .result()
            .map_err(|result| {
                fault::raw_memory(context.name(), "vkAllocateMemory", bytes, result)
            })?;
        Ok(Self { handle, device: device.clone() })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        let free = self.device.fns().v1_0.free_memory;
        // SAFETY: this device's memory; the only buffer that was bound to it is gone.
        unsafe { free(self.device.handle(), self.handle, std::ptr::null()) };
    }
}
