//! What a device says of itself.

use unisono_gpu::{Api, Card, CardType, Pci};
use vulkano::device::DeviceFeatures;
use vulkano::device::physical::{PhysicalDevice, PhysicalDeviceType};
use vulkano::memory::MemoryHeapFlags;

/// The card of a device that is the loader's `index`-th.
pub(crate) fn card(device: &PhysicalDevice, index: usize) -> Card {
    let properties = device.properties();
    let driver = [&properties.driver_name, &properties.driver_info]
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty())
        .cloned()
        .collect::<Vec<_>>();
    Card {
        api: Api::Vulkan,
        index,
        name: properties.device_name.clone(),
        vendor: vendor(properties.vendor_id),
        driver: if driver.is_empty() {
            format!("version {:#x}", properties.driver_version)
        } else {
            driver.join(" ")
        },
        api_version: device.api_version().to_string(),
        kind: match properties.device_type {
            PhysicalDeviceType::DiscreteGpu => CardType::Discrete,
            PhysicalDeviceType::IntegratedGpu => CardType::Integrated,
            PhysicalDeviceType::VirtualGpu => CardType::Virtual,
            PhysicalDeviceType::Cpu => CardType::Software,
            _ => CardType::Other,
        },
        memory: memory(device),
        uuid: properties.device_uuid,
        pci: pci(device),
        features: features(device),
        arithmetic: None,
    }
}

/// Vulkan gives no name, but its numbers are those of the PCI-SIG, or Khronos' own.
fn vendor(id: u32) -> String {
    match id {
        0x1002 | 0x1022 => "AMD",
        0x1010 => "Imagination",
        0x106b => "Apple",
        0x10de => "NVIDIA",
        0x13b5 => "Arm",
        0x14e4 => "Broadcom",
        0x5143 => "Qualcomm",
        0x8086 => "Intel",
        0x10005 => "Mesa",
        other => return format!("vendor {other:#x}"),
    }
    .to_owned()
}

/// Bytes of the largest heap that is the device's own.
fn memory(device: &PhysicalDevice) -> u64 {
    let heaps = &device.memory_properties().memory_heaps;
    let own = heaps.iter().filter(|heap| heap.flags.intersects(MemoryHeapFlags::DEVICE_LOCAL));
    own.map(|heap| heap.size).max().unwrap_or(0)
}

/// The PCI address, where VK_EXT_pci_bus_info gives it.
fn pci(device: &PhysicalDevice) -> Option<Pci> {
    let properties = device.properties();
    Some(Pci {
        domain: properties.pci_domain?,
        bus: properties.pci_bus?,
        device: properties.pci_device?,
        function: properties.pci_function?,
    })
}

/// Features that matter here.
fn features(device: &PhysicalDevice) -> Vec<(&'static str, bool)> {
    let has: &DeviceFeatures = device.supported_features();
    let properties = device.properties();
    vec![
        ("float64", has.shader_float64),
        ("int64", has.shader_int64),
        ("storage_8", has.storage_buffer8_bit_access),
        ("import", device.supported_extensions().ext_external_memory_host),
        ("timeline", has.timeline_semaphore),
        ("keeps_subnormals_f32", properties.shader_denorm_preserve_float32 == Some(true)),
        ("keeps_subnormals_f64", properties.shader_denorm_preserve_float64 == Some(true)),
    ]
}
