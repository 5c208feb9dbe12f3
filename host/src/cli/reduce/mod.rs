//! `unisono reduce`: one safetensors file a rank in, one file out.

mod buckets;
mod input;
mod names;
mod output;
mod run;
mod summary;
mod verify;
mod weight;

use super::args::{Devices, GroupArgs, bytes, op};
use super::error::Usage;
use super::interrupt::Interrupt;
use super::progress::Progress;
use super::report::plural;
use buckets::Buckets;
use output::Output;
use std::path::PathBuf;
use summary::Summary;
use unisono::{DType, Error, ReduceOp, Scalar};
use weight::Written;

const EXAMPLES: &str = "\
Examples:
  unisono reduce --op sum rank0.safetensors rank1.safetensors -o sum.safetensors
  unisono reduce --on cpu:4 --op avg rank?.safetensors -o mean.safetensors --verify
  unisono reduce --on cpu,vulkan:0,opencl:0 r0.safetensors r1.safetensors r2.safetensors \\
      -o sum.safetensors
  unisono reduce --op mulsum --weights 0.5,0.25,0.25 a.safetensors b.safetensors c.safetensors \\
      -o weighted.safetensors
  unisono reduce --algo ring --order any --chunk 64KiB r0.safetensors r1.safetensors \\
      -o sum.safetensors --json

All files must have the same tensors. Types may differ from tensor to tensor: F64, F32, F16, BF16,
F8_E4M3, F8_E5M2, and integers of 8 to 64 bits. The output has the header of rank 0's file, metadata
included. It is written under another name first and renamed when everything is checked, so it is
either there and complete, or not there; an existing file is replaced.

The SHA-256 is that of the tensors' bytes one after the other in the order of their names, so it
does not depend on how a file is laid out.";

/// Options of `unisono reduce`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReduceArgs {
    /// One safetensors file a rank
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The result
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Device of each rank: cpu, vulkan:WHICH, opencl:WHICH with commas between them, or auto
    /// (see `unisono devices`) [default: one CPU rank a file]
    #[arg(long, value_name = "DEVICES")]
    on: Option<Devices>,
    /// sum, prod, min, max, avg, mulsum, and, or, xor
    #[arg(long, value_name = "OP", default_value = "sum", value_parser = op)]
    op: ReduceOp,
    /// One weight a rank, for mulsum: the sum of each rank's tensors times its weight
    #[arg(long, value_name = "W,W,…", value_delimiter = ',', allow_hyphen_values = true)]
    weights: Option<Vec<Written>>,
    /// Small tensors of one type travel together, up to this size; 0: each by itself
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = bytes)]
    bucket: u64,
    /// Check every element against the scalar reference, and measure the rounding error
    #[arg(long)]
    verify: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Allow the output to replace one of the inputs
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    group: GroupArgs,
}

impl ReduceArgs {
    /// A rank's weight for tensors of this type.
    fn scalar(&self, rank: usize, dtype: DType) -> Result<Scalar, Error> {
        match self.weights.as_ref().and_then(|weights| weights.get(rank)) {
            Some(weight) => weight.scalar(dtype).ok_or(Error::Weight(dtype)),
            None => Ok(Scalar::one(dtype)),
        }
    }

    /// Every rank's weight for tensors of this type.
    fn scalars(&self, dtype: DType) -> Result<Vec<Scalar>, Error> {
        (0..self.files.len()).map(|rank| self.scalar(rank, dtype)).collect()
    }

    fn check(&self) -> Result<(), Usage> {
        let files = self.files.len();
        let refuse = |text: String| Err(Usage(text));
        if let Some(ranks) = self.on.as_ref().and_then(Devices::count)
            && ranks != files
        {
            let (ranks, files) = (plural(ranks, "rank"), plural(files, "file"));
            return refuse(format!("--on names {ranks}, but the command names {files}"));
        }
        match (&self.weights, self.op) {
            (None, ReduceOp::PreMulSum) => refuse("mulsum needs --weights, one a rank".into()),
            (None, _) => Ok(()),
            (Some(weights), ReduceOp::PreMulSum) => {
                if weights.len() != files {
                    let weights = plural(weights.len(), "weight");
                    return refuse(format!("{weights} for {}", plural(files, "file")));
                }
                Ok(())
            }
            (Some(_), op) => refuse(format!("--weights belong to --op mulsum, not to {op}")),
        }
    }
}

/// Runs the command.
pub fn run(args: &ReduceArgs, interrupt: &Interrupt) -> anyhow::Result<()> {
    args.check()?;
    let inputs = input::open_all(&args.files)?;
    let Some(first) = inputs.first() else { return Ok(()) };
    input::check_op(first, args.op)?;
    let output = Output::create(&args.output, &inputs, args.force)?;
    let buckets = Buckets::new(first, args.bucket);
    for dtype in buckets.dtypes() {
        args.scalars(dtype)?;
    }
    let steps = if args.verify { 4 } else { 3 };
    let files = args.files.len();
    let on = args.on.clone().unwrap_or_else(|| Devices::cpus(files));
    let ranks = on.open(Some(files), &args.group)?;
    let progress = Progress::new(steps * buckets.payload());
    let work =
        run::Work { args, inputs: &inputs, ranks: &ranks, buckets: &buckets, interrupt, progress };
    let done = run::reduce(&work)?;
    let verdict = args.verify.then(|| verify::verify(&work, done.result())).transpose()?;
    if let Some(verdict) = &verdict {
        verdict.demand()?;
    }
    output.write(first, &buckets, done.result(), interrupt)?;
    work.progress.finish();
    Summary::new(args, &work, &done, verdict).print(args.json)
}
