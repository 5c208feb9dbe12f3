//! What a device says of itself. Raw queries, because a driver may answer with anything.

use crate::options::Options;
use opencl3::device::{
    CL_DEVICE_AVAILABLE, CL_DEVICE_COMPILER_AVAILABLE, CL_DEVICE_DOUBLE_FP_CONFIG,
    CL_DEVICE_ENDIAN_LITTLE, CL_DEVICE_EXTENSIONS, CL_DEVICE_GLOBAL_MEM_SIZE,
    CL_DEVICE_HOST_UNIFIED_MEMORY, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_MAX_PARAMETER_SIZE,
    CL_DEVICE_MAX_WORK_GROUP_SIZE, CL_DEVICE_MAX_WORK_ITEM_SIZES, CL_DEVICE_NAME,
    CL_DEVICE_PROFILE, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, CL_DEVICE_SINGLE_FP_CONFIG,
    CL_DEVICE_SVM_CAPABILITIES, CL_DEVICE_SVM_FINE_GRAIN_BUFFER, CL_DEVICE_TYPE,
    CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, CL_DEVICE_UUID_KHR, CL_DEVICE_VENDOR,
    CL_DEVICE_VERSION, CL_DRIVER_VERSION, CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT, CL_FP_DENORM,
    Device,
};
use unisono_gpu::kernel::SPAN_MAX;
use unisono_gpu::{Api, Arithmetic, Card, CardType, DESTS_MAX, Limits, Params, Pci, SOURCES_MAX};

/// `CL_DEVICE_PCI_BUS_INFO_KHR` of `cl_khr_pci_bus_info`.
const PCI_BUS_INFO_KHR: u32 = 0x410f;
/// Bus, slot and domain of `cl_nv_device_attribute_query`.
const PCI_NV: [u32; 3] = [0x4008, 0x4009, 0x400a];
/// `CL_DEVICE_TOPOLOGY_AMD` of `cl_amd_device_attribute_query`.
const TOPOLOGY_AMD: u32 = 0x4037;
/// Bytes of the arguments that name a span: a pointer and an offset.
const SPAN_ARGUMENTS: usize = size_of::<usize>() + size_of::<u64>();
/// Imported memory starts at a page; no device asks for more.
pub(crate) const PAGE: u64 = 4096;
/// Items of a work group, where the device allows as many.
const GROUP_SIZE: u64 = 256;
/// Every device takes as many groups in both dimensions.
const GROUPS_MAX: u32 = 65_535;

/// What a device can do, beyond its card and limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// Fine-grained shared virtual memory.
    pub shared: bool,
    /// A queue may run independent commands at the same time.
    pub out_of_order: bool,
}

fn bytes(device: &Device, query: u32) -> Vec<u8> {
    device.get_data(query).unwrap_or_default()
}

fn text(device: &Device, query: u32) -> String {
    let bytes = bytes(device, query);
    let text = String::from_utf8_lossy(&bytes);
    text.trim_matches(|c: char| c == '\0' || c.is_whitespace()).to_owned()
}

fn number(device: &Device, query: u32) -> Option<u64> {
    let bytes = bytes(device, query);
    match bytes.len() {
        4 => Some(u64::from(u32::from_ne_bytes(bytes.try_into().ok()?))),
        8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

fn flag(device: &Device, query: u32) -> bool {
    number(device, query).is_some_and(|value| value != 0)
}

fn has(device: &Device, extension: &str) -> bool {
    text(device, CL_DEVICE_EXTENSIONS).split_whitespace().any(|name| name == extension)
}

/// Why a device cannot be used, if so.
pub(crate) fn refusal(device: &Device) -> Option<&'static str> {
    if !flag(device, CL_DEVICE_AVAILABLE) {
        return Some("its driver says that it is not available");
    }
    if !flag(device, CL_DEVICE_COMPILER_AVAILABLE) {
        return Some("it has no compiler");
    }
    if !flag(device, CL_DEVICE_ENDIAN_LITTLE) {
        return Some("it is big-endian");
    }
    if version(&text(device, CL_DEVICE_VERSION)).is_none_or(|version| version < (1, 2)) {
        return Some("it is older than OpenCL 1.2");
    }
    None
}

/// The numbers in `OpenCL 1.2 and what the vendor adds`.
fn version(text: &str) -> Option<(u32, u32)> {
    let numbers = text.strip_prefix("OpenCL ")?.split_whitespace().next()?;
    let (major, minor) = numbers.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The card of device `index` of a platform named `platform`.
pub(crate) fn card(device: &Device, index: usize, platform: &str) -> Card {
    let shared = number(device, CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0);
    let single = number(device, CL_DEVICE_SINGLE_FP_CONFIG).unwrap_or(0);
    let rounded = single & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0;
    let native = native(device);
    Card {
        api: Api::OpenCl,
        index,
        name: text(device, CL_DEVICE_NAME),
        vendor: vendor(&text(device, CL_DEVICE_VENDOR)),
        driver: format!("{platform} {}", text(device, CL_DRIVER_VERSION)),
        api_version: text(device, CL_DEVICE_VERSION),
        kind: kind(device),
        memory: number(device, CL_DEVICE_GLOBAL_MEM_SIZE).unwrap_or(0),
        uuid: uuid(device),
        pci: pci(device),
        features: vec![
            ("float64", native.native_f64),
            ("int64", native.native_i64),
            ("float16", has(device, "cl_khr_fp16")),
            ("float32 subnormals", single & CL_FP_DENORM != 0),
            ("float32 correctly rounded division", rounded),
            ("unified memory", flag(device, CL_DEVICE_HOST_UNIFIED_MEMORY)),
            ("fine-grained shared memory", shared & CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0),
        ],
        arithmetic: None,
    }
}

/// What can be compiled for the device.
fn native(device: &Device) -> Arithmetic {
    let full = text(device, CL_DEVICE_PROFILE) == "FULL_PROFILE";
    Arithmetic {
        native_f32: true,
        normal_f32: true,
        native_f64: flag(device, CL_DEVICE_DOUBLE_FP_CONFIG),
        native_i64: full || has(device, "cles_khr_int64"),
        storage_8: true,
        narrow: number(device, CL_DEVICE_TYPE).unwrap_or(0) & CL_DEVICE_TYPE_CPU != 0,
    }
}

/// A maker by one name, whichever way its drivers write it.
fn vendor(text: &str) -> String {
    let lower = text.to_lowercase();
    for (part, name) in [
        ("nvidia", "NVIDIA"),
        ("advanced micro devices", "AMD"),
        ("authenticamd", "AMD"),
        ("intel", "Intel"),
    ] {
        if lower.contains(part) {
            return name.to_owned();
        }
    }
    if lower == "amd" { "AMD".to_owned() } else { text.to_owned() }
}

fn kind(device: &Device) -> CardType {
    let kind = number(device, CL_DEVICE_TYPE).unwrap_or(0);
    // A simulator claims to be everything at once.
    if kind & CL_DEVICE_TYPE_CPU != 0 {
        CardType::Software
    } else if kind & CL_DEVICE_TYPE_GPU == 0 {
        CardType::Other
    } else if flag(device, CL_DEVICE_HOST_UNIFIED_MEMORY) {
        CardType::Integrated
    } else {
        CardType::Discrete
    }
}

fn uuid(device: &Device) -> Option<[u8; 16]> {
    if !has(device, "cl_khr_device_uuid") {
        return None;
    }
    bytes(device, CL_DEVICE_UUID_KHR).try_into().ok()
}

fn pci(device: &Device) -> Option<Pci> {
    if has(device, "cl_khr_pci_bus_info") {
        let bytes = bytes(device, PCI_BUS_INFO_KHR);
        if let [domain, bus, device, function] = bytes.as_chunks::<4>().0 {
            let [domain, bus, device, function] =
                [domain, bus, device, function].map(|word| u32::from_ne_bytes(*word));
            return Some(Pci { domain, bus, device, function });
        }
    }
    if has(device, "cl_nv_device_attribute_query") {
        let [bus, slot, domain] = PCI_NV.map(|query| number(device, query));
        let (bus, slot) = (bus? as u32, slot? as u32);
        // Old drivers do not give the domain.
        let domain = domain.unwrap_or(0) as u32;
        return Some(Pci { domain, bus, device: slot >> 3, function: slot & 7 });
    }
    if has(device, "cl_amd_device_attribute_query") {
        // The kind of bus (1 is PCIe), 17 bytes of padding, then the address.
        let bytes = bytes(device, TOPOLOGY_AMD);
        if bytes.len() == 24 && bytes[..4] == 1u32.to_ne_bytes() {
            let [bus, device, function] = [21, 22, 23].map(|at| u32::from(bytes[at]));
            return Some(Pci { domain: 0, bus, device, function });
        }
    }
    None
}

/// What a device can do, as far as `options` let it.
pub(crate) fn abilities(device: &Device, options: &Options) -> Abilities {
    let shared = number(device, CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0);
    let queue = number(device, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES).unwrap_or(0);
    Abilities {
        shared: options.shared && shared & CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0,
        out_of_order: options.out_of_order && queue & 1 != 0,
    }
}

/// What a device cannot exceed.
pub(crate) fn limits(device: &Device, options: &Options) -> Limits {
    let number = |query, least| number(device, query).unwrap_or(0).max(least);
    // The least that the standard allows, for a driver that says less.
    let buffer_max = number(CL_DEVICE_MAX_MEM_ALLOC_SIZE, 1 << 20).min(options.buffer_max);
    let sizes = bytes(device, CL_DEVICE_MAX_WORK_ITEM_SIZES);
    let items = sizes.first_chunk().map_or(1, |size| usize::from_ne_bytes(*size) as u64);
    let group = number(CL_DEVICE_MAX_WORK_GROUP_SIZE, 1).min(items).min(GROUP_SIZE);
    let arguments = number(CL_DEVICE_MAX_PARAMETER_SIZE, 1024) as usize - size_of::<Params>();
    // The host and the device use the same memory through the same caches.
    let unified = kind(device) == CardType::Software
        || (flag(device, CL_DEVICE_HOST_UNIFIED_MEMORY) && abilities(device, options).shared);
    let unified = unified && options.import;
    Limits {
        buffer_max: buffer_max / PAGE * PAGE - PAGE,
        span_max: buffer_max.min(SPAN_MAX),
        span_align: 4,
        import_align: unified.then_some(PAGE),
        unified,
        pinned_kernels: abilities(device, options).shared,
        offers: mask(native(device), options.offers),
        spans_max: (arguments / SPAN_ARGUMENTS).min(SOURCES_MAX + DESTS_MAX),
        // A power of two, as the kernels expect.
        group_size: 1 << (group as u32).min(options.group_size.max(1)).ilog2(),
        groups_max: GROUPS_MAX,
    }
}

/// What both have.
const fn mask(a: Arithmetic, b: Arithmetic) -> Arithmetic {
    Arithmetic {
        native_f32: a.native_f32 && b.native_f32,
        normal_f32: a.normal_f32 && b.normal_f32,
        native_f64: a.native_f64 && b.native_f64,
        native_i64: a.native_i64 && b.native_i64,
        storage_8: a.storage_8 && b.storage_8,
        narrow: a.narrow && b.narrow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        assert_eq!(version("OpenCL 1.2 CUDA"), Some((1, 2)));
        assert_eq!(version("OpenCL 3.0 PoCL HSTR: pthread"), Some((3, 0)));
        assert_eq!(version("OpenCL 10.0"), Some((10, 0)));
        for bad in ["", "OpenCL", "OpenCL x.y", "CUDA 3.0"] {
            assert_eq!(version(bad), None, "{bad}");
        }
    }

    #[test]
    fn makers_have_one_name() {
        for (text, name) in [
            ("NVIDIA Corporation", "NVIDIA"),
            ("Advanced Micro Devices, Inc.", "AMD"),
            ("AuthenticAMD", "AMD"),
            ("AMD", "AMD"),
            ("GenuineIntel", "Intel"),
            ("Intel(R) Corporation", "Intel"),
            ("The pocl project", "The pocl project"),
        ] {
            assert_eq!(vendor(text), name);
        }
    }
}
