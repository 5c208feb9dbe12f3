//! What a command wants of an API.

use unisono::device::{Api, Card, CardType, DeviceSpec};

/// Which devices of an API a command will open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub api: Api,
    pub open: Open,
}

/// Which of an API's devices are opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open {
    /// They are only listed.
    Nothing,
    /// Every one.
    All,
    /// These.
    These(Vec<DeviceSpec>),
}

impl Wanted {
    /// Of all APIs the list of devices, and to `open` every one?
    pub fn all(open: bool) -> Vec<Self> {
        let wanted = |api| Self { api, open: if open { Open::All } else { Open::Nothing } };
        Api::ALL.into_iter().map(wanted).collect()
    }

    /// These devices.
    pub fn these(specs: &[DeviceSpec]) -> Vec<Self> {
        let of = |api| specs.iter().filter(move |spec| asks(spec, api)).cloned().collect();
        let wanted = |api| Self { api, open: Open::These(of(api)) };
        let all = Api::ALL.into_iter().map(wanted);
        all.filter(|wanted| wanted.open != Open::These(Vec::new())).collect()
    }
}

impl Open {
    /// Will it be opened? `auto` takes a device through one API only; which one is known when all
    /// have been asked, so both try.
    pub fn takes(&self, card: &Card) -> bool {
        let names = |spec: &DeviceSpec| match spec {
            DeviceSpec::Auto => card.kind != CardType::Software,
            DeviceSpec::Vulkan(which) | DeviceSpec::OpenCl(which) => which.is(card),
            DeviceSpec::Cpu | DeviceSpec::Aggregator | DeviceSpec::Dpu(_) => false,
        };
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::These(specs) => specs.iter().any(names),
        }
    }
}

impl Open {
    /// Is each device that is named one of these?
    pub fn is_in<'a>(&self, cards: impl Iterator<Item = &'a Card> + Clone) -> bool {
        let Self::These(specs) = self else { return true };
        specs.iter().all(|spec| match spec {
            DeviceSpec::Vulkan(which) | DeviceSpec::OpenCl(which) => {
                cards.clone().filter(|card| which.is(card)).count() == 1
            }
            DeviceSpec::Auto | DeviceSpec::Cpu | DeviceSpec::Aggregator | DeviceSpec::Dpu(_) => {
                true
            }
        })
    }
}

/// Is an API asked for this device?
fn asks(spec: &DeviceSpec, api: Api) -> bool {
    match spec {
        DeviceSpec::Auto => true,
        DeviceSpec::Vulkan(_) => api == Api::Vulkan,
        DeviceSpec::OpenCl(_) => api == Api::OpenCl,
        DeviceSpec::Cpu | DeviceSpec::Aggregator | DeviceSpec::Dpu(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_is_tried() {
        let wanted = |text: &str| Wanted::these(&DeviceSpec::list(text).expect("devices"));
        let these = |api, text: &str| Wanted {
            api,
            open: Open::These(DeviceSpec::list(text).expect("devices")),
        };
        assert_eq!(wanted("cpu:2,dpu:qemu-aarch64"), []);
        assert_eq!(wanted("cpu,opencl:0,opencl:1"), [these(Api::OpenCl, "opencl:0,opencl:1")]);
        let both = [these(Api::Vulkan, "auto"), these(Api::OpenCl, "auto")];
        assert_eq!(wanted("auto"), both);
    }
}
