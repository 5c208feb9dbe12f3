//! `unisono bench fold`: how fast one core folds, against memcpy in the same run.

use super::super::args;
use super::super::interrupt::Interrupt;
use super::super::memory::Pages;
use super::super::report::{print, print_json, table};
use super::args::{Some1, dtypes, ops};
use super::data::{PERIOD, Tables};
use anyhow::{Result, anyhow, bail};
use serde::Serialize;
use std::time::{Duration, Instant};
use unisono::{DType, ReduceOp};
use unisono_core::fold::leaf_merges;
use unisono_core::{Finish, Form, Source};
use unisono_device_cpu::{CpuDevice, Isa};
use unisono_driver::{Device, Fold, HostPtr};

/// Options of `unisono bench fold`.
#[derive(clap::Args, Debug)]
pub struct FoldArgs {
    /// Element type, or all
    #[arg(short = 'd', long, value_name = "TYPE", default_value = "all", value_parser = dtypes)]
    datatype: Some1<DType>,
    /// Operator, or all
    #[arg(short = 'o', long, value_name = "OP", default_value = "all", value_parser = ops)]
    op: Some1<ReduceOp>,
    /// Sources of a fold
    #[arg(short = 'k', long, default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=32))]
    sources: u16,
    /// Size of each source
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "4M",
          value_parser = args::some_bytes)]
    bytes: u64,
    /// Time to spend on each row
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = args::duration)]
    budget: Duration,
    /// Ask for huge pages (Linux)
    #[arg(long)]
    huge: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct Report {
    isa: &'static str,
    sources: u16,
    bytes: u64,
    /// GB/s, bytes read and bytes written.
    memcpy: f64,
    folds: Vec<Rate>,
}

/// One row; rates in GB/s of bytes moved: all sources read, the result written.
#[derive(Debug, Serialize)]
struct Rate {
    r#type: &'static str,
    op: &'static str,
    median: f64,
    best: f64,
    /// The median over memcpy's.
    of_memcpy: f64,
    wrong: u64,
}

/// Runs the command.
pub fn run(args: &FoldArgs, interrupt: &Interrupt) -> Result<()> {
    let bytes = usize::try_from(args.bytes.next_multiple_of(64))?;
    let pages = |_| Pages::new(bytes, args.huge);
    let mut sources = (0..args.sources).map(pages).collect::<Result<Vec<_>, _>>()?;
    let mut dest = Pages::new(bytes, args.huge)?;
    // The first touch is not what is measured.
    dest.fill(0xa5);
    for source in &mut sources {
        interrupt.check()?;
        source.fill(1);
    }
    let from = sources.first().ok_or_else(|| anyhow!("no source"))?;
    let (median, _) = measure(args.budget, || {
        dest.copy_from_slice(from);
        std::hint::black_box(&mut dest);
        Ok(())
    })?;
    let memcpy = gigabytes(2, bytes, median);
    let mut folds = Vec::new();
    for dtype in args.datatype.dtypes() {
        for op in args.op.ops(dtype).into_iter().filter(|op| op.supports(dtype)) {
            folds.push(rate(args, dtype, op, &mut sources, &mut dest, memcpy, interrupt)?);
        }
    }
    let wrong: u64 = folds.iter().map(|rate| rate.wrong).sum();
    let isa = Isa::best().name();
    let report = Report { isa, sources: args.sources, bytes: bytes as u64, memcpy, folds };
    if args.json {
        print_json(&report)?
    } else {
        print(&report.text())?
    }
    if wrong > 0 {
        bail!("{wrong} wrong elements")
    }
    Ok(())
}

fn rate(
    args: &FoldArgs,
    dtype: DType,
    op: ReduceOp,
    sources: &mut [Pages],
    dest: &mut Pages,
    memcpy: f64,
    interrupt: &Interrupt,
) -> Result<Rate> {
    let tables = Tables::all(dtype, &[Some(op)], sources.len())?;
    let tables = tables.first().ok_or_else(|| anyhow!("no data"))?;
    for (rank, source) in sources.iter_mut().enumerate() {
        interrupt.check()?;
        tables.fill(rank, 0, source);
    }
    let ranks = sources.len() as u32;
    let list: Vec<_> = sources
        .iter_mut()
        .zip(&tables.weights)
        .zip(leaf_merges(ranks))
        .map(|((source, &weight), merges)| {
            let mem = HostPtr::new(source.as_mut_ptr());
            Source { mem, form: Form::Leaf, weight, merges }
        })
        .collect();
    let bytes = dest.len();
    let work = Fold {
        dtype,
        op: Some(op),
        count: bytes / dtype.size(),
        sources: &list,
        dests: &[HostPtr::new(dest.as_mut_ptr())],
        finish: Finish::Final { ranks },
    };
    let mut device = CpuDevice::new();
    let (median, best) = measure(args.budget, || {
        // SAFETY: sources and destination are separate blocks of `bytes` bytes, which nobody else
        // uses, and the CPU's folds are over when they have been submitted.
        unsafe { device.fold(&work, 0)? };
        device.poll_done().map_or(Ok(()), |done| done.result)?;
        Ok(())
    })?;
    let moved = sources.len() + 1;
    let median = gigabytes(moved, bytes, median);
    // The reference has one period.
    let period = bytes.min(PERIOD * dtype.size());
    let wrong = tables.differ(&tables.reduced, 0, &dest[..period]);
    Ok(Rate {
        r#type: args::nccl_name(dtype),
        op: op.name(),
        median,
        best: gigabytes(moved, bytes, best),
        of_memcpy: median / memcpy,
        wrong,
    })
}

/// Median and shortest time of a call within a budget, seven calls at least.
fn measure(budget: Duration, mut call: impl FnMut() -> Result<()>) -> Result<(Duration, Duration)> {
    call()?;
    let mut times = Vec::new();
    let started = Instant::now();
    while times.len() < 7 || started.elapsed() < budget {
        let before = Instant::now();
        call()?;
        times.push(before.elapsed());
    }
    times.sort_unstable();
    Ok((times[times.len() / 2], times[0]))
}

fn gigabytes(streams: usize, bytes: usize, time: Duration) -> f64 {
    (streams * bytes) as f64 / time.as_secs_f64() / 1e9
}

impl Report {
    fn text(&self) -> String {
        let row = |rate: &Rate| {
            vec![
                rate.r#type.to_owned(),
                rate.op.to_owned(),
                format!("{:.2}", rate.median),
                format!("{:.2}", rate.best),
                format!("{:.2}", rate.of_memcpy),
                rate.wrong.to_string(),
            ]
        };
        let header = ["type", "op", "GB/s", "best", "of memcpy", "#wrong"];
        let rows = self.folds.iter().map(row).collect();
        format!(
            "# one core ({}), {} sources of {} bytes; GB/s of bytes moved (sources and result)\n\
             # memcpy in the same run: {:.2} GB/s\n{}",
            self.isa,
            self.sources,
            self.bytes,
            self.memcpy,
            table(&header, rows, &[2, 3, 4, 5])
        )
    }
}
