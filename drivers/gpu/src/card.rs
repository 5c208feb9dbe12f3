//! What a device is, and when two APIs speak of the same one.

use crate::error::GpuError;
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
    /// The UUID as it is usually written: 8-4-4-4-12 hexadecimal digits.
    #[must_use]
    pub fn uuid_text(&self) -> Option<String> {
        let uuid = u128::from_be_bytes(self.uuid?);
        let part = |shift: u32, digits: usize| {
            let mask = (1u128 << (4 * digits)) - 1;
            format!("{:0digits$x}", uuid >> shift & mask)
        };
        let parts = [part(96, 8), part(80, 4), part(64, 4), part(48, 4), part(0, 12)];
        Some(parts.join("-"))
    }

    /// Is `wanted` its UUID, its PCI address (with or without the domain) or a part of its name?
    fn answers_to(&self, wanted: &str) -> bool {
        let plain = |text: &str| text.replace('-', "").to_lowercase();
        let uuid = self.uuid_text().is_some_and(|uuid| plain(&uuid) == plain(wanted));
        let pci = self.pci.is_some_and(|pci| {
            let (full, wanted) = (pci.to_string(), wanted.to_lowercase());
            full == wanted || (pci.domain == 0 && full.strip_prefix("0000:") == Some(&wanted))
        });
        uuid || pci || self.name.to_lowercase().contains(&wanted.to_lowercase())
    }
}

/// Puts cards into the order in which they are shown and chosen: real ones first, by kind (as
/// [`CardType`] orders them); the driver's order otherwise.
pub fn sort(cards: &mut [Card]) {
    cards.sort_by_key(|card| card.kind);
}

/// Which cards are one device, seen through several APIs: lists of positions in `cards`, each in
/// ascending order, the first ones ascending too.
#[must_use]
pub fn group(cards: &[Card]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, card) in cards.iter().enumerate() {
        // An API that lists a device twice has two of them: some cards have several GPUs, and
        // not every driver tells them apart.
        let same = groups.iter_mut().find(|group| {
            group.iter().any(|&other| cards[other].is_same(card))
                && group.iter().all(|&other| cards[other].api != card.api)
        });
        match same {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// The position in `cards` (of one API) of the card that is asked for: by its position, UUID, PCI
/// address, or a part of its name that no other has (case is ignored).
///
/// # Errors
/// [`GpuError::NoDevice`] if there is none, or several; says what there is.
pub fn select(cards: &[Card], wanted: &str) -> Result<usize, GpuError> {
    if let Some(index) = wanted.parse().ok().filter(|&index| index < cards.len()) {
        return Ok(index);
    }
    let mut matching =
        (0..cards.len()).filter(|&i| !wanted.is_empty() && cards[i].answers_to(wanted));
    if let (Some(only), None) = (matching.next(), matching.next()) {
        return Ok(only);
    }
    let list: Vec<String> =
        cards.iter().enumerate().map(|(i, card)| format!("{i} ({})", card.name)).collect();
    let there = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    let api = cards.first().map_or("GPU", |card| card.api.name());
    Err(GpuError::NoDevice { api, wanted: wanted.to_owned(), there })
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

    #[test]
    fn one_card_through_two_apis_is_one_device() {
        let at = |api, bus| Card { pci: pci(bus), ..card(api, "GPU", CardType::Discrete) };
        let soft = |api| card(api, "CPU", CardType::Software);
        let cards = [
            at(Api::Vulkan, 1),
            at(Api::Vulkan, 2),
            soft(Api::Vulkan),
            at(Api::OpenCl, 2),
            at(Api::OpenCl, 2),
            soft(Api::OpenCl),
        ];
        let groups = group(&cards);
        assert_eq!(groups, [vec![0], vec![1, 3], vec![2], vec![4], vec![5]]);
    }

    #[test]
    fn software_comes_last() {
        let mut cards = [CardType::Software, CardType::Integrated, CardType::Discrete]
            .map(|kind| card(Api::Vulkan, "", kind));
        sort(&mut cards);
        let kinds = cards.map(|card| card.kind);
        assert_eq!(kinds, [CardType::Discrete, CardType::Integrated, CardType::Software]);
    }

    #[test]
    fn cards_are_chosen_by_what_they_are_called() {
        let uuid = Some(0x0123_4567_89ab_cdef_0011_2233_4455_6677_u128.to_be_bytes());
        let a =
            Card { uuid, pci: pci(3), ..card(Api::Vulkan, "Radeon 780M", CardType::Integrated) };
        let b = card(Api::Vulkan, "GeForce RTX 4090", CardType::Discrete);
        let c = card(Api::Vulkan, "GeForce RTX 4080", CardType::Discrete);
        let cards = [a, b, c];
        assert_eq!(cards[0].uuid_text().unwrap(), "01234567-89ab-cdef-0011-223344556677");
        for (wanted, index) in [
            ("0", 0),
            ("2", 2),
            ("radeon", 0),
            ("4090", 1),
            ("01234567-89AB-CDEF-0011-223344556677", 0),
            ("0123456789abcdef0011223344556677", 0),
            ("0000:03:00.0", 0),
            ("03:00.0", 0),
        ] {
            assert_eq!(select(&cards, wanted), Ok(index), "{wanted}");
        }
        for wanted in ["geforce", "", "3", "arc", "03:00.1"] {
            let error = select(&cards, wanted).unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains("2 (GeForce RTX 4080)"), "{error}");
        }
        let error = select(&[], "0").unwrap_err().to_string();
        assert_eq!(error, "no GPU device 0; there are: none");
    }
}
