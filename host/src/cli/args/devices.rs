//! `--on`: which device each rank is on.

use super::super::drivers::Wanted;
use super::super::error::{Interrupted, Usage};
use super::super::interrupt::catch_again;
use super::GroupArgs;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use unisono::device::{Catalog, DeviceSpec, Dpu, DpuRole, Opened};

/// The devices and boards that the command line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices(Vec<DeviceSpec>);

/// Where one rank is; devices are open and boards run as long as this is kept.
#[derive(Clone, Debug)]
pub enum Place {
    /// On the CPU.
    Cpu,
    /// On a GPU.
    Gpu(Opened),
    /// On a board.
    Board(Dpu),
}

/// Where the members of a group are.
#[derive(Clone, Debug)]
pub struct Ranks {
    ranks: Vec<Place>,
    /// Boards without data.
    aggregators: Vec<Dpu>,
}

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
        let ranks = ranks(&self.0);
        (self.0 != [DeviceSpec::Auto]).then_some(ranks)
    }

    /// Refuses boards in a command that several processes run.
    pub fn without_boards(&self) -> Result<(), Usage> {
        match self.0.iter().find(|spec| matches!(spec, DeviceSpec::Dpu(_))) {
            None => Ok(()),
            Some(board) => Err(Usage(format!(
                "{board} cannot be in a group of several processes yet: only the process that \
                 starts a board reaches it"
            ))),
        }
    }

    /// What is asked of which API.
    pub fn wanted(&self) -> Vec<Wanted> {
        Wanted::these(&self.0)
    }

    /// Opens the devices and starts the boards for such a group, if there can be one. `auto` is
    /// every GPU, then CPU ranks up to `wanted`; as many as there are cores if that is `None` and
    /// there is no GPU. `shared`: other processes have ranks of the group, too. Once `stop` is set,
    /// no board is waited for.
    pub fn open(
        &self,
        wanted: Option<usize>,
        group: &GroupArgs,
        shared: bool,
        stop: &Arc<AtomicBool>,
    ) -> anyhow::Result<Ranks> {
        let mut named = self.0.clone();
        if self.count().is_none() {
            named = Catalog::find().real().collect();
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let most = wanted.unwrap_or(if named.is_empty() { cores } else { named.len() + 1 });
            named.resize(most, DeviceSpec::Cpu);
        }
        let members = if shared { 0 } else { group.members(&named)? };
        let (mut ranks, mut aggregators) = (Vec::new(), Vec::new());
        for spec in &named {
            if let DeviceSpec::Dpu(board) = spec {
                let dpu = Dpu::start_unless(stop, board, members, group.timeout)?;
                if stop.load(Ordering::Relaxed) {
                    return Err(Interrupted.into());
                }
                match board.role {
                    DpuRole::Aggregator => aggregators.push(dpu),
                    DpuRole::Rank => ranks.push(Place::Board(dpu)),
                }
            } else {
                ranks.push(Opened::open(spec)?.map_or(Place::Cpu, Place::Gpu));
            }
        }
        catch_again();
        Ok(Ranks { ranks, aggregators })
    }
}

/// How many of them have data.
pub fn ranks(devices: &[DeviceSpec]) -> usize {
    devices.iter().filter(|spec| !is_aggregator(spec)).count()
}

/// Is it a member without data?
fn is_aggregator(spec: &DeviceSpec) -> bool {
    matches!(spec, DeviceSpec::Dpu(board) if board.role == DpuRole::Aggregator)
}

impl Place {
    /// What it is called.
    pub fn name(&self, cpu: &str) -> String {
        match self {
            Self::Cpu => cpu.to_owned(),
            Self::Gpu(on) => on.card().name.clone(),
            Self::Board(dpu) => dpu.spec().to_string(),
        }
    }
}

impl Ranks {
    /// This many on the CPU.
    pub fn cpus(ranks: usize) -> Self {
        Self { ranks: vec![Place::Cpu; ranks], aggregators: Vec::new() }
    }

    /// Only some of the ranks, by their index here, and no aggregator.
    pub fn only(&self, keep: impl Fn(usize) -> bool) -> Self {
        let ranks = self.ranks.iter().enumerate().filter(|(index, _)| keep(*index));
        Self { ranks: ranks.map(|(_, place)| place.clone()).collect(), aggregators: Vec::new() }
    }

    /// How many have data.
    pub fn count(&self) -> usize {
        self.ranks.len()
    }

    /// The ranks.
    pub fn places(&self) -> &[Place] {
        &self.ranks
    }

    /// Boards without data.
    pub fn aggregators(&self) -> &[Dpu] {
        &self.aggregators
    }

    /// Bytes of a tensor that all ranks have room for in one call; `None` if it may have any.
    pub fn room(&self) -> Option<usize> {
        let room = |rank: &Place| match rank {
            Place::Board(dpu) => Some(dpu.room()),
            Place::Cpu | Place::Gpu(_) => None,
        };
        self.ranks.iter().filter_map(room).min()
    }

    /// Is any of them a GPU?
    pub fn any_gpu(&self) -> bool {
        self.ranks.iter().any(|rank| matches!(rank, Place::Gpu(_)))
    }

    /// What they are, each name once: `2 cpu (avx2), NAME, 2 NAME, through dpu:NAME`.
    pub fn describe(&self, cpu: &str) -> String {
        let through = self.aggregators.iter().map(|dpu| dpu.spec().to_string());
        let through = through.collect::<Vec<_>>().join(" and ");
        let through = if through.is_empty() { through } else { format!(", through {through}") };
        let mut named: Vec<(String, usize)> = Vec::new();
        for rank in &self.ranks {
            let name = rank.name(cpu);
            match named.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => named.push((name, 1)),
            }
        }
        if let [(only, _)] = &named[..] {
            return format!("{only}{through}");
        }
        let parts = named.iter().map(|(name, count)| match count {
            1 => name.clone(),
            _ => format!("{count} {name}"),
        });
        parts.collect::<Vec<_>>().join(", ") + &through
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Algo, Links, OrderArg};
    use super::*;

    #[test]
    fn devices_are_counted() {
        let count = |text: &str| text.parse::<Devices>().map(|d| d.count());
        assert_eq!(count("cpu"), Ok(Some(1)));
        assert_eq!(count("cpu:4, cpu"), Ok(Some(5)));
        assert_eq!(count("cpu,vulkan:0,opencl:0"), Ok(Some(3)));
        assert_eq!(count("cpu,cpu,dpu:qemu-aarch64"), Ok(Some(2)));
        assert_eq!(count("cpu,dpu:qemu-aarch64:rank"), Ok(Some(2)));
        assert_eq!(count("auto"), Ok(None));
        for wrong in ["", "cpu,", "cpu:0", "cpu:x", "cpu,auto", "auto,auto"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
        let group = GroupArgs {
            rendezvous: None,
            algo: Algo::default(),
            topology: None,
            order: OrderArg::Any,
            chunk: None,
            window: None,
            timeout: std::time::Duration::ZERO,
            links: Links::Auto,
            interface: None,
        };
        let ranks = Devices::cpus(3).open(None, &group, false, &Arc::default()).expect("the CPU");
        assert_eq!(
            (ranks.count(), ranks.describe("cpu"), ranks.any_gpu()),
            (3, "cpu".into(), false)
        );
    }
}
