//! How devices are named.

use super::dpu::{DpuRole, DpuSpec};
use std::fmt;
use std::str::FromStr;
use unisono_gpu::{Api, Card, Pci};

/// A rank's device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeviceSpec {
    /// The CPU, one thread: `cpu`.
    Cpu,
    /// The CPU, for a member without data that folds for the ranks: `cpu:aggregator`.
    Aggregator,
    /// A device through Vulkan: `vulkan:0`, `vulkan:NAME`, `vulkan:UUID`, `vulkan:PCI`.
    Vulkan(Which),
    /// A device through OpenCL, named in the same ways.
    OpenCl(Which),
    /// A SmartNIC or DPU core that runs unisono's firmware: `dpu:NAME` folds for the ranks and has
    /// no data, `dpu:NAME:rank` is a rank. A card that runs is `dpu:pci:ADDRESS`.
    Dpu(DpuSpec),
    /// Every GPU of this machine, each once, and the CPU: `auto`. Software devices are no GPUs.
    Auto,
}

/// Which of an API's devices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// The one at this place of the driver's list.
    Index(usize),
    /// The one at this address.
    Pci(Pci),
    /// The one with this UUID.
    Uuid([u8; 16]),
    /// The one whose name contains this, whatever the case.
    Name(String),
}

impl DeviceSpec {
    /// Devices with commas between them; `cpu:4` stands for four CPU ranks. A comma in parentheses
    /// belongs to a name, as in `vulkan:llvmpipe (LLVM 15.0.6, 256 bits)`.
    ///
    /// # Errors
    /// What is wrong with which name.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        let mut all = Vec::new();
        let mut depth = 0u32;
        let between = |letter: char| {
            match letter {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            letter == ',' && depth == 0
        };
        for name in text.split(between).map(str::trim) {
            match name.split_once(':') {
                Some(("cpu", "aggregator")) => all.push(Self::Aggregator),
                Some(("cpu", number)) => match number.parse::<u16>() {
                    Ok(ranks) if ranks > 0 => all.extend((0..ranks).map(|_| Self::Cpu)),
                    _ => {
                        return Err(format!(
                            "{name}: cpu:N stands for N ranks on the CPU, 1 to 65535"
                        ));
                    }
                },
                _ => all.push(name.parse()?),
            }
        }
        Ok(all)
    }
}

impl FromStr for DeviceSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (api, which) = text.split_once(':').unwrap_or((text, "0"));
        let lower = api.to_lowercase();
        match lower.as_str() {
            "cpu" if which == "aggregator" => Ok(Self::Aggregator),
            "cpu" | "auto" if text != api => Err(format!("{text}: {api} takes no number here")),
            "cpu" => Ok(Self::Cpu),
            "auto" => Ok(Self::Auto),
            "vulkan" => Which::parse(text, which).map(Self::Vulkan),
            "opencl" => Which::parse(text, which).map(Self::OpenCl),
            "dpu" if text != api => DpuSpec::parse(which).map(Self::Dpu),
            "dpu" => Err("dpu: which board? (`unisono devices` lists them)".into()),
            "" => Err("a device without a name".into()),
            _ => Err(format!(
                "{text}: no such device; there are cpu, vulkan:…, opencl:…, dpu:… and auto \
                 (`unisono devices` lists them)"
            )),
        }
    }
}

impl DeviceSpec {
    /// Has a member there data? An aggregator has none, and is no rank.
    #[must_use]
    pub const fn has_data(&self) -> bool {
        match self {
            Self::Aggregator => false,
            Self::Dpu(spec) => matches!(spec.role, DpuRole::Rank),
            Self::Cpu | Self::Vulkan(_) | Self::OpenCl(_) | Self::Auto => true,
        }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Aggregator => f.write_str("cpu:aggregator"),
            Self::Auto => f.write_str("auto"),
            Self::Vulkan(which) => write!(f, "vulkan:{which}"),
            Self::OpenCl(which) => write!(f, "opencl:{which}"),
            Self::Dpu(spec) => spec.fmt(f),
        }
    }
}

impl Which {
    fn parse(whole: &str, text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err(format!("{whole}: which one? Give an index, a name, a UUID or an address"));
        }
        if let Some(parsed) = pci(text).map(Self::Pci).or_else(|| uuid(text).map(Self::Uuid)) {
            return Ok(parsed);
        }
        // A number is a place, also where a name happens to have it: RTX 4090, 256 bits.
        if text.bytes().all(|digit| digit.is_ascii_digit()) {
            let index = text.parse().map_err(|_| format!("{whole}: no list is that long"))?;
            return Ok(Self::Index(index));
        }
        Ok(Self::Name(text.to_owned()))
    }

    /// Is this card meant?
    #[must_use]
    pub fn is(&self, card: &Card) -> bool {
        match self {
            Self::Index(index) => card.index == *index,
            Self::Pci(pci) => card.pci.as_ref() == Some(pci),
            Self::Uuid(uuid) => card.uuid.as_ref() == Some(uuid),
            Self::Name(name) => card.name.to_lowercase().contains(&name.to_lowercase()),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Pci(pci) => write!(f, "{pci}"),
            Self::Uuid(uuid) => f.write_str(&uuid_text(uuid)),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// The name that picks this card.
pub(crate) fn name_of(card: &Card) -> DeviceSpec {
    match card.api {
        Api::Vulkan => DeviceSpec::Vulkan(Which::Index(card.index)),
        Api::OpenCl => DeviceSpec::OpenCl(Which::Index(card.index)),
    }
}

/// 32 hexadecimal digits in the usual groups.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::new();
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    let number = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok())?;
    number.map(u128::to_be_bytes)
}

/// `0000:01:00.0`, or without the domain.
pub(super) fn pci(text: &str) -> Option<Pci> {
    let hex = |part: &str| u32::from_str_radix(part, 16).ok();
    let (front, function) = text.rsplit_once('.')?;
    let mut parts = front.rsplit(':');
    let (device, bus) = (hex(parts.next()?)?, hex(parts.next()?)?);
    let domain = parts.next().map_or(Some(0), hex)?;
    parts.next().is_none().then_some(Pci { domain, bus, device, function: hex(function)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names() {
        let which = |text: &str| match text.parse() {
            Ok(DeviceSpec::Vulkan(which)) => which,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(which("vulkan"), Which::Index(0));
        assert_eq!(which("vulkan:3"), Which::Index(3));
        assert_eq!(which("vulkan:4090"), Which::Index(4090));
        assert_eq!(which("vulkan:RTX 4090"), Which::Name("RTX 4090".into()));
        assert_eq!(which("vulkan:Radeon RX"), Which::Name("Radeon RX".into()));
        let pci = Pci { domain: 1, bus: 0x2a, device: 0, function: 1 };
        assert_eq!(which("vulkan:0001:2a:00.1"), Which::Pci(pci));
        assert_eq!(which("vulkan:2a:00.1"), Which::Pci(Pci { domain: 0, ..pci }));
        let uuid = "6d657361-3232-2e33-2e36-000000000001";
        assert_eq!(which(&format!("vulkan:{uuid}")).to_string(), uuid);
        let digits = format!("{}1", "0".repeat(31));
        assert_eq!(which(&format!("vulkan:{digits}")), Which::Uuid(1u128.to_be_bytes()));
        for name in [
            "cpu",
            "auto",
            "opencl:1",
            "dpu:qemu-aarch64",
            "dpu:qemu-riscv64:rank",
            "vulkan:a b",
            "opencl:0000:01:00.0",
        ] {
            assert_eq!(name.parse::<DeviceSpec>().map(|d| d.to_string()), Ok(name.to_owned()));
        }
        for wrong in ["", "gpu", "cuda:0", "vulkan:", "cpu:x", "auto:1", "dpu", "dpu:x"] {
            assert!(wrong.parse::<DeviceSpec>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_have_commas() {
        let count = |text: &str| DeviceSpec::list(text).map(|all| all.len());
        assert_eq!(count("cpu"), Ok(1));
        assert_eq!(count("cpu:4, cpu"), Ok(5));
        assert_eq!(count("cpu,vulkan:0,opencl:0"), Ok(3));
        assert_eq!(count("cpu,vulkan:llvmpipe (LLVM 15.0.6, 256 bits),cpu"), Ok(3));
        for wrong in ["", "cpu,", "cpu:0", "cpu:x", "cpu,,cpu"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }
}
