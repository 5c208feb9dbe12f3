//! The simulator's command: many seeds, or one of them again.

use clap::Parser;
use std::process::ExitCode;
use unisono_sim::{Report, Summary, run, run_traced};

/// Simulates whole groups with faults drawn from seeds, and checks what comes out.
#[derive(Debug, Parser)]
#[command(name = "unisono-sim", version)]
struct Options {
    /// Play this seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// Print what happens, event by event (with --seed).
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Play so many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Begin with this one.
    #[arg(long, default_value_t = 0)]
    from: u64,
}

fn complain(report: &Report) {
    println!("seed {}:", report.seed);
    report.complaints.iter().for_each(|what| println!("  {what}"));
    println!("  replay: {}", report.replay());
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut summary = Summary::default();
    let seeds = match options.seed {
        Some(seed) => seed..seed + 1,
        None => options.from..options.from + options.seeds,
    };
    for seed in seeds {
        let report = if options.trace { run_traced(seed) } else { run(seed) };
        report.trace.iter().for_each(|line| println!("{line}"));
        summary.add(&report);
        if !report.is_good() {
            complain(&report);
        } else if options.seed.is_some() {
            println!("seed {seed} is good, hash {:016x}", report.hash);
        }
    }
    print!("{summary}");
    if summary.bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
