//! Which devices there are.

use super::spec::{DeviceSpec, Which, name_of};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use unisono_gpu::{Api, Card, CardType, GpuError};

/// An API without devices, and why.
#[derive(Clone, Debug)]
pub struct Missing {
    /// The API.
    pub api: Api,
    /// What was not found, and how to get it.
    pub error: GpuError,
}

/// All GPUs and software devices of this machine.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// One entry a device: what each API that sees it says of it, Vulkan first. Real devices come
    /// before software.
    pub devices: Vec<Vec<Card>>,
    /// APIs without devices.
    pub missing: Vec<Missing>,
}

impl Catalog {
    /// Asks both APIs.
    #[must_use]
    pub fn find() -> Self {
        Self::of(&Api::ALL)
    }

    /// Asks these APIs only; the drivers of others are not loaded.
    #[must_use]
    pub fn of(apis: &[Api]) -> Self {
        let mut catalog = Self::default();
        for &api in apis {
            match cards(api) {
                Ok(cards) => cards.into_iter().for_each(|card| catalog.add(card)),
                Err(error) => catalog.missing.push(Missing { api, error }),
            }
        }
        let is_software = |cards: &Vec<Card>| cards.iter().any(|c| c.kind == CardType::Software);
        catalog.devices.sort_by_key(is_software);
        catalog
    }

    fn add(&mut self, card: Card) {
        // An API that lists a device twice has two of them: some cards have several GPUs, and not
        // every driver tells them apart.
        let known = |cards: &&mut Vec<Card>| {
            cards.iter().any(|other| other.is_same(&card))
                && cards.iter().all(|other| other.api != card.api)
        };
        match self.devices.iter_mut().find(known) {
            Some(cards) => cards.push(card),
            None => self.devices.push(vec![card]),
        }
    }

    /// The devices that `auto` stands for, without the CPU: real ones, each through the first API
    /// that sees it and can use it.
    pub fn real(&self) -> impl Iterator<Item = DeviceSpec> {
        let usable = |cards: &Vec<Card>| cards.iter().find(|card| usable(card).is_ok()).cloned();
        let first = self.devices.iter().filter_map(usable);
        first.filter(|card| card.kind != CardType::Software).map(|card| name_of(&card))
    }
}

/// APIs that this process leaves alone, and why.
static RULED_OUT: Mutex<Vec<(Api, GpuError)>> = Mutex::new(Vec::new());

/// From now on this process does not load the drivers of an API; whoever asks for its devices gets
/// this error. For programs that know that a driver would take them with it: one that crashes when
/// it is loaded crashes the process, and no library can prevent that.
pub fn rule_out(api: Api, why: GpuError) {
    RULED_OUT.lock().unwrap_or_else(PoisonError::into_inner).push((api, why));
}

/// Devices that this process leaves alone, by their place in an API's list, and why.
static DEVICES_RULED_OUT: Mutex<Vec<(Api, usize, GpuError)>> = Mutex::new(Vec::new());

/// As [`rule_out`] for one device of an API: it stays in the list, but whoever opens it gets this
/// error. For programs that know that its driver crashes only then.
pub fn rule_out_device(api: Api, index: usize, why: GpuError) {
    let mut ruled_out = DEVICES_RULED_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    ruled_out.push((api, index, why));
}

/// May a device be opened?
pub(crate) fn usable(card: &Card) -> Result<(), GpuError> {
    let ruled_out = DEVICES_RULED_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    let this = |(api, index, _): &&(Api, usize, GpuError)| (*api, *index) == (card.api, card.index);
    ruled_out.iter().find(this).map_or(Ok(()), |(.., why)| Err(why.clone()))
}

/// The files from which an API's loader learns of drivers: Vulkan's manifests, OpenCL's `.icd`
/// files. Reading this list loads none of them.
#[must_use]
pub fn driver_files(api: Api) -> Vec<PathBuf> {
    match api {
        #[cfg(feature = "vulkan")]
        Api::Vulkan => unisono_device_vulkan::manifests(),
        #[cfg(feature = "opencl")]
        Api::OpenCl => unisono_device_opencl::vendors(),
        #[cfg(not(all(feature = "vulkan", feature = "opencl")))]
        _ => Vec::new(),
    }
}

/// The library that such a file names, as the system's loader takes it.
#[must_use]
pub fn driver_library(api: Api, file: &Path) -> Option<PathBuf> {
    match api {
        #[cfg(feature = "vulkan")]
        Api::Vulkan => unisono_device_vulkan::library(file),
        #[cfg(feature = "opencl")]
        Api::OpenCl => unisono_device_opencl::library(file),
        #[cfg(not(all(feature = "vulkan", feature = "opencl")))]
        _ => None,
    }
}

/// The cards that an API sees.
pub(crate) fn cards(api: Api) -> Result<Vec<Card>, GpuError> {
    let ruled_out = RULED_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, why)) = ruled_out.iter().find(|(other, _)| *other == api) {
        return Err(why.clone());
    }
    drop(ruled_out);
    match api {
        #[cfg(feature = "vulkan")]
        Api::Vulkan => unisono_device_vulkan::devices(),
        #[cfg(feature = "opencl")]
        Api::OpenCl => unisono_device_opencl::devices(),
        #[cfg(not(all(feature = "vulkan", feature = "opencl")))]
        api => Err(without(api)),
    }
}

/// This build has no driver for an API.
#[cfg(not(all(feature = "vulkan", feature = "opencl")))]
pub(crate) fn without(api: Api) -> GpuError {
    let what = "this build is without it".to_owned();
    let help = "build with the features vulkan and opencl, which are on by default";
    GpuError::Missing { api: api.name(), what, help }
}

/// The card of a device; `None` for the CPU and for boards.
pub(crate) fn card_of(spec: &DeviceSpec) -> Result<Option<Card>, GpuError> {
    match spec {
        DeviceSpec::Cpu | DeviceSpec::Aggregator | DeviceSpec::Auto | DeviceSpec::Dpu(_) => {
            Ok(None)
        }
        DeviceSpec::Vulkan(which) => select(Api::Vulkan, which).map(Some),
        DeviceSpec::OpenCl(which) => select(Api::OpenCl, which).map(Some),
    }
}

/// The card that is meant; more than one is an error, too.
fn select(api: Api, which: &Which) -> Result<Card, GpuError> {
    let cards = cards(api)?;
    let mut fitting = cards.iter().filter(|card| which.is(card));
    if let (Some(card), None) = (fitting.next(), fitting.next()) {
        return Ok(card.clone());
    }
    let there = cards.iter().map(|card| format!("{} {}", card.index, card.name));
    let there = there.collect::<Vec<_>>().join(", ");
    let there = format!("{} ({there})", cards.len());
    let api = api.name();
    let wanted = match cards.iter().filter(|card| which.is(card)).count() {
        0 if matches!(which, Which::Index(_)) => which.to_string(),
        0 => format!("'{which}'"),
        fits => format!("'{which}' alone ({fits} fit)"),
    };
    Err(GpuError::NoDevice { api, wanted, there })
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_gpu::Pci;

    /// A card at this place of its API's list, on this bus.
    fn card(api: Api, index: usize, bus: Option<u32>) -> Card {
        let pci = bus.map(|bus| Pci { domain: 0, bus, device: 0, function: 0 });
        Card {
            api,
            index,
            name: String::new(),
            vendor: String::new(),
            driver: String::new(),
            api_version: String::new(),
            kind: if bus.is_some() { CardType::Discrete } else { CardType::Software },
            memory: 0,
            uuid: None,
            pci,
            features: Vec::new(),
            arithmetic: None,
        }
    }

    #[test]
    fn one_card_through_two_apis_is_one_device() {
        let mut catalog = Catalog::default();
        for (index, bus) in [Some(1), Some(2), None].into_iter().enumerate() {
            catalog.add(card(Api::Vulkan, index, bus));
        }
        for (index, bus) in [Some(2), Some(2), None].into_iter().enumerate() {
            catalog.add(card(Api::OpenCl, index, bus));
        }
        let places = |cards: &Vec<Card>| cards.iter().map(|c| (c.api, c.index)).collect::<Vec<_>>();
        let (vulkan, opencl) = (Api::Vulkan, Api::OpenCl);
        assert_eq!(
            catalog.devices.iter().map(places).collect::<Vec<_>>(),
            [
                vec![(vulkan, 0)],
                vec![(vulkan, 1), (opencl, 0)],
                vec![(vulkan, 2)],
                vec![(opencl, 1)],
                vec![(opencl, 2)],
            ]
        );
        // No other test has so many devices.
        let lost = GpuError::Lost { device: "a card".into(), text: "its driver dies".into() };
        let far = |api| card(api, 1000, Some(9));
        rule_out_device(vulkan, 1000, lost.clone());
        let both = Catalog { devices: vec![vec![far(vulkan), far(opencl)]], missing: Vec::new() };
        assert_eq!(both.real().collect::<Vec<_>>(), [DeviceSpec::OpenCl(Which::Index(1000))]);
        rule_out_device(opencl, 1000, lost);
        assert_eq!(both.real().count(), 0);
    }
}
