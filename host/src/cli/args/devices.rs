//! `--on`: which device each rank is on.

use std::str::FromStr;
use unisono::device::{Catalog, DeviceSpec, Opened};

/// The devices that the command line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices(Vec<DeviceSpec>);

/// Each rank's device; GPUs are open, and stay so.
#[derive(Clone, Debug)]
pub struct Ranks(Vec<Option<Opened>>);

impl FromStr for Devices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = DeviceSpec::list(text)?;
        let autos = all.iter().filter(|spec| **spec == DeviceSpec::Auto).count();
        if autos > 0 && all.len() > 1 {
            return Err("auto stands for all devices, so it stands alone".into());
        }
        Ok(Self(all))
    }
}

impl Devices {
    /// This many CPU ranks.
    pub fn cpus(ranks: usize) -> Self {
        Self(vec![DeviceSpec::Cpu; ranks])
    }

    /// How many ranks it names; `None` for as many as are wanted.
    pub fn count(&self) -> Option<usize> {
        (self.0 != [DeviceSpec::Auto]).then_some(self.0.len())
    }

    /// Opens the devices. `auto` is every GPU, then CPU ranks up to `wanted`; as many as there are
    /// cores if that is `None` and there is no GPU.
    pub fn open(&self, wanted: Option<usize>) -> Result<Ranks, unisono::Error> {
        let mut named = self.0.clone();
        if self.count().is_none() {
            named = Catalog::find().real().collect();
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let most = wanted.unwrap_or(if named.is_empty() { cores } else { named.len() + 1 });
            named.resize(most, DeviceSpec::Cpu);
        }
        let opened = named.iter().map(|spec| Opened::open(spec).map_err(Into::into));
        opened.collect::<Result<_, _>>().map(Ranks)
    }
}

impl Ranks {
    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The open ones; `None` for the CPU.
    pub fn devices(&self) -> &[Option<Opened>] {
        &self.0
    }

    /// Is any of them a GPU?
    pub fn any_gpu(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// What they are, each name once: `2 cpu (avx2), NAME, 2 NAME`.
    pub fn describe(&self, cpu: &str) -> String {
        let mut named: Vec<(&str, usize)> = Vec::new();
        for rank in &self.0 {
            let name = rank.as_ref().map_or(cpu, |on| on.card().name.as_str());
            match named.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => named.push((name, 1)),
            }
        }
        if let [(only, _)] = named[..] {
            return only.to_owned();
        }
        let parts = named.iter().map(|(name, count)| match count {
            1 => (*name).to_owned(),
            _ => format!("{count} {name}"),
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_counted() {
        let count = |text: &str| text.parse::<Devices>().map(|d| d.count());
        assert_eq!(count("cpu"), Ok(Some(1)));
        assert_eq!(count("cpu:4, cpu"), Ok(Some(5)));
        assert_eq!(count("cpu,vulkan:0,opencl:0"), Ok(Some(3)));
        assert_eq!(count("auto"), Ok(None));
        for wrong in ["", "cpu,", "cpu:0", "cpu:x", "cpu,auto", "auto,auto"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
        let ranks = Devices::cpus(3).open(None).expect("the CPU");
        assert_eq!(
            (ranks.count(), ranks.describe("cpu"), ranks.any_gpu()),
            (3, "cpu".into(), false)
        );
    }
}
