//! Options that several commands share, and how their values are written.

mod devices;
mod number;

pub use devices::{Devices, Place, Ranks};
pub use number::{bytes, duration, rate, some_bytes};

use super::error::Usage;
use super::interrupt::Interrupt;
use super::job::Job;
use clap::ValueEnum;
use std::str::FromStr;
use std::time::Duration;
use unisono::schedule::{Aggregators, Nodes, Owners};
use unisono::world::{Etcd, Interface};
use unisono::{DType, DeviceSpec, Group, GroupBuilder, Order, ReduceOp, Schedule, World};

/// Not a comment of the field: to rustdoc, the brackets would be links.
const ALGO_HELP: &str = "Schedule: auto, ring, direct[:SHARE:SHARE…], one-shot, binomial, \
                         double-tree, halving-doubling, star[:AGGREGATORS], \
                         hierarchical[:NODES] or hub[:NODES]";

/// How a group works: shared by everything that runs one.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Group")]
pub struct GroupArgs {
    /// The schedule.
    #[arg(long, value_name = "NAME", default_value = "auto", help = ALGO_HELP)]
    pub algo: Algo,
    /// Order of the fold: the canonical tree, or whatever the schedule does (the same bits on all
    /// ranks in any case)
    #[arg(long, value_enum, default_value = "canonical")]
    pub order: OrderArg,
    /// Size of a chunk: elements, or bytes if a unit follows (64KiB) [default: by size]
    #[arg(long, value_name = "N")]
    pub chunk: Option<Chunk>,
    /// Chunks in flight, 1 to 16 [default: as many as fit]
    #[arg(long, value_name = "W")]
    pub window: Option<u16>,
    /// Give a call up after this time without any progress
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
    /// How processes reach each other, if a launcher (`unisono launch`, mpirun, mpiexec, srun) has
    /// started several
    #[arg(long, value_enum, default_value = "auto")]
    pub links: Links,
    /// The network between hosts: the name of an interface, or 10.0.0.0/8 [default: what works]
    #[arg(long, value_name = "NAME|NET")]
    pub interface: Option<Interface>,
    /// Processes meet by way of an etcd; UNISONO_RENDEZVOUS does the same
    #[arg(long, value_name = "etcd://HOST:PORT/PREFIX")]
    pub rendezvous: Option<Etcd>,
}

/// `--links`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Links {
    /// Shared memory on one host, TCP between hosts
    Auto,
    /// TCP everywhere
    Tcp,
    /// UDP everywhere
    Udp,
    /// Shared memory on one host, UDP between hosts
    AutoUdp,
}

impl GroupArgs {
    /// The processes that a launcher has started for this command, if there are several.
    pub fn world(&self, interrupt: &Interrupt) -> anyhow::Result<Option<World>> {
        Job::find(self, interrupt)
    }

    /// A group for tensors of this type, in which this process has these ranks.
    pub fn group(
        &self,
        job: &Job,
        ranks: &Ranks,
        dtype: DType,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Group> {
        Ok(self.builder(job, ranks, dtype)?.interrupt(interrupt.flag()).build()?)
    }

    /// Members of a group on these devices; an error if there can be none.
    fn members(&self, named: &[DeviceSpec]) -> anyhow::Result<u16> {
        let builder = named.iter().cloned().fold(Group::builder().cpus(0), GroupBuilder::device);
        let schedule = self.algo.schedule(devices::ranks(named))?;
        Ok(schedule.into_iter().fold(builder, GroupBuilder::schedule).check()?)
    }

    fn builder(&self, job: &Job, ranks: &Ranks, dtype: DType) -> Result<GroupBuilder, Usage> {
        let mut builder = Group::builder().cpus(0).order(self.order.into()).timeout(self.timeout);
        if let Some(world) = job.world() {
            builder = builder.world(world);
        }
        for rank in ranks.places() {
            builder = match rank {
                Place::Gpu(device) => builder.open(device.clone()),
                Place::Board(dpu) => builder.board(dpu.clone()),
                Place::Cpu => builder.device(DeviceSpec::Cpu),
            };
        }
        for dpu in ranks.aggregators() {
            builder = builder.board(dpu.clone());
        }
        if let Some(schedule) = self.algo.schedule(job.ranks())? {
            builder = builder.schedule(schedule);
        }
        if let Some(chunk) = self.chunk {
            builder = builder.chunk(chunk.elements(dtype)?);
        }
        if let Some(window) = self.window {
            builder = builder.window(window);
        }
        Ok(builder)
    }
}

/// `--order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OrderArg {
    /// The balanced tree over rank ids
    Canonical,
    /// Whatever the schedule does
    Any,
}

impl From<OrderArg> for Order {
    fn from(order: OrderArg) -> Self {
        match order {
            OrderArg::Canonical => Self::Canonical,
            OrderArg::Any => Self::Any,
        }
    }
}

/// `--algo`: a schedule before the number of ranks is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algo {
    /// The planner chooses.
    Auto,
    /// Schedules without tables.
    Plain(&'static str),
    /// Direct, with a share for each rank, and then for each aggregator.
    Shares(Vec<u32>),
    /// So many aggregators.
    Star(u16),
    /// So many nodes.
    Hierarchical(u16),
    /// So many nodes, and an aggregator where they meet.
    Hub(u16),
}

const PLAIN: [&str; 6] =
    ["ring", "direct", "one-shot", "binomial", "double-tree", "halving-doubling"];

impl FromStr for Algo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = match text.split_once(':') {
            Some(("direct", shares)) => {
                let all: Result<Vec<u32>, _> = shares.split(':').map(str::parse).collect();
                let all = all.map_err(|_| format!("{text}: shares are numbers like 3:3:3:1"))?;
                return Ok(Self::Shares(all));
            }
            Some((name, number)) => {
                let number = number.parse::<u16>().ok().filter(|&n| n > 0);
                (name, Some(number.ok_or_else(|| format!("{text}: no number after the colon"))?))
            }
            None => (text, None),
        };
        if let Some(plain) = PLAIN.into_iter().find(|&p| p == name) {
            return match number {
                Some(_) => Err(format!("{name} takes no number")),
                None => Ok(Self::Plain(plain)),
            };
        }
        match (name, number) {
            ("auto", None) => Ok(Self::Auto),
            ("star", n) => Ok(Self::Star(n.unwrap_or(1))),
            ("hierarchical", n) => Ok(Self::Hierarchical(n.unwrap_or(2))),
            ("hub", n) => Ok(Self::Hub(n.unwrap_or(2))),
            _ => Err(format!(
                "no such schedule; there are auto, {}, direct:SHARE:SHARE…, star[:AGGREGATORS], \
                 hierarchical[:NODES], hub[:NODES]",
                PLAIN.join(", ")
            )),
        }
    }
}

impl Algo {
    /// The schedule for so many ranks; `None`: the planner chooses.
    pub fn schedule(&self, ranks: usize) -> Result<Option<Schedule>, Usage> {
        let few = u16::try_from(ranks).unwrap_or(u16::MAX);
        let refused = |text: String| Usage(format!("{text} over {ranks} ranks is not possible"));
        Ok(Some(match *self {
            Self::Auto => return Ok(None),
            Self::Plain("ring") => Schedule::Ring,
            Self::Plain("one-shot") => Schedule::OneShot,
            Self::Plain("binomial") => Schedule::Binomial,
            Self::Plain("double-tree") => Schedule::DoubleTree,
            Self::Plain("halving-doubling") => Schedule::HalvingDoubling,
            Self::Plain(name) => {
                Owners::equal(few).map(Schedule::Direct).ok_or_else(|| refused(name.to_owned()))?
            }
            Self::Shares(ref all) => Owners::weighted(few, all)
                .map(Schedule::Direct)
                .ok_or_else(|| refused(format!("direct with these {} shares", all.len())))?,
            Self::Star(aggregators) => Aggregators::new(aggregators)
                .map(Schedule::Star)
                .ok_or_else(|| refused(format!("a star with {aggregators} aggregators")))?,
            Self::Hierarchical(nodes) => nodes_of(few, nodes)
                .map(Schedule::Hierarchical)
                .ok_or_else(|| refused(format!("a hierarchy of {nodes} nodes")))?,
            Self::Hub(nodes) => nodes_of(few, nodes)
                .map(Schedule::Hub)
                .ok_or_else(|| refused(format!("a hub of {nodes} nodes")))?,
        }))
    }
}

/// Exactly so many nodes of consecutive ranks, as equal as can be.
pub fn nodes_of(ranks: u16, nodes: u16) -> Option<Nodes> {
    if nodes == 0 || nodes > ranks {
        return None;
    }
    let node = |rank: u16| (u32::from(rank) * u32::from(nodes) / u32::from(ranks)) as u16;
    Nodes::new(&(0..ranks).map(node).collect::<Vec<_>>())
}

/// `--chunk`: elements, or bytes with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// So many elements.
    Elements(u64),
    /// So many bytes, whatever the type.
    Bytes(u64),
}

impl FromStr for Chunk {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let chunk = match text.parse() {
            Ok(elements) => Self::Elements(elements),
            Err(_) => Self::Bytes(bytes(text)?),
        };
        match chunk {
            Self::Elements(0) | Self::Bytes(0) => Err("a chunk has at least one element".into()),
            chunk => Ok(chunk),
        }
    }
}

impl Chunk {
    fn elements(self, dtype: DType) -> Result<u64, Usage> {
        match self {
            Self::Elements(n) => Ok(n),
            Self::Bytes(n) => match n / dtype.size() as u64 {
                0 => Err(Usage(format!("a chunk of {n} bytes holds no element of {dtype}"))),
                elements => Ok(elements),
            },
        }
    }
}

/// An operator by its name.
pub fn op(text: &str) -> Result<ReduceOp, String> {
    ReduceOp::ALL.into_iter().find(|op| op.name() == text).ok_or_else(|| {
        let names: Vec<_> = ReduceOp::ALL.iter().map(|op| op.name()).collect();
        format!("no such operator; there are {}", names.join(", "))
    })
}

/// A type by its short name or by the one that nccl-tests has for it.
pub fn dtype(text: &str) -> Result<DType, String> {
    let named = |d: &DType| d.name() == text || nccl_name(*d) == text;
    DType::ALL.into_iter().find(named).ok_or_else(|| {
        let names: Vec<_> = DType::ALL.iter().map(|d| nccl_name(*d)).collect();
        format!("no such type; there are {}", names.join(", "))
    })
}

/// A type's name in nccl-tests (which has no 16-bit integers; their names follow the others).
pub const fn nccl_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::F16 => "half",
        DType::BF16 => "bfloat16",
        DType::F8E4M3 => "f8e4m3",
        DType::F8E5M2 => "f8e5m2",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_have_names() {
        assert_eq!("star".parse(), Ok(Algo::Star(1)));
        assert_eq!("hierarchical:4".parse(), Ok(Algo::Hierarchical(4)));
        assert_eq!("hub".parse(), Ok(Algo::Hub(2)));
        let shares = "direct:3:3:0".parse::<Algo>();
        assert_eq!(shares, Ok(Algo::Shares(vec![3, 3, 0])));
        let schedule = shares.map(|algo| (algo.schedule(3).ok(), algo.schedule(4).ok()));
        let owners = Owners::weighted(3, &[1, 1, 0]).map(Schedule::Direct);
        assert_eq!(schedule, Ok((Some(owners), None)));
        let wrong =
            ["", "rings", "ring:2", "star:0", "auto:1", "hierarchical:", "hub:0", "direct:"];
        for wrong in wrong.into_iter().chain(["direct:1:", "direct:1:x"]) {
            assert!(wrong.parse::<Algo>().is_err(), "{wrong}");
        }
        for name in PLAIN {
            let schedule = name.parse::<Algo>().map(|algo| algo.schedule(4));
            let schedule = schedule.ok().and_then(Result::ok).flatten();
            assert_eq!(schedule.map(|s| s.name()), Some(name));
        }
    }

    #[test]
    fn nodes_are_as_many_as_asked_for() {
        for (ranks, nodes) in [(1, 1), (4, 2), (5, 4), (7, 3), (64, 64)] {
            let count = nodes_of(ranks, nodes).map(|n| n.count());
            assert_eq!(count, Some(nodes), "{ranks} ranks");
        }
        assert!(nodes_of(3, 4).is_none());
    }

    #[test]
    fn chunks_are_elements_or_bytes() {
        let elements = |text: &str| {
            text.parse::<Chunk>().ok().and_then(|chunk| chunk.elements(DType::F32).ok())
        };
        assert_eq!(elements("7"), Some(7));
        assert_eq!(elements("64KiB"), Some(16384));
        assert_eq!(elements("2B"), None);
        assert_eq!(elements("0"), None);
    }
}
