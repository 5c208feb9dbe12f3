//! What a device is, and when two APIs speak of the same one.

use crate::kernel::Arithmetic;

/// How a device is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Api {
    /// Vulkan.
    Vulkan,
    /// OpenCL.
    OpenCl,
}

/// What kind of device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CardType {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU of a virtual machine.
    Virtual,
    /// An accelerator, or nothing that is known.
    Other,
    /// Software on the CPU.
    Software,
}

/// Where a device sits on the PCI bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pci {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u32,
    /// Device.
    pub device: u32,
    /// Function.
    pub function: u32,
}

impl std::fmt::Display for Pci {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// What a device says of itself through one API.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// The API.
    pub api: Api,
    /// Its index among the API's devices, in the driver's order.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Who made it. From the name that the driver gives, not from a number.
    pub vendor: String,
    /// The driver's name and version.
    pub driver: String,
    /// The API's version.
    pub api_version: String,
    /// What kind it is.
    pub kind: CardType,
    /// Bytes of the memory that tensors live in.
    pub memory: u64,
    /// The UUID, if the driver gives one.
    pub uuid: Option<[u8; 16]>,
    /// The PCI address, if the driver gives one.
    pub pci: Option<Pci>,
    /// Features that matter here, by name, and whether it has them.
    pub features: Vec<(&'static str, bool)>,
    /// How arithmetic is done, once a self-test has decided.
    pub arithmetic: Option<Arithmetic>,
}

impl Card {
    /// Is this the same device as `other`, seen through another API? Equal UUIDs say so on real
    /// devices, else equal PCI addresses. Software devices are never the same: their UUIDs are the
    /// same on every machine.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        if self.kind == CardType::Software || other.kind == CardType::Software {
            return false;
        }
        match (self.uuid, other.uuid, self.pci, other.pci) {
            (Some(a), Some(b), ..) => a == b,
            (_, _, Some(a), Some(b)) => a == b,
            _ => false,
        }
    }
}
