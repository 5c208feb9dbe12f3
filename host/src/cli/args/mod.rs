//! Options that several commands share, and how their values are written.

mod devices;
mod number;

pub use devices::{Devices, Names, On, Place, Ranks, ranks};
pub use number::{bytes, duration, rate, some_bytes};

use super::error::Usage;
use super::interrupt::{self, Interrupt};
use super::job::Job;
use anyhow::Context;
use clap::ValueEnum;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use unisono::schedule::Owners;
use unisono::topology::{self, Topology};
use unisono::world::{Etcd, Interface};
use unisono::{DType, DeviceSpec, Group, GroupBuilder, Order, ReduceOp, Schedule, World};
use unisono::{Pick, Selection, SelectionError};

/// Not a comment of the field: to rustdoc, the brackets would be links.
const ALGO_HELP: &str = "Schedule: auto, ring, direct[:SHARE:SHARE…], one-shot, binomial, \
                         double-tree, halving-doubling, star[:AGGREGATORS], \
                         hierarchical[:NODES], hub[:NODES], or by size: \
                         all-reduce:-8K=one-shot;8K-=direct";

/// How a group works: shared by everything that runs one.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Group")]
pub struct GroupArgs {
    /// The schedule.
    #[arg(long, value_name = "NAME", default_value = "auto", help = ALGO_HELP)]
    pub algo: Algo,
    /// What `unisono probe` has measured of these ranks, for the planner
    #[arg(long, value_name = "FILE")]
    pub topology: Option<PathBuf>,
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
    /// Give a call up after this time without any progress, and a board that does not answer
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
        let group = self.builder(job, ranks, dtype)?.interrupt(interrupt.flag()).build()?;
        interrupt::catch_again();
        Ok(group)
    }

    /// Members of a group on these devices; an error if there can be none.
    fn members(&self, named: &[DeviceSpec]) -> anyhow::Result<u16> {
        let builder = named.iter().cloned().fold(Group::builder().cpus(0), GroupBuilder::device);
        let schedule = self.algo.schedule(ranks(named))?;
        Ok(schedule.into_iter().fold(builder, GroupBuilder::schedule).check()?)
    }

    /// A builder with these ranks, and no word about plans.
    pub fn plain(&self, job: &Job, ranks: &Ranks) -> GroupBuilder {
        let builder = Group::builder().cpus(0).timeout(self.timeout);
        let mut builder = builder.on_stuck(|text| {
            // Whoever started this process, a launcher perhaps, wants it to end.
            let _ = writeln!(anstream::stderr(), "error: {text}");
            interrupt::end_now(1)
        });
        if let Some(world) = job.world() {
            builder = builder.world(world);
        }
        for place in ranks.places().iter().chain(ranks.aggregators()) {
            builder = match place {
                Place::Gpu(device) => builder.open(device.clone()),
                Place::Board(dpu) => builder.board(dpu.clone()),
                Place::Cpu => builder.device(DeviceSpec::Cpu),
                Place::Aggregator => builder.device(DeviceSpec::Aggregator),
            };
        }
        builder
    }

    fn builder(&self, job: &Job, ranks: &Ranks, dtype: DType) -> anyhow::Result<GroupBuilder> {
        let mut builder = self.plain(job, ranks).order(self.order.into());
        if let Some(path) = &self.topology {
            builder = builder.topology(topology(path)?);
        }
        if let Algo::Selection(selection) = &self.algo {
            builder = builder.selection(selection.clone());
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

/// `--algo`: a schedule before the number of ranks is known, or several by size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algo {
    /// One for all calls, or the planner's choice.
    Pick(Pick),
    /// Direct, with a share for each rank, and then for each aggregator.
    Shares(Vec<u32>),
    /// By size.
    Selection(Selection),
}

impl Default for Algo {
    fn default() -> Self {
        Self::Pick(Pick::AUTO)
    }
}

impl FromStr for Algo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('=') {
            return text.parse().map(Self::Selection).map_err(|e: SelectionError| e.to_string());
        }
        if let Some(shares) = text.strip_prefix("direct:") {
            let all: Result<Vec<u32>, _> = shares.split(':').map(str::parse).collect();
            let wrong = |_| format!("{text}: shares are numbers like 3:3:3:1");
            return all.map(Self::Shares).map_err(wrong);
        }
        match text.parse::<Pick>()? {
            Pick { chunk: Some(_), .. } => Err("--chunk says how large chunks are".into()),
            pick => Ok(Self::Pick(pick)),
        }
    }
}

impl Algo {
    /// The schedule for so many ranks; `None`: the planner or a selection chooses.
    pub fn schedule(&self, ranks: usize) -> Result<Option<Schedule>, Usage> {
        let few = u16::try_from(ranks).unwrap_or(u16::MAX);
        match self {
            Self::Pick(pick) => pick.schedule(few).map_err(Usage),
            Self::Shares(all) => {
                let owners = Owners::weighted(few, all).map(Schedule::Direct);
                let refused =
                    || format!("direct with these {} shares over {ranks} ranks", all.len());
                owners.map(Some).ok_or_else(|| Usage(format!("{} is not possible", refused())))
            }
            Self::Selection(_) => Ok(None),
        }
    }
}

/// Reads a topology file.
pub fn topology(path: &Path) -> anyhow::Result<Topology> {
    let name = || path.display().to_string();
    let length = std::fs::metadata(path).with_context(name)?.len();
    if length > topology::FILE_MAX as u64 {
        return Err(Usage(format!("{}: {length} bytes are no topology", name())).into());
    }
    let text = std::fs::read_to_string(path).with_context(name)?;
    Topology::parse(&text).map_err(|error| Usage(format!("{}: {error}", name())).into())
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
    fn a_selection_is_told_from_a_name() {
        let algo = |text: &str| text.parse::<Algo>();
        assert_eq!(algo("auto"), Ok(Algo::default()));
        assert!(matches!(algo("star:2"), Ok(Algo::Pick(_))));
        assert!(matches!(algo("all-reduce:-=ring"), Ok(Algo::Selection(_))));
        let shares = algo("direct:3:3:0");
        assert_eq!(shares, Ok(Algo::Shares(vec![3, 3, 0])));
        let schedule = shares.map(|algo| (algo.schedule(3).ok(), algo.schedule(4).ok()));
        let owners = Owners::weighted(3, &[1, 1, 0]).map(Schedule::Direct);
        assert_eq!(schedule, Ok((Some(Some(owners).flatten()), None)));
        for wrong in [
            "direct:",
            "direct:1:",
            "direct:1:x",
            "",
            "rings",
            "ring:2",
            "star:0",
            "auto:1",
            "ring/64K",
            "all-reduce:=ring",
        ] {
            assert!(algo(wrong).is_err(), "{wrong}");
        }
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
