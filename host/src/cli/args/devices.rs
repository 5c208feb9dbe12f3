//! `--on`: which device each rank is on.

use super::super::devices::host_and_cpu;
use super::super::drivers::Wanted;
use super::super::error::{Interrupted, Usage};
use super::super::interrupt::catch_again;
use super::super::job::Job;
use super::GroupArgs;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use unisono::device::{Catalog, DeviceSpec, Dpu, Opened};
use unisono::{Topology, World};

/// The devices and boards of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices(Vec<DeviceSpec>);

/// `--on`: the devices of this process, or of each process, with `;` between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct On(Vec<Devices>);

impl FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(';').map(Devices::from_str).collect::<Result<_, _>>().map(Self)
    }
}

impl On {
    /// What is asked of which API.
    pub fn wanted(&self) -> Vec<Wanted> {
        let all: Vec<_> = self.0.iter().flat_map(|list| list.0.clone()).collect();
        Wanted::these(&all)
    }

    /// Those of this process.
    pub fn here(&self, world: Option<&World>) -> Result<&Devices, Usage> {
        if let [only] = &self.0[..] {
            return Ok(only);
        }
        let (rank, size) = world.map_or((0, 1), |world| (world.rank(), world.size()));
        let own = self.0.get(rank).filter(|_| self.0.len() == size);
        own.ok_or_else(|| {
            let processes =
                if size == 1 { "is 1 process" } else { &format!("are {size} processes") };
            Usage(format!("--on has {} lists, one a process, and there {processes}", self.0.len()))
        })
    }
}

/// Where one rank is; devices are open and boards run as long as this is kept.
#[derive(Clone, Debug)]
pub enum Place {
    /// On the CPU.
    Cpu,
    /// On a GPU.
    Gpu(Opened),
    /// On a board.
    Board(Dpu),
    /// On the CPU, without data.
    Aggregator,
}

/// Where the members of a group are.
#[derive(Clone, Debug)]
pub struct Ranks {
    ranks: Vec<Place>,
    /// Those without data.
    aggregators: Vec<Place>,
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

    /// Every device by its name. `auto` is every GPU, then CPU ranks up to `wanted`; as many as
    /// there are cores if that is `None` and there is no GPU.
    pub fn named(&self, wanted: Option<usize>) -> Vec<DeviceSpec> {
        if self.count().is_some() {
            return self.0.clone();
        }
        let mut named: Vec<_> = Catalog::find().real().collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let most = wanted.unwrap_or(if named.is_empty() { cores } else { named.len() + 1 });
        named.resize(most, DeviceSpec::Cpu);
        named
    }
}

/// How many of them have data.
pub fn ranks(devices: &[DeviceSpec]) -> usize {
    devices.iter().filter(|spec| spec.has_data()).count()
}

impl Place {
    /// What it is called.
    pub fn name(&self, cpu: &str) -> String {
        match self {
            Self::Cpu => cpu.to_owned(),
            Self::Gpu(on) => on.card().name.clone(),
            Self::Board(dpu) => dpu.spec().to_string(),
            Self::Aggregator => DeviceSpec::Aggregator.to_string(),
        }
    }
}

impl Ranks {
    /// Opens the devices and starts the boards of this process, for a job whose group there can be.
    /// Once `stop` is set, no board is waited for.
    pub fn open(job: &Job, group: &GroupArgs, stop: &Arc<AtomicBool>) -> anyhow::Result<Self> {
        let members = group.members(job.devices())?;
        let (mut ranks, mut aggregators) = (Vec::new(), Vec::new());
        for spec in job.own() {
            let place = match spec {
                DeviceSpec::Dpu(board) => {
                    Place::Board(Dpu::start_unless(stop, board, members, group.timeout)?)
                }
                DeviceSpec::Aggregator => Place::Aggregator,
                spec => Opened::open(spec)?.map_or(Place::Cpu, Place::Gpu),
            };
            if stop.load(Ordering::Relaxed) {
                return Err(Interrupted.into());
            }
            if spec.has_data() { &mut ranks } else { &mut aggregators }.push(place);
        }
        catch_again();
        let opened = Self { ranks, aggregators };
        if let Some(path) = &group.topology {
            opened.compare(&super::topology(path)?, job);
        }
        Ok(opened)
    }

    /// Warns of a topology that was measured with other devices.
    fn compare(&self, topology: &Topology, job: &Job) {
        let (_, cpu) = host_and_cpu();
        let (ranks, first) = (job.here().start, job.first_without_data());
        let ranks = (ranks..).zip(&self.ranks);
        for (member, place) in ranks.chain((first..).zip(&self.aggregators)) {
            let measured = topology.members.get(member).map_or("nothing", |m| m.device.as_str());
            let here = place.name(&cpu);
            // One that was written by hand need not know the model.
            if here != measured && place.name("cpu") != measured {
                tracing::warn!(
                    "member {member} is {here}, and the topology was measured with {measured} \
                     there: plans may not fit; measure this group with `unisono probe`"
                );
                return;
            }
        }
    }

    /// This many on the CPU.
    pub fn cpus(ranks: usize) -> Self {
        Self { ranks: vec![Place::Cpu; ranks], aggregators: Vec::new() }
    }

    /// The ranks.
    pub fn places(&self) -> &[Place] {
        &self.ranks
    }

    /// Members without data.
    pub fn aggregators(&self) -> &[Place] {
        &self.aggregators
    }

    /// Bytes of a tensor that all ranks have room for in one call; `None` if it may have any.
    pub fn room(&self) -> Option<usize> {
        let room = |rank: &Place| match rank {
            Place::Board(dpu) => Some(dpu.room()),
            Place::Cpu | Place::Gpu(_) | Place::Aggregator => None,
        };
        self.ranks.iter().filter_map(room).min()
    }

    /// Is any of them a GPU?
    pub fn any_gpu(&self) -> bool {
        self.ranks.iter().any(|rank| matches!(rank, Place::Gpu(_)))
    }

    /// What they are called; ranks on the CPU `cpu`.
    pub fn names(&self, cpu: &str) -> Names {
        let names = |places: &[Place]| places.iter().map(|place| place.name(cpu)).collect();
        Names { ranks: names(&self.ranks), through: names(&self.aggregators) }
    }
}

/// What the members of a group are called.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Names {
    ranks: Vec<String>,
    /// Boards without data.
    through: Vec<String>,
}

impl Names {
    /// Those of all processes.
    pub fn all(processes: Vec<Self>) -> Self {
        processes.into_iter().fold(Self::default(), |mut all, Self { ranks, through }| {
            all.ranks.extend(ranks);
            all.through.extend(through);
            all
        })
    }
}

/// Each name once: `2 cpu (avx2), NAME, 2 NAME, through dpu:NAME`.
impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut named: Vec<(&str, usize)> = Vec::new();
        for rank in &self.ranks {
            match named.iter_mut().find(|(known, _)| known == rank) {
                Some((_, count)) => *count += 1,
                None => named.push((rank, 1)),
            }
        }
        let alone = named.len() == 1;
        let part = |&(name, count): &(&str, usize)| match count {
            2.. if !alone => format!("{count} {name}"),
            _ => name.to_owned(),
        };
        f.write_str(&named.iter().map(part).collect::<Vec<_>>().join(", "))?;
        if self.through.is_empty() {
            Ok(())
        } else {
            write!(f, ", through {}", self.through.join(" and "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Algo, Links, OrderArg};
    use super::*;

    #[test]
    fn each_process_has_its_list() {
        let on: On = "cpu:2,dpu:qemu-aarch64;cpu".parse().expect("two lists");
        let refused = on.here(None).err().map(|usage| usage.0);
        let text = "--on has 2 lists, one a process, and there is 1 process";
        assert_eq!(refused.as_deref(), Some(text));
        let one: On = "cpu:2".parse().expect("a list");
        assert_eq!(one.here(None).map(Devices::count).ok(), Some(Some(2)));
        for wrong in [";", "cpu;", "cpu;auto,cpu", "cpu;dpu:none"] {
            assert!(wrong.parse::<On>().is_err(), "{wrong}");
        }
    }

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
        let job = Job::alone(Devices::cpus(3).named(None));
        let ranks = Ranks::open(&job, &group, &Arc::default()).expect("the CPU");
        assert_eq!(
            (ranks.places().len(), ranks.names("cpu").to_string(), ranks.any_gpu()),
            (3, "cpu".into(), false)
        );
    }
}
