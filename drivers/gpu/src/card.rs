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

impl Api {
    /// All of them, the one that is asked first first.
    pub const ALL: [Self; 2] = [Self::Vulkan, Self::OpenCl];

    /// Its name, as it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vulkan => "Vulkan",
            Self::OpenCl => "OpenCL",
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn card(api: Api, name: &str, kind: CardType) -> Card {
        Card {
            api,
            index: 0,
            name: name.to_owned(),
            vendor: String::new(),
            driver: String::new(),
            api_version: String::new(),
            kind,
            memory: 0,
            uuid: None,
            pci: None,
            features: Vec::new(),
            arithmetic: None,
        }
    }

    const fn pci(bus: u32) -> Option<Pci> {
        Some(Pci { domain: 0, bus, device: 0, function: 0 })
    }

    #[test]
    fn uuids_say_what_is_the_same_and_else_the_bus() {
        let a = card(Api::Vulkan, "A", CardType::Discrete);
        let b = card(Api::OpenCl, "B", CardType::Discrete);
        assert!(!a.is_same(&b), "nothing is known");
        let at = |card: &Card, uuid, bus| Card { uuid, pci: pci(bus), ..card.clone() };
        assert!(at(&a, Some([1; 16]), 1).is_same(&at(&b, Some([1; 16]), 2)));
        assert!(!at(&a, Some([1; 16]), 1).is_same(&at(&b, Some([2; 16]), 1)));
        assert!(at(&a, None, 1).is_same(&at(&b, Some([2; 16]), 1)));
        assert!(!at(&a, None, 1).is_same(&at(&b, None, 2)));
        let soft = |card: &Card| Card { kind: CardType::Software, ..at(card, Some([1; 16]), 1) };
        assert!(!soft(&a).is_same(&soft(&b)));
    }
}
