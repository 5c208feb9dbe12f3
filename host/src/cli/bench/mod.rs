//! `unisono bench`: collectives in the format of nccl-tests, the CPU's folds, and GPUs.

mod args;
mod check;
mod data;
mod device;
mod fold;
mod format;
mod replan;
mod results;
mod run;
mod speed;

use super::args::On;
use super::drivers::Wanted;
use super::interrupt::Interrupt;
use args::CollectiveArgs;

const EXAMPLES: &str = "\
Examples:
  unisono bench all_reduce -b 8 -e 64M -f 4 -t 4
  unisono bench reduce_scatter -d all -o all -b 1M -e 1M
  unisono bench -b 1M -e 1M -n 5 --samples 50 --median -J result.json
  unisono bench --algo ring --order any -d half -b 64K -e 64M -f 2
  unisono bench --on cpu,cpu,vulkan:0,opencl:0 -b 64M -e 64M
  unisono bench --topology topology.json --samples 100 --replan 200 -b 8M -e 8M
  unisono bench fold -d float -k 4
  unisono bench device vulkan:0 -d float -o sum

Options, defaults and columns are those of nccl-tests. Sizes are powers of 1024 (32M). #wrong counts
elements whose bits are not those of the scalar reference in canonical order. With a schedule that
has another order (--order any) it counts elements that differ from rank 0's bits, or that are
further from the exact value than n rounding errors of the sum of the absolute values.";

/// Options of `unisono bench`.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct BenchArgs {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    collective: CollectiveArgs,
}

#[derive(clap::Subcommand, Debug)]
enum Other {
    /// How fast one core folds, for every type and operator, against memcpy in the same run
    Fold(fold::FoldArgs),
    /// How fast a GPU folds, against its own copy, and what transfers and submissions cost
    Device(speed::DeviceArgs),
}

impl BenchArgs {
    /// What is asked of which API.
    pub fn wanted(&self) -> Vec<Wanted> {
        match &self.other {
            Some(Other::Fold(_)) => Vec::new(),
            Some(Other::Device(args)) => args.wanted(),
            None => self.collective.on.as_ref().map_or_else(Vec::new, On::wanted),
        }
    }
}

/// Runs the command.
pub fn run(args: &BenchArgs, interrupt: &Interrupt) -> anyhow::Result<()> {
    match &args.other {
        Some(Other::Fold(args)) => fold::run(args, interrupt),
        Some(Other::Device(args)) => speed::run(args, interrupt),
        None => run::run(&args.collective, interrupt),
    }
}
