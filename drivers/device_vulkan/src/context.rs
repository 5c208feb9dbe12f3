//! An opened device.

use crate::buffer::VulkanBuffer;
use crate::card;
use crate::fault;
use crate::loader;
use crate::memory::{self, HOST, Use};
use crate::options::Options;
use crate::pipeline::Pipelines;
use crate::queue::VulkanQueue;
use ash::vk;
use std::ptr::NonNull;
use std::sync::Arc;
use unisono_gpu::kernel::SPAN_MAX;
use unisono_gpu::{Arithmetic, Card, CardType, Context, GpuError, Limits, Place};
use vulkano::VulkanObject;
use vulkano::buffer::Subbuffer;
use vulkano::device::physical::PhysicalDevice;
use vulkano::device::{
    Device, DeviceCreateInfo, DeviceExtensions, DeviceFeatures, Queue, QueueCreateInfo, QueueFlags,
};
use vulkano::instance::debug::DebugUtilsMessenger;
use vulkano::{Version, VulkanError};

/// Buffers are multiples of this many bytes, so that whole words can be read at their end.
pub(crate) const GRAIN: u64 = 256;

/// What Vulkan devices are there, in the loader's order.
///
/// # Errors
/// [`GpuError::Missing`] if there is no loader, no driver or no device, with how to get them.
pub fn devices() -> Result<Vec<Card>, GpuError> {
    let devices = loader::devices(&loader::instance(None)?)?;
    Ok(devices.iter().enumerate().map(|(index, device)| card::card(device, index)).collect())
}

/// A device that was opened through Vulkan.
pub struct VulkanContext {
    queue: Arc<Queue>,
    card: Card,
    name: String,
    limits: Limits,
    timeline: bool,
    pipelines: Pipelines,
    /// Listens until the device is gone, so it is the last to go.
    _listener: Option<DebugUtilsMessenger>,
}

impl VulkanContext {
    /// Opens the device at `index` of [`devices`], with a device and a queue of its own.
    ///
    /// # Errors
    /// [`GpuError::Missing`], [`GpuError::NoDevice`], or what the driver says.
    pub fn open(index: usize, options: &Options) -> Result<Arc<Self>, GpuError> {
        let instance = loader::instance(options.validate.as_ref())?;
        let listener = options.validate.as_ref().map(|to| loader::listen(&instance, to));
        let listener = listener.transpose()?;
        let devices = loader::devices(&instance)?;
        let Some(physical) = devices.get(index) else {
            let names = devices.iter().enumerate();
            let names = names.map(|(i, d)| format!("{i}: {}", d.properties().device_name));
            return Err(GpuError::NoDevice {
                api: "Vulkan",
                wanted: index.to_string(),
                there: names.collect::<Vec<_>>().join(", "),
            });
        };
        let name = name(&card::card(physical, index));
        let failed = |error| fault::wrapped(&name, "vkCreateDevice", error);
        let unknown = |_| fault::wrapped(&name, "queue family", VulkanError::FeatureNotPresent);
        let family = loader::queue_family(physical).ok_or(()).map_err(unknown)?;
        let (_, mut queues) = Device::new(physical.clone(), create_info(physical, family, options))
            .map_err(failed)?;
        let queue = queues.next().ok_or(()).map_err(unknown)?;
        Self::with(queue, index, options, listener)
    }

    /// Joins in on a device and a queue that the caller has: buffers of this device can be adopted
    /// ([`Self::adopt`]), and the caller's own submissions to the queue and the group's follow one
    /// another. Only those features are used that the device was created with.
    ///
    /// # Errors
    /// If the queue does not compute, or what the driver says.
    pub fn with_queue(queue: Arc<Queue>, options: &Options) -> Result<Arc<Self>, GpuError> {
        let physical = queue.device().physical_device();
        let all = loader::devices(physical.instance())?;
        let index = all.iter().position(|other| other.handle() == physical.handle()).unwrap_or(0);
        let families = physical.queue_family_properties();
        let flags = families[queue.queue_family_index() as usize].queue_flags;
        if !flags.intersects(QueueFlags::COMPUTE) {
            return Err(GpuError::Driver {
                device: name(&card::card(physical, index)),
                call: "queue",
                text: "its family does not compute; give a queue that does".into(),
            });
        }
        Self::with(queue, index, options, None)
    }

    fn with(
        queue: Arc<Queue>,
        index: usize,
        options: &Options,
        listener: Option<DebugUtilsMessenger>,
    ) -> Result<Arc<Self>, GpuError> {
        let device = queue.device();
        let physical = device.physical_device();
        let used = used(device, options);
        let mut card = card::card(physical, index);
        for (feature, has) in &mut card.features {
            if let Some((_, used)) = used.iter().find(|(name, _)| name == feature) {
                *has = *used;
            }
        }
        let name = name(&card);
        let limits = limits(device, &card, &used, options);
        let timeline = has(&used, "timeline");
        let pipelines = Pipelines::new(device.clone(), limits.offers, &name);
        Ok(Arc::new(Self { queue, card, name, limits, timeline, pipelines, _listener: listener }))
    }

    /// vulkano's device.
    #[must_use]
    pub fn vulkano_device(&self) -> &Arc<Device> {
        self.queue.device()
    }

    /// vulkano's queue, which all members of groups on this context share: what is submitted to it
    /// before a call of a group starts can be seen by that call.
    #[must_use]
    pub fn vulkano_queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Takes part of a buffer that the caller has. It must not be read or written through vulkano
    /// while a call of a group uses it.
    ///
    /// # Errors
    /// [`GpuError::Address`] if it is another device's, starts at an odd place or cannot be used as
    /// storage buffer, copy source and copy destination.
    pub fn adopt(&self, buffer: Subbuffer<[u8]>) -> Result<VulkanBuffer, GpuError> {
        VulkanBuffer::adopt(self, buffer)
    }

    /// How errors call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn has_timeline(&self) -> bool {
        self.timeline
    }

    pub(crate) fn pipelines(&self) -> &Pipelines {
        &self.pipelines
    }

    /// The type of memory for a purpose, among those allowed.
    pub(crate) fn memory_type(&self, allowed: u32, purpose: Use) -> Option<usize> {
        let types = memory::types(self.vulkano_device().physical_device());
        memory::pick(types, allowed, purpose, self.limits.unified)
    }

    /// Is memory of this type mapped as long as it lives?
    pub(crate) fn is_mapped(&self, memory_type: usize, purpose: Use) -> bool {
        let physical = self.vulkano_device().physical_device();
        let flags = physical.memory_properties().memory_types[memory_type].property_flags;
        purpose != Use::Data(Place::Device) || (self.limits.unified && flags.contains(HOST))
    }

    /// A raw call that failed, as error.
    pub(crate) fn fault(&self, call: &'static str, result: vk::Result) -> GpuError {
        fault::raw(&self.name, call, result)
    }
}

impl Context for VulkanContext {
    type Buffer = VulkanBuffer;
    type Queue = VulkanQueue;

    fn card(&self) -> &Card {
        &self.card
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc(&self, bytes: u64, place: Place) -> Result<VulkanBuffer, GpuError> {
        VulkanBuffer::alloc(self, bytes, Use::Data(place))
    }

    unsafe fn import(&self, start: NonNull<u8>, bytes: u64) -> Result<VulkanBuffer, GpuError> {
        // SAFETY: the caller keeps the pages.
        unsafe { VulkanBuffer::import(self, start, bytes) }
    }

    fn mapped(&self, buffer: &VulkanBuffer) -> Option<NonNull<u8>> {
        buffer.mapped()
    }

    fn bytes(&self, buffer: &VulkanBuffer) -> u64 {
        buffer.bytes()
    }

    fn queue(self: Arc<Self>) -> Result<VulkanQueue, GpuError> {
        VulkanQueue::new(self)
    }
}

/// How errors call a device.
fn name(card: &Card) -> String {
    format!("{} (vulkan:{})", card.name, card.index)
}

/// What is switched on when a device is opened: what it has of the things that matter.
fn create_info(physical: &PhysicalDevice, family: u32, options: &Options) -> DeviceCreateInfo {
    let features = DeviceFeatures {
        shader_float64: options.float64,
        shader_int64: options.int64,
        storage_buffer8_bit_access: options.storage_8,
        timeline_semaphore: options.timeline,
        ..DeviceFeatures::empty()
    };
    // Vulkan 1.2 has these without asking.
    let old = physical.api_version() < Version::V1_2;
    let extensions = DeviceExtensions {
        ext_external_memory_host: options.import,
        khr_8bit_storage: old && options.storage_8,
        khr_timeline_semaphore: old && options.timeline,
        khr_shader_float_controls: old,
        ..DeviceExtensions::empty()
    };
    DeviceCreateInfo {
        queue_create_infos: vec![QueueCreateInfo {
            queue_family_index: family,
            ..QueueCreateInfo::default()
        }],
        enabled_extensions: extensions.intersection(physical.supported_extensions()),
        enabled_features: features.intersection(physical.supported_features()),
        ..DeviceCreateInfo::default()
    }
}

/// Features of a card by name, and whether they are used.
type Used = [(&'static str, bool); 5];

/// The features of a card that can be used on this device.
fn used(device: &Device, options: &Options) -> Used {
    let on = device.enabled_features();
    let import = device.enabled_extensions().ext_external_memory_host;
    [
        ("float64", on.shader_float64 && options.float64),
        ("int64", on.shader_int64 && options.int64),
        ("storage_8", on.storage_buffer8_bit_access && options.storage_8),
        ("import", import && options.import),
        ("timeline", on.timeline_semaphore && options.timeline),
    ]
}

/// Is a feature in use?
fn has(used: &Used, name: &'static str) -> bool {
    used.contains(&(name, true))
}

/// What the device cannot exceed, or must not.
fn limits(device: &Device, card: &Card, used: &Used, options: &Options) -> Limits {
    let physical = device.physical_device();
    let most = physical.properties();
    let memory = physical.memory_properties();
    let is_host = matches!(card.kind, CardType::Integrated | CardType::Software);
    let reachable = memory::pick(memory::types(physical), !0, Use::Data(Place::Device), true)
        .is_some_and(|i| memory.memory_types[i].property_flags.contains(HOST));
    let heap = memory.memory_heaps.iter().map(|heap| heap.size).max().unwrap_or(0);
    // Vulkan 1.0 had no limit of a buffer's size but memory.
    let buffer_max = most.max_memory_allocation_size.unwrap_or(u64::MAX);
    let buffer_max = buffer_max.min(most.max_buffer_size.unwrap_or(u64::MAX)).min(heap);
    let span_max = u64::from(most.max_storage_buffer_range);
    let buffers = most.max_per_stage_descriptor_storage_buffers;
    let buffers =
        buffers.min(most.max_per_stage_resources).min(most.max_descriptor_set_storage_buffers);
    let [x, y, _] = most.max_compute_work_group_count;
    let [group_x, ..] = most.max_compute_work_group_size;
    Limits {
        buffer_max: buffer_max.min(options.buffer_max) / GRAIN * GRAIN,
        span_max: span_max.min(SPAN_MAX).min(options.span_max) / GRAIN * GRAIN,
        span_align: most.min_storage_buffer_offset_alignment.as_devicesize().max(4),
        import_align: most.min_imported_host_pointer_alignment.filter(|_| has(used, "import")),
        unified: options.unified && is_host && reachable,
        pinned_kernels: true,
        // One buffer is for the parameters.
        spans_max: (buffers.saturating_sub(1) as usize).min(options.spans_max),
        group_size: options.group_size.min(group_x).min(most.max_compute_work_group_invocations),
        groups_max: x.min(y).min(options.groups_max),
        offers: Arithmetic {
            normal_f32: options.float32,
            native_f32: options.float32,
            native_f64: has(used, "float64"),
            native_i64: has(used, "int64"),
            storage_8: has(used, "storage_8"),
            narrow: false,
        },
    }
}

impl std::fmt::Debug for VulkanContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VulkanContext").field("name", &self.name).finish_non_exhaustive()
    }
}
