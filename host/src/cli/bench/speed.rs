//! `unisono bench device`: one GPU by itself.

use super::super::args;
use super::super::drivers::Wanted;
use super::super::error::Usage;
use super::super::interrupt::{Interrupt, catch_again};
use super::super::report::{print, print_json, table, time};
use super::args::{Some1, dtypes, ops};
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;
use unisono::device::{Bench, DeviceSpec, Opened};
use unisono::{DType, ReduceOp};

/// Options of `unisono bench device`.
#[derive(clap::Args, Debug)]
pub struct DeviceArgs {
    /// Which device: vulkan:WHICH or opencl:WHICH
    device: DeviceSpec,
    /// Element type, or all
    #[arg(short = 'd', long, value_name = "TYPE", default_value = "all", value_parser = dtypes)]
    datatype: Some1<DType>,
    /// Operator, or all
    #[arg(short = 'o', long, value_name = "OP", default_value = "sum", value_parser = ops)]
    op: Some1<ReduceOp>,
    /// Sources of a fold
    #[arg(short = 'k', long, default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=16))]
    sources: u16,
    /// Size of each source
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "16M",
          value_parser = args::some_bytes)]
    bytes: u64,
    /// Time to spend on each row
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = args::duration)]
    budget: Duration,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl DeviceArgs {
    /// What is asked of which API.
    pub fn wanted(&self) -> Vec<Wanted> {
        Wanted::these(std::slice::from_ref(&self.device))
    }
}

/// Everything that was measured; rates in GB/s.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    driver: String,
    sources: u16,
    bytes: u64,
    /// Within the device's memory; bytes read and bytes written.
    copy: f64,
    /// From pinned memory of the host and to it; each byte counts once.
    upload: f64,
    download: f64,
    /// Seconds of a tiny fold, submitted and waited for.
    trip: f64,
    /// The same in a batch.
    batched: f64,
    folds: Vec<Rate>,
}

/// One row.
#[derive(Debug, Serialize)]
struct Rate {
    r#type: &'static str,
    op: &'static str,
    /// All sources read, the result written.
    rate: f64,
    /// Over the rate of the copy.
    of_copy: f64,
    /// Seconds from the first call to its result: the compiler's, unless it has the kernel cached.
    first: f64,
}

/// Runs the command.
pub fn run(args: &DeviceArgs, interrupt: &Interrupt) -> Result<()> {
    if let DeviceSpec::Dpu(_) = args.device {
        let text = "a board is no device of this machine: measure a group that it is in, as with \
                    `bench all_reduce --on cpu,cpu,dpu:NAME`";
        return Err(Usage(text.into()).into());
    }
    let Some(on) = Opened::open(&args.device).map_err(unisono::Error::from)? else {
        return Err(Usage(format!("{} is no GPU; `bench fold` is for the CPU", args.device)).into());
    };
    let bytes = usize::try_from(args.bytes.next_multiple_of(64))?;
    let stop = Some(interrupt.flag());
    let mut bench = Bench::new(&on, args.sources, bytes, args.budget, stop)?;
    catch_again();
    let gigabytes = |streams: usize, seconds: f64| (streams * bytes) as f64 / seconds / 1e9;
    let copy = gigabytes(2, bench.copy()?);
    let mut folds = Vec::new();
    for dtype in args.datatype.dtypes() {
        for op in args.op.ops(dtype).into_iter().filter(|op| op.supports(dtype)) {
            let first = bench.first(dtype, op)?;
            let rate = gigabytes(usize::from(args.sources) + 1, bench.fold(dtype, op)?);
            let (r#type, op) = (args::nccl_name(dtype), op.name());
            folds.push(Rate { r#type, op, rate, of_copy: rate / copy, first });
        }
    }
    let [trip, batched] = bench.trips()?;
    let report = Report {
        device: on.card().name.clone(),
        driver: on.card().driver.clone(),
        sources: args.sources,
        bytes: bytes as u64,
        copy,
        upload: gigabytes(1, bench.upload()?),
        download: gigabytes(1, bench.download()?),
        trip,
        batched,
        folds,
    };
    if args.json { print_json(&report) } else { print(&report.text()) }
}

impl Report {
    fn text(&self) -> String {
        let Self { device, driver, sources, bytes, copy, upload, download, trip, batched, .. } =
            self;
        let row = |rate: &Rate| {
            vec![
                rate.r#type.to_owned(),
                rate.op.to_owned(),
                format!("{:.2}", rate.rate),
                format!("{:.2}", rate.of_copy),
                time(rate.first),
            ]
        };
        let rows = self.folds.iter().map(row).collect();
        format!(
            "# {device}, {driver}\n\
             # {sources} sources of {bytes} bytes; GB/s of bytes moved (sources and result)\n\
             # its own copy {copy:.2} GB/s (read and written), upload {upload:.2} GB/s, \
             download {download:.2} GB/s\n\
             # a tiny fold {}, one of a batch {}\n{}",
            time(*trip),
            time(*batched),
            table(&["type", "op", "GB/s", "of copy", "first"], rows, &[2, 3, 4])
        )
    }
}
