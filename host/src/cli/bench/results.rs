//! From times to rows, averages and JSON.

use super::super::args::{Place, Ranks, nccl_name};
use super::super::staged::Staged;
use super::args::CollectiveArgs;
use super::format::{Half, Row, general, header};
use super::replan::Made;
use super::run::Case;
use anyhow::{Result, bail};
use serde::Serialize;
use unisono::device::Pci;

/// What one half of a row shows, in seconds; `None` if there is no such half.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    mean: f64,
    min: f64,
    median: f64,
    wrong: u64,
}

impl Sampled {
    /// From every rank's samples (each the time of one call); `-a` says whose time counts.
    pub fn new(args: &CollectiveArgs, times: &[Vec<f64>], wrong: u64) -> Option<Self> {
        let samples = times.iter().map(Vec::len).min().filter(|&n| n > 0)?;
        let of_ranks = |sample: usize| times.iter().map(move |rank| rank[sample]);
        let one = |sample| match args.average {
            0 => of_ranks(sample).next().unwrap_or(0.0),
            2 => of_ranks(sample).fold(f64::INFINITY, f64::min),
            3 => of_ranks(sample).fold(0.0, f64::max),
            _ => of_ranks(sample).sum::<f64>() / times.len() as f64,
        };
        let mut sorted: Vec<f64> = (0..samples).map(one).collect();
        sorted.sort_by(f64::total_cmp);
        let middle = samples / 2;
        let median = match samples % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        let mean = sorted.iter().sum::<f64>() / samples as f64;
        Some(Self { mean, min: sorted[0], median, wrong })
    }
}

/// All rows so far, in the words of nccl-tests' JSON.
#[derive(Debug, Serialize)]
pub struct Results {
    program: String,
    collective: &'static str,
    ranks: usize,
    average: u8,
    samples: u32,
    results: Vec<Entry>,
    out_of_bounds: OutOfBounds,
    average_bus_bandwidth: Average,
    /// With `--replan`: the times at which that was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    replans: Option<Vec<Made>>,
}

#[derive(Debug, Serialize)]
struct Entry {
    size: u64,
    count: u64,
    r#type: &'static str,
    redop: &'static str,
    root: i32,
    out_of_place: Option<Side>,
    in_place: Option<Side>,
    actual_iterations: u32,
}

/// Times in microseconds, bandwidths in GB/s.
#[derive(Debug, Serialize)]
struct Side {
    time: f64,
    alg_bw: f64,
    bus_bw: f64,
    nwrong: Option<u64>,
    mean_time: f64,
    min_time: f64,
    median_time: f64,
}

#[derive(Debug, Default, Serialize)]
struct OutOfBounds {
    count: u64,
    okay: bool,
}

#[derive(Debug, Default, Serialize)]
struct Average {
    bandwidth: f64,
}

impl Side {
    fn new(args: &CollectiveArgs, ranks: usize, size: u64, sampled: &Sampled) -> Self {
        let seconds = if args.median { sampled.median } else { sampled.mean };
        let alg_bw = size as f64 / seconds / 1e9;
        Self {
            time: seconds * 1e6,
            alg_bw,
            bus_bw: alg_bw * args.collective.factor(ranks),
            nwrong: (args.check > 0).then_some(sampled.wrong),
            mean_time: sampled.mean * 1e6,
            min_time: sampled.min * 1e6,
            median_time: sampled.median * 1e6,
        }
    }

    const fn half(&self) -> Half {
        Half { time: self.time, algbw: self.alg_bw, busbw: self.bus_bw, wrong: self.nwrong }
    }
}

/// A line for each rank of this process, the first of which has this number.
pub fn seats(ranks: &Ranks, first: usize) -> Vec<String> {
    let (host, model) = super::super::devices::host_and_cpu();
    let pid = std::process::id();
    let line = |(rank, place): (usize, &Place)| {
        let card = if let Place::Gpu(device) = place { Some(device.card()) } else { None };
        let name = place.name(&model);
        let none = Pci { domain: 0, bus: 0, device: 0, function: 0 };
        let Pci { domain, bus, device, .. } = card.and_then(|c| c.pci).unwrap_or(none);
        format!(
            "#  Rank {rank:>2} Group  0 Pid {pid:>6} on {host:>10} device {rank:>2} \
             [{domain:04x}:{bus:02x}:{device:02x}] {name}\n"
        )
    };
    (first..).zip(ranks.places()).map(line).collect()
}

impl Results {
    /// No rows yet.
    pub fn new(args: &CollectiveArgs, ranks: usize) -> Self {
        Self {
            program: format!("unisono {}", env!("CARGO_PKG_VERSION")),
            collective: args.collective.program(),
            ranks,
            average: args.average,
            samples: args.samples,
            results: Vec::new(),
            out_of_bounds: OutOfBounds { count: 0, okay: true },
            average_bus_bandwidth: Average::default(),
            replans: args.replan.map(|_| Vec::new()),
        }
    }

    /// What stands above the rows.
    pub fn preamble(&self, args: &CollectiveArgs, seats: &[String], ranks: &Ranks) -> String {
        let name = args.collective.program();
        let (step, unit) = match args.stepfactor {
            Some(factor) => (factor, "factor"),
            None => (args.stepbytes, "bytes"),
        };
        let mut text = format!(
            "# {} (the format is that of nccl-tests)\n# Collective test starting: {name}\n\
             # nThread {} nGpus 1 minBytes {} maxBytes {} step: {step}({unit}) \
             warmup iters: {} iters: {} agg iters: 1 validation: {} graph: 0 unalign: 0\n\
             #\n# Using devices\n",
            self.program,
            seats.len(),
            args.minbytes,
            args.maxbytes,
            args.warmup_iters,
            args.iters,
            args.check
        );
        text.extend(seats.iter().map(String::as_str));
        for place in ranks.aggregators() {
            let about = if let Place::Board(dpu) = place { dpu.about() } else { "a thread" };
            text.push_str(&format!("#  Aggregator {}: {about}\n", place.name("cpu")));
        }
        text.push_str("#\n");
        text.push_str(&header());
        text
    }

    /// Adds a row; returns it as a line.
    pub fn add(
        &mut self,
        args: &CollectiveArgs,
        case: &Case<'_>,
        halves: [Option<Sampled>; 2],
    ) -> String {
        let Case { call, size, .. } = *case;
        let [out_of_place, in_place] =
            halves.map(|half| half.map(|sampled| Side::new(args, self.ranks, size, &sampled)));
        let entry = Entry {
            size,
            count: call.count,
            r#type: nccl_name(call.dtype),
            redop: call.op.map_or("none", |op| op.name()),
            root: if call.kind.is_rooted() { i32::from(call.root) } else { -1 },
            out_of_place,
            in_place,
            actual_iterations: args.iters,
        };
        let sides = [&entry.out_of_place, &entry.in_place];
        let row = Row {
            size,
            count: entry.count,
            dtype: entry.r#type,
            op: entry.redop,
            root: entry.root,
            halves: sides.map(|side| side.as_ref().map(Side::half)),
        };
        let line = row.line();
        self.results.push(entry);
        self.total();
        line
    }

    /// Plans have been made anew.
    pub fn replanned(&mut self, made: Made) {
        self.replans.get_or_insert_default().push(made);
    }

    /// Sums and averages over all halves of all rows.
    fn total(&mut self) {
        let sides = || self.results.iter().flat_map(|e| [&e.out_of_place, &e.in_place]).flatten();
        let count = sides().filter_map(|side| side.nwrong).sum();
        let bandwidth =
            sides().map(|side| side.bus_bw).sum::<f64>() / sides().count().max(1) as f64;
        self.out_of_bounds = OutOfBounds { count, okay: count == 0 };
        self.average_bus_bandwidth = Average { bandwidth };
    }

    /// What stands below the rows.
    pub fn footer(&self, args: &CollectiveArgs) -> String {
        let OutOfBounds { count, okay } = self.out_of_bounds;
        let okay = if okay { "OK" } else { "FAILED" };
        let average = general(self.average_bus_bandwidth.bandwidth);
        format!(
            "# {:<20} : {count} {okay}\n# {:<20} : {average} \n#\n\
             # Collective test concluded: {}\n#\n",
            "Out of bounds values",
            "Avg bus bandwidth",
            args.collective.program()
        )
    }

    /// The same as JSON.
    pub fn write_json(&self, mut file: Staged) -> Result<()> {
        file.write(&serde_json::to_vec_pretty(self)?)?;
        file.sync()?;
        file.keep()
    }

    /// An error if anything was wrong.
    pub fn demand(&self) -> Result<()> {
        match self.out_of_bounds.count {
            0 => Ok(()),
            wrong => bail!("{wrong} wrong elements"),
        }
    }
}
