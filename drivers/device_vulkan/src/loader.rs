//! The Vulkan library, and the devices that its drivers offer.

use crate::fault::{self, words};
use crate::manifest;
use crate::options::Complaint;
use crate::unwind::caught;
use ash::vk;
use std::sync::{Arc, Once};
use unisono_gpu::GpuError;
use vulkano::device::physical::PhysicalDevice;
use vulkano::device::{QueueFlags, physical};
use vulkano::instance::debug::{
    DebugUtilsMessageType, DebugUtilsMessenger, DebugUtilsMessengerCallback,
    DebugUtilsMessengerCreateInfo,
};
use vulkano::instance::{Instance, InstanceCreateFlags, InstanceCreateInfo, InstanceExtensions};
use vulkano::{LoadingError, Validated, Version, VulkanError, VulkanLibrary, VulkanObject};

const API: &str = "Vulkan";
const LAYER: &str = "VK_LAYER_KHRONOS_validation";
const GET_LOADER: &str = "install the loader and a driver \
     (Debian, Ubuntu: apt install libvulkan1 mesa-vulkan-drivers)";
const RAISE_LIMIT: &str = "raise the limit of open files (`ulimit -n`)";
const GET_DRIVER: &str = "install the driver of the GPU's vendor, or Mesa's \
     (Debian, Ubuntu: apt install mesa-vulkan-drivers); VK_LOADER_DEBUG=all shows what is tried";
const FIND_DRIVER: &str = "VK_LOADER_DEBUG=all shows which driver it is; VK_DRIVER_FILES can name \
     the manifests of the others";
const WHY_NONE: &str = "VK_LOADER_DEBUG=all shows which driver fails; may this process use its \
     device, and is there memory for it (`ulimit -v`)?";
const MEND_MANIFEST: &str = "mend or remove it, or let VK_DRIVER_FILES name the others";
const MEND_DRIVER: &str = "update it, or let VK_DRIVER_FILES name the manifests of the others";
const GET_LAYER: &str = "install it (Debian, Ubuntu: apt install vulkan-validationlayers)";

/// Loads the library and makes an instance.
pub(crate) fn instance(validate: Option<&Complaint>) -> Result<Arc<Instance>, GpuError> {
    let missing = |what: String, help| GpuError::Missing { api: API, what, help };
    let library = VulkanLibrary::new().map_err(|error| match error {
        // Which file, and why not, is not in the error's own text.
        LoadingError::LibraryLoadFailure(cause) => {
            let what = cause.to_string();
            let full = what.contains("Too many open files");
            let help = if full { RAISE_LIMIT } else { GET_LOADER };
            missing(what, help)
        }
        LoadingError::VulkanError(error) => broken("the loader's first call", error),
    })?;
    let mut info = InstanceCreateInfo {
        // Devices of portability drivers do all that is needed here.
        flags: InstanceCreateFlags::ENUMERATE_PORTABILITY,
        application_name: Some("unisono".into()),
        max_api_version: Some(Version::V1_3),
        ..InstanceCreateInfo::default()
    };
    if let Some(complaint) = validate {
        let mut layers = library
            .layer_properties()
            .map_err(|error| missing(format!("no layers: {error}"), GET_LAYER))?;
        if !layers.any(|layer| layer.name() == LAYER) {
            return Err(missing(format!("{LAYER} was not found"), GET_LAYER));
        }
        info.enabled_layers = vec![LAYER.into()];
        info.enabled_extensions =
            InstanceExtensions { ext_debug_utils: true, ..InstanceExtensions::empty() };
        // For the instance's own creation and end.
        info.debug_utils_messengers = vec![complaints(complaint.clone())];
    }
    Instance::new(library, info).map_err(|error| match error {
        Validated::Error(VulkanError::IncompatibleDriver) => no_driver(),
        Validated::Error(error) => broken("vkCreateInstance", error),
        Validated::ValidationError(error) => missing(error.to_string(), GET_DRIVER),
    })
}

fn no_driver() -> GpuError {
    const CODE: &str = "VK_ERROR_INCOMPATIBLE_DRIVER";
    let (what, help) = match manifest::variable() {
        Some((name, value)) => {
            let value = value.display();
            let what = format!("the loader finds no driver where {name} says, '{value}' ({CODE})");
            (what, "unset it, or let it name the manifest of a driver")
        }
        None => (format!("the loader finds no driver ({CODE})"), GET_DRIVER),
    };
    GpuError::Missing { api: API, what, help }
}

/// The loader gives up, though there may be drivers that work: a manifest that it cannot read is
/// one of no memory to it, and takes all others with it.
fn broken(call: &str, error: VulkanError) -> GpuError {
    let unreadable = manifest::unreadable();
    if unreadable.is_empty() {
        let what = format!("{call} fails: {error:?}");
        return GpuError::Broken { api: API, what, help: FIND_DRIVER };
    }
    GpuError::Broken { api: API, what: unreadable.join(", "), help: MEND_MANIFEST }
}

/// Passes on what the validation layer says, for as long as it lives.
pub(crate) fn listen(
    instance: &Arc<Instance>,
    complaint: &Complaint,
) -> Result<DebugUtilsMessenger, GpuError> {
    let heard = DebugUtilsMessenger::new(instance.clone(), complaints(complaint.clone()));
    heard.map_err(|error| fault::wrapped(API, "vkCreateDebugUtilsMessengerEXT", error))
}

fn complaints(complaint: Complaint) -> DebugUtilsMessengerCreateInfo {
    // SAFETY: a `Complaint` does not call Vulkan.
    let callback = unsafe {
        DebugUtilsMessengerCallback::new(move |_, _, data| {
            let name = data.message_id_name.unwrap_or("no name");
            complaint(&format!("{name}: {}", data.message));
        })
    };
    DebugUtilsMessengerCreateInfo {
        message_type: DebugUtilsMessageType::VALIDATION | DebugUtilsMessageType::PERFORMANCE,
        ..DebugUtilsMessengerCreateInfo::user_callback(callback)
    }
}

/// The devices that can compute, in the loader's order. A driver that fails loses only its own.
pub(crate) fn devices(instance: &Arc<Instance>) -> Result<Vec<Arc<PhysicalDevice>>, GpuError> {
    let missing = |what| GpuError::Missing { api: API, what, help: GET_DRIVER };
    // vulkano's own list is all or nothing.
    let handles = handles(instance).map_err(|result| {
        let what = format!("vkEnumeratePhysicalDevices: {}", words(result));
        GpuError::Missing { api: API, what, help: WHY_NONE }
    })?;
    let (mut devices, mut senseless, mut silent) = (Vec::new(), Vec::new(), None);
    for handle in handles {
        // SAFETY: the handle is this instance's.
        match caught(|| unsafe { PhysicalDevice::from_handle(instance.clone(), handle) }) {
            Some(Ok(device)) if can_compute(&device) => devices.push(device),
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                silent = Some(format!("a device does not say what it is: {error:?}"))
            }
            None => senseless.push(format!("the driver of {}", name(instance, handle))),
        }
    }
    let what = format!("what {} says of it makes no sense", senseless.join(" and "));
    if !senseless.is_empty() && devices.is_empty() {
        return Err(GpuError::Broken { api: API, what, help: MEND_DRIVER });
    }
    // Devices are listed more than once.
    static SAID: Once = Once::new();
    if !senseless.is_empty() {
        SAID.call_once(|| tracing::warn!("{API}: {what}, so it is left out; {MEND_DRIVER}"));
    }
    if let Some(what) = silent {
        if devices.is_empty() {
            // There is one, so installing another driver is no help.
            return Err(GpuError::Missing { api: API, what, help: WHY_NONE });
        }
        tracing::warn!("{API}: {what}");
    }
    if devices.is_empty() {
        return Err(missing("the drivers that were found have no device".into()));
    }
    Ok(devices)
}

/// What a device is called; vulkano's own copy is not to be had.
fn name(instance: &Instance, device: vk::PhysicalDevice) -> String {
    let mut properties = vk::PhysicalDeviceProperties::default();
    let get = instance.fns().v1_0.get_physical_device_properties;
    // SAFETY: the handle is this instance's, and there is room.
    unsafe { get(device, &mut properties) };
    let name = properties.device_name_as_c_str().map(|name| name.to_string_lossy());
    match name {
        Ok(name) if !name.is_empty() => format!("'{name}'"),
        _ => "a device without a name".to_owned(),
    }
}

/// The handles of all devices.
fn handles(instance: &Instance) -> Result<Vec<vk::PhysicalDevice>, vk::Result> {
    let enumerate = instance.fns().v1_0.enumerate_physical_devices;
    loop {
        let mut count = 0;
        // SAFETY: without an array, only the count is written.
        unsafe { enumerate(instance.handle(), &mut count, std::ptr::null_mut()) }.result()?;
        let mut handles = vec![vk::PhysicalDevice::null(); count as usize];
        // SAFETY: the array has `count` elements.
        let result = unsafe { enumerate(instance.handle(), &mut count, handles.as_mut_ptr()) };
        // More devices have come since they were counted.
        if result != vk::Result::INCOMPLETE {
            handles.truncate(count as usize);
            return result.result_with_success(handles);
        }
    }
}

/// Is it new enough, and has it a queue that computes?
fn can_compute(device: &physical::PhysicalDevice) -> bool {
    let name = &device.properties().device_name;
    if device.api_version() < Version::V1_1 {
        tracing::warn!("{name} is not used: Vulkan 1.1 is needed, it has {}", device.api_version());
        return false;
    }
    queue_family(device).is_some()
}

/// The queue family that work goes to: one that computes and does not draw, if there is one, as
/// that is not behind somebody's frames.
pub(crate) fn queue_family(device: &PhysicalDevice) -> Option<u32> {
    let families = device.queue_family_properties();
    let find = |wanted: QueueFlags, unwanted: QueueFlags| {
        families.iter().position(|family| {
            family.queue_flags.contains(wanted) && !family.queue_flags.intersects(unwanted)
        })
    };
    find(QueueFlags::COMPUTE, QueueFlags::GRAPHICS)
        .or_else(|| find(QueueFlags::COMPUTE, QueueFlags::empty()))
        .map(|index| index as u32)
}
