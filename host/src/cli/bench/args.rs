//! Options of the collectives' benchmark.

use super::super::args::{GroupArgs, On, bytes, dtype, op};
use super::super::error::Usage;
use clap::ValueEnum;
use std::path::PathBuf;
use unisono::{DType, DeviceSpec, Kind, ReduceOp, World};

/// `unisono bench all_reduce` and its options.
#[derive(clap::Args, Debug)]
pub struct CollectiveArgs {
    /// Which collective
    #[arg(value_enum, default_value = "all_reduce")]
    pub collective: Collective,
    /// Smallest size
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "32M", value_parser = bytes)]
    pub minbytes: u64,
    /// Largest size
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "32M", value_parser = bytes)]
    pub maxbytes: u64,
    /// Step from one size to the next one
    #[arg(short = 'i', long, value_name = "SIZE", default_value = "1M", value_parser = bytes)]
    pub stepbytes: u64,
    /// Factor from one size to the next one, instead of a step
    #[arg(short = 'f', long, value_name = "FACTOR")]
    pub stepfactor: Option<u64>,
    /// Timed calls, launched back to back
    #[arg(short = 'n', long, default_value_t = 20, value_parser = at_least_1)]
    pub iters: u32,
    /// Calls before that, not timed
    #[arg(short = 'w', long, default_value_t = 1)]
    pub warmup_iters: u32,
    /// Check results: 1, or not: 0
    #[arg(short = 'c', long, default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(0..=1))]
    pub check: u8,
    /// Element type: float, half, …, or all
    #[arg(short = 'd', long, value_name = "TYPE", default_value = "float", value_parser = dtypes)]
    pub datatype: Some1<DType>,
    /// Operator: sum, prod, min, max, avg, mulsum, and, or, xor, or all
    #[arg(short = 'o', long, value_name = "OP", default_value = "sum", value_parser = ops)]
    pub op: Some1<ReduceOp>,
    /// Root of reduce and broadcast; the others have none, and ignore it
    #[arg(short = 'r', long, default_value_t = 0)]
    pub root: u16,
    /// Ranks, each a thread [default: one a core]
    #[arg(short = 't', long)]
    pub nthreads: Option<usize>,
    /// Device of each rank: cpu, vulkan:WHICH, opencl:WHICH, dpu:BOARD with commas between them, or
    /// auto (see `unisono devices`); several processes may be given a list each, with `;` between
    /// them [default: the CPU]
    #[arg(long, value_name = "DEVICES")]
    pub on: Option<On>,
    /// Where tensors are: in memory of each rank's device, or of the host
    #[arg(long, value_enum, default_value = "device")]
    pub memory: Where,
    /// Which rank's time counts: 0 rank 0's, 1 the average, 2 the smallest, 3 the largest
    #[arg(short = 'a', long, default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(0..=3))]
    pub average: u8,
    /// Write the results to this file as JSON, too
    #[arg(short = 'J', long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Measure so many times the timed calls; JSON has mean, smallest and median
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_1)]
    pub samples: u32,
    /// With --topology: look after N calls, between two samples, whether calls take longer or
    /// shorter than at first, and if they do, measure links and devices and plan anew
    #[arg(long, value_name = "N", value_parser = at_least_1)]
    pub replan: Option<u32>,
    /// The table shows the median of the samples instead of their mean
    #[arg(long)]
    pub median: bool,
    /// Ask for huge pages (Linux)
    #[arg(long)]
    pub huge: bool,
    #[command(flatten)]
    pub group: GroupArgs,
}

/// `--memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Where {
    /// In memory of the rank's device
    Device,
    /// In memory of the host
    Host,
}

/// One value or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Some1<T> {
    /// This one.
    One(T),
    /// Every one.
    All,
}

fn at_least_1(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".into()),
        Ok(n) => Ok(n),
        Err(_) => Err("it is not a number".into()),
    }
}

/// For `-d`.
pub fn dtypes(text: &str) -> Result<Some1<DType>, String> {
    if text == "all" { Ok(Some1::All) } else { dtype(text).map(Some1::One) }
}

/// For `-o`.
pub fn ops(text: &str) -> Result<Some1<ReduceOp>, String> {
    if text == "all" { Ok(Some1::All) } else { op(text).map(Some1::One) }
}

impl Some1<DType> {
    /// The types in question.
    pub fn dtypes(self) -> Vec<DType> {
        match self {
            Self::One(dtype) => vec![dtype],
            Self::All => DType::ALL.to_vec(),
        }
    }
}

impl Some1<ReduceOp> {
    /// The operators in question that the type has.
    pub fn ops(self, dtype: DType) -> Vec<ReduceOp> {
        match self {
            Self::One(op) => vec![op],
            Self::All => ReduceOp::ALL.into_iter().filter(|op| op.supports(dtype)).collect(),
        }
    }
}

/// The collectives, by nccl-tests' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank gets the reduction
    AllReduce,
    /// Every rank gets one block of the reduction
    ReduceScatter,
    /// Every rank gets every rank's block
    AllGather,
    /// The root gets the reduction
    Reduce,
    /// Every rank gets the root's tensor
    Broadcast,
    /// Every rank sends a block to every other one
    #[value(alias = "alltoall")]
    AllToAll,
}

impl Collective {
    /// The library's name for it.
    pub const fn kind(self) -> Kind {
        match self {
            Self::AllReduce => Kind::AllReduce,
            Self::ReduceScatter => Kind::ReduceScatter,
            Self::AllGather => Kind::AllGather,
            Self::Reduce => Kind::Reduce,
            Self::Broadcast => Kind::Broadcast,
            Self::AllToAll => Kind::AllToAll,
        }
    }

    /// The name of nccl-tests' program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce_perf",
            Self::ReduceScatter => "reduce_scatter_perf",
            Self::AllGather => "all_gather_perf",
            Self::Reduce => "reduce_perf",
            Self::Broadcast => "broadcast_perf",
            Self::AllToAll => "alltoall_perf",
        }
    }

    /// busbw over algbw for n ranks.
    pub fn factor(self, ranks: usize) -> f64 {
        let n = ranks as f64;
        match self {
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::ReduceScatter | Self::AllGather | Self::AllToAll => (n - 1.0) / n,
            Self::Reduce | Self::Broadcast => 1.0,
        }
    }

    /// The call's count for a tensor of about so many bytes, and the bytes that algbw counts: as in
    /// nccl-tests, blocks are cut down to multiples of 16 bytes.
    pub fn count(self, bytes: u64, dtype: DType, ranks: usize) -> (u64, u64) {
        let (size, ranks) = (dtype.size() as u64, ranks as u64);
        let count = bytes / size;
        match self {
            Self::AllReduce | Self::Reduce | Self::Broadcast => (count, count * size),
            Self::ReduceScatter | Self::AllGather | Self::AllToAll => {
                let block = (count / ranks) & !(16 / size - 1);
                (block, block * size * ranks)
            }
        }
    }
}

impl CollectiveArgs {
    /// Devices of this process. Without `--on` there is a CPU rank for each core, or each process
    /// if there are several.
    pub fn devices(&self, world: Option<&World>) -> Result<Vec<DeviceSpec>, Usage> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let cores = || if world.is_some() { 1 } else { cores() };
        let Some(on) = &self.on else {
            return Ok(vec![DeviceSpec::Cpu; self.nthreads.unwrap_or_else(cores)]);
        };
        let on = on.here(world)?;
        match (on.count(), self.nthreads) {
            (Some(named), Some(threads)) if named != threads => {
                Err(Usage(format!("--on names {named} ranks, -t {threads}")))
            }
            (_, threads) => Ok(on.named(threads)),
        }
    }

    /// Sizes in bytes, from the smallest one.
    pub fn sizes(&self) -> Result<Vec<u64>, Usage> {
        let refuse = |text: String| Err(Usage(text));
        let Self { minbytes, maxbytes, stepbytes, stepfactor, .. } = *self;
        if minbytes > maxbytes {
            return refuse(format!("-b {minbytes} is above -e {maxbytes}"));
        }
        match stepfactor {
            Some(0 | 1) => return refuse("-f must be at least 2".into()),
            Some(_) if minbytes == 0 => return refuse("-f needs -b above 0".into()),
            None if stepbytes == 0 => return refuse("-i must be at least 1".into()),
            _ => {}
        }
        let next = |&size: &u64| match stepfactor {
            Some(factor) => size.checked_mul(factor),
            None => size.checked_add(stepbytes),
        };
        let sizes = std::iter::successors(Some(minbytes), next);
        let sizes: Vec<_> = sizes.take_while(|&s| s <= maxbytes).take(SIZES_MAX + 1).collect();
        if sizes.len() > SIZES_MAX {
            return refuse(format!("more than {SIZES_MAX} sizes: make the step larger"));
        }
        Ok(sizes)
    }
}

/// More rows than that are a slip.
const SIZES_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_nccl_tests() {
        use Collective::{AllGather, AllReduce, AllToAll};
        assert_eq!(AllReduce.count(10, DType::F32, 4), (2, 8));
        assert_eq!(AllGather.count(1024, DType::F32, 4), (64, 1024));
        assert_eq!(AllGather.count(1000, DType::F32, 4), (60, 960));
        assert_eq!(AllToAll.count(63, DType::I8, 4), (0, 0));
        assert_eq!(AllReduce.factor(4), 1.5);
        assert_eq!(AllGather.factor(4), 0.75);
    }
}
