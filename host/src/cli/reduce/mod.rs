//! `unisono reduce`: one safetensors file a rank in, one file out.

mod buckets;
mod input;
mod names;
mod output;
mod run;
mod summary;
mod verify;
mod weight;

use super::args::{Devices, GroupArgs, Names, On, Ranks, bytes, op};
use super::drivers::Wanted;
use super::error::Usage;
use super::interrupt::Interrupt;
use super::job::{Job, copy};
use super::progress::Progress;
use super::report::plural;
use anyhow::bail;
use buckets::Buckets;
use input::Input;
use output::Output;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use summary::Summary;
use unisono::{DType, DeviceSpec, Error, ReduceOp, Scalar, World};
use unisono_device_cpu::Isa;
use verify::Verdict;
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
    /// Device of each rank: cpu, vulkan:WHICH, opencl:WHICH, dpu:BOARD with commas between them, or
    /// auto (see `unisono devices`); several processes may be given a list each, with `;` between
    /// them [default: one CPU rank a file]
    #[arg(long, value_name = "DEVICES")]
    on: Option<On>,
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
    /// What is asked of which API.
    pub fn wanted(&self) -> Vec<Wanted> {
        self.on.as_ref().map_or_else(Vec::new, On::wanted)
    }

    /// A rank's weight for tensors of this type.
    fn scalar(&self, rank: usize, dtype: DType) -> Result<Scalar, Error> {
        match self.weights.as_ref().and_then(|weights| weights.get(rank)) {
            Some(weight) => weight.scalar(dtype).ok_or(Error::Weight(dtype)),
            None => Ok(Scalar::one(dtype)),
        }
    }

    /// Every rank's weight for tensors of this type.
    fn scalars(&self, ranks: usize, dtype: DType) -> Result<Vec<Scalar>, Error> {
        (0..ranks).map(|rank| self.scalar(rank, dtype)).collect()
    }

    /// Devices of this process: without `--on` one rank if there are several processes, else one a
    /// file.
    fn devices(&self, world: Option<&World>) -> Result<Vec<DeviceSpec>, Usage> {
        let (files, alone) = (self.files.len(), world.is_none());
        let on = self.on.as_ref().map(|on| on.here(world)).transpose()?;
        let own = on.and_then(Devices::count).unwrap_or(if alone { files } else { 1 });
        if alone && own != files {
            let (ranks, files) = (plural(own, "rank"), plural(files, "file"));
            return Err(Usage(format!("--on names {ranks}, but the command names {files}")));
        }
        Ok(on.unwrap_or(&Devices::cpus(own)).named(Some(own)))
    }

    /// The files of this process's ranks: each process names them all, or its own.
    fn own_files(&self, job: &Job) -> Result<&[PathBuf], Usage> {
        let (files, here) = (self.files.len(), job.here());
        if files == job.ranks() {
            return Ok(&self.files[here]);
        }
        if files == here.len() && !self.verify {
            return Ok(&self.files);
        }
        let all = plural(job.ranks(), "rank");
        let (own, files) = (plural(here.len(), "rank"), plural(files, "file"));
        Err(Usage(if self.verify {
            format!("--verify needs the files of all {all}, but the command names {files}")
        } else {
            format!("{files} for {all}, {own} of them in this process: name all files, or its own")
        }))
    }

    fn check(&self, ranks: usize) -> Result<(), Usage> {
        let refuse = |text: String| Err(Usage(text));
        match (&self.weights, self.op) {
            (None, ReduceOp::PreMulSum) => refuse("mulsum needs --weights, one a rank".into()),
            (None, _) => Ok(()),
            (Some(weights), ReduceOp::PreMulSum) => {
                if weights.len() != ranks {
                    let weights = plural(weights.len(), "weight");
                    return refuse(format!("{weights} for {}", plural(ranks, "rank")));
                }
                Ok(())
            }
            (Some(_), op) => refuse(format!("--weights belong to --op mulsum, not to {op}")),
        }
    }
}

/// Runs the command.
pub fn run(args: &ReduceArgs, interrupt: &Interrupt) -> anyhow::Result<()> {
    let world = args.group.world(interrupt)?;
    let own = args.devices(world.as_ref());
    let job = Job::meet(world, own.map_err(Into::into))?;
    let ready = prepare(args, &job);
    let seen = ready.as_ref().map(|ready| ready.seen.clone());
    let seen = job.agree(seen.map_err(copy));
    let Ready { inputs, output, .. } = ready?;
    for (rank, two) in (0..).zip(seen?.windows(2)) {
        if let Some(what) = two[0].differs(&two[1]) {
            let both = format!("processes {rank} and {}", rank + 1);
            return Err(Usage(format!("{both} have different {what}")).into());
        }
    }
    let (Some(first), own) = (inputs.first(), inputs.get(job.here())) else { return Ok(()) };
    let own = own.unwrap_or(&inputs);
    let mut buckets = Buckets::new(first, args.bucket);
    let steps = if args.verify { 4 } else { 3 };
    let ranks = Ranks::open(&job, &args.group, &interrupt.flag());
    let cpu = format!("cpu ({})", Isa::best().name());
    let about = ranks.as_ref().map(|ranks| (ranks.room(), ranks.names(&cpu)));
    let told = job.agree(about.map_err(copy));
    let (ranks, told) = (ranks?, told?);
    let (rooms, names): (Vec<_>, _) = told.into_iter().unzip();
    if let Some(most) = rooms.into_iter().flatten().min() {
        buckets.cut(most);
    }
    let progress = Progress::new(steps * buckets.payload());
    let (job, ranks) = (&job, &ranks);
    let work = run::Work { args, job, inputs: own, ranks, buckets: &buckets, interrupt, progress };
    let done = run::reduce(&work)?;
    let finished = output.map(|output| finish(&work, &inputs, output, &done)).transpose();
    let told = job.agree(finished.as_ref().map(drop).map_err(copy));
    let (finished, _) = (finished?, told?);
    match finished {
        Some(verdict) => {
            let on = Names::all(names).to_string();
            Summary::new(&work, on, &done, verdict).print(args.json)
        }
        None => Ok(()),
    }
}

/// What is there before the work begins.
struct Ready {
    inputs: Vec<Input>,
    /// In the process that writes it.
    output: Option<Output>,
    seen: Seen,
}

/// What must be the same in all processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    op: String,
    bucket: u64,
    /// A hash of the tensors' names, types and shapes.
    tensors: String,
}

impl Seen {
    /// What of it is not the same there.
    fn differs(&self, other: &Self) -> Option<String> {
        let Self { op, bucket, tensors } = self;
        if *op != other.op {
            return Some(format!("--op: {op} and {}", other.op));
        }
        if *bucket != other.bucket {
            return Some(format!("--bucket: {bucket} and {} bytes", other.bucket));
        }
        let same = *tensors == other.tensors;
        (!same).then(|| "tensors: their names, types or shapes are not the same".to_owned())
    }
}

fn prepare(args: &ReduceArgs, job: &Job) -> anyhow::Result<Ready> {
    if job.here().is_empty() {
        let text = "--on names no rank: `reduce` needs one in each process";
        return Err(Usage(text.into()).into());
    }
    args.check(job.ranks())?;
    let own = args.own_files(job)?;
    // Whoever verifies reads all.
    let inputs = input::open_all(if args.verify && job.leads() { &args.files } else { own })?;
    let Some(first) = inputs.first() else { bail!("no files") };
    input::check_op(first, args.op)?;
    let output = job.leads().then(|| Output::create(&args.output, &inputs, args.force));
    let output = output.transpose()?;
    let buckets = Buckets::new(first, args.bucket);
    for dtype in buckets.dtypes() {
        args.scalars(job.ranks(), dtype)?;
    }
    let tensors = Sha256::digest(format!("{:?}", input::shapes(first)));
    let tensors = tensors.iter().map(|byte| format!("{byte:02x}")).collect();
    let seen = Seen { op: args.op.to_string(), bucket: args.bucket, tensors };
    Ok(Ready { inputs, output, seen })
}

/// Checks the result, if that is wanted, and writes it.
fn finish(
    work: &run::Work<'_>,
    inputs: &[Input],
    output: Output,
    done: &run::Done,
) -> anyhow::Result<Option<Verdict>> {
    let verdict = work.args.verify.then(|| verify::verify(work, inputs, done.result()));
    let verdict = verdict.transpose()?;
    if let Some(verdict) = &verdict {
        verdict.demand()?;
    }
    output.write(&inputs[0], work.buckets, done.result(), work.interrupt)?;
    work.progress.finish();
    Ok(verdict)
}
