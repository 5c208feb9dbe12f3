//! `cargo xtask bench-plans`: what the planner forecasts, and what calls then take, for every
//! schedule, size and set-up.
//!
//! A set-up ([`place`]) is probed; then `unisono plan` says what every schedule should take, and
//! `unisono bench` what it takes, and what the planner's own choice takes ([`table`]).

mod place;
mod table;

use crate::project::Project;
use crate::{cmd, launchers};
use anyhow::{Context, Result};
use clap::Args;
use place::{Place, Setup};
use serde::Deserialize;
use std::path::Path;
use table::Table;

/// What `cargo xtask bench-plans` takes.
#[derive(Args, Debug)]
pub struct Options {
    /// Where ranks are: `shm:N` or `tcp:N` for N processes of this machine, `net:R,…` for hosts in
    /// network namespaces with links of so many Mbit/s.
    #[arg(long = "setup", value_name = "SETUP", default_values = [
        "shm:2", "shm:4", "tcp:2", "tcp:4", "net:200,200,200,50", "net:200,200,200,200",
    ])]
    setups: Vec<Setup>,
    /// Largest tensor.
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20)]
    largest: u64,
    /// Seconds for each size and schedule, more or less.
    #[arg(long, value_name = "S", default_value_t = 0.2)]
    budget: f64,
    /// Repeat everything but the probe so often; the medians count.
    #[arg(long, value_name = "K", default_value_t = 1)]
    rounds: usize,
}

/// Schedules that `--algo` names.
const SCHEDULES: [&str; 6] =
    ["direct", "ring", "one-shot", "binomial", "double-tree", "halving-doubling"];

/// The planner's choice.
const CHOICE: &str = "auto";

/// Measures and prints a table for each set-up.
///
/// # Errors
/// If something does not build, or a program fails.
pub fn run(project: &Project, options: &Options) -> Result<()> {
    let mut cargo = project.cargo();
    cargo.args(["build", "--locked", "--release", "--package", "unisono", "--bin", "unisono"]);
    cmd::run_aside(&mut cargo)?;
    let unisono = project.target.join("release/unisono");
    for setup in &options.setups {
        if let (Setup::Hosts(_), Err(error)) = (setup, launchers::namespaces()) {
            eprintln!("NOT MEASURED: {setup}: {error:#}");
            continue;
        }
        let place = Place::make(project, &unisono, setup)?;
        println!("\n{setup}\n\n{}", measured(&place, options)?);
    }
    Ok(())
}

/// One set-up.
fn measured(place: &Place, options: &Options) -> Result<Table> {
    let files = tempfile::tempdir()?;
    let topology = files.path().join("topology.json");
    place.run(&["probe", "-o", &path(&topology)])?;
    let mut table = Table::default();
    let largest = options.largest;
    let eighths = sizes(8, largest);
    for size in &forecast(place, &topology, &eighths)?.sizes {
        for schedule in &size.schedules {
            table.forecast(&schedule.name, size.bytes, schedule.seconds);
        }
    }
    let benched = |algo: &str, bytes: u64, table: &mut Table| {
        let about = table.about(algo, bytes);
        let found = bench(place, files.path(), &topology, (algo, bytes), about, options.budget);
        found.map(|time| table.measured(algo, bytes, time))
    };
    for _ in 0..options.rounds.max(1) {
        for &bytes in &eighths {
            for algo in SCHEDULES {
                benched(algo, bytes, &mut table)?;
            }
            benched(CHOICE, bytes, &mut table)?;
        }
        // Neighbours, for cliffs.
        for bytes in sizes(2, largest).into_iter().filter(|bytes| !eighths.contains(bytes)) {
            benched(CHOICE, bytes, &mut table)?;
        }
    }
    Ok(table)
}

/// Sizes from 8 bytes on.
fn sizes(factor: u64, largest: u64) -> Vec<u64> {
    let all = std::iter::successors(Some(8), |size| Some(size * factor));
    all.take_while(|size| *size <= largest).collect()
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// What `unisono plan --json` prints, as far as it is read here.
#[derive(Deserialize)]
struct Forecast {
    sizes: Vec<Size>,
}

#[derive(Deserialize)]
struct Size {
    bytes: u64,
    schedules: Vec<Schedule>,
}

#[derive(Deserialize)]
struct Schedule {
    name: String,
    seconds: f64,
}

fn forecast(place: &Place, topology: &Path, sizes: &[u64]) -> Result<Forecast> {
    let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let args = ["plan", "--order", "any", "--json", "--topology", &path(topology), "--sizes"];
    let text = place.alone(&args, &sizes.join(","))?;
    serde_json::from_str(&text).context("the forecast of `unisono plan`")
}

/// Seconds of one in-place all-reduce, the median of samples; `about`: what it should take.
fn bench(
    place: &Place,
    files: &Path,
    topology: &Path,
    (algo, bytes): (&str, u64),
    about: f64,
    budget: f64,
) -> Result<f64> {
    /// Of as many calls as fit.
    const SAMPLES: u32 = 7;
    #[derive(Deserialize)]
    struct Json {
        results: Vec<Row>,
    }
    #[derive(Deserialize)]
    struct Row {
        in_place: Times,
    }
    #[derive(Deserialize)]
    struct Times {
        median_time: f64,
        nwrong: u64,
    }
    // Each sample is made out of place, too.
    let calls = (budget / (2.0 * f64::from(SAMPLES) * about.max(1e-7))).clamp(4.0, 2000.0) as u32;
    let (json, topology) = (files.join("bench.json"), path(topology));
    let (calls, samples, size) = (calls.to_string(), SAMPLES.to_string(), bytes.to_string());
    let counts = ["-n", &calls, "--samples", &samples, "-w", "2", "-a", "3", "--median"];
    let what = ["bench", "all_reduce", "-b", &size, "-e", &size, "--algo", algo];
    let rest = ["--order", "any", "--topology", &topology, "-J", &path(&json)];
    place.run(&[&what[..], &counts, &rest].concat())?;
    let text = std::fs::read_to_string(&json).context("the times of `unisono bench`")?;
    let found: Json = serde_json::from_str(&text).context("the times of `unisono bench`")?;
    let row = found.results.first().context("`unisono bench` has no row")?;
    anyhow::ensure!(row.in_place.nwrong == 0, "{algo}, {bytes} bytes: wrong elements");
    Ok(row.in_place.median_time * 1e-6)
}
