//! `cargo xtask bench-net`: all-reduce between hosts, as far as the network is concerned.
//!
//! Hosts are namespaces with a wire each ([`hosts`]). Links of unequal rate are held against the
//! least time that any algorithm takes ([`bound`]), against Gloo's ring and against Open MPI; lossy
//! ones against themselves without loss.

mod bound;
mod hosts;
mod openmpi;

use crate::project::Project;
use crate::{cmd, launchers};
use anyhow::{Context, Result};
use bound::Rates;
use clap::Args;
pub use hosts::Hosts;
use openmpi::OpenMpi;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `cargo xtask bench-net` takes.
#[derive(Args, Debug)]
pub struct Options {
    /// Rates of the hosts' links in Mbit/s; several lists may be given.
    #[arg(long, value_name = "R,…", default_values = ["200,200,200,50", "200,200,200,200"])]
    rates: Vec<String>,
    /// Bytes of the tensors: 1048576, 8388608 or 67108864.
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 20)]
    bytes: u64,
    /// Bytes of a chunk where shares are planned.
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10)]
    chunk: u64,
    /// Seconds for each program and size.
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    budget: f64,
    /// Rate of the link of a host more, which has no data and folds for the others; 0: none.
    #[arg(long, value_name = "R", default_value_t = 200.0)]
    aggregator: f64,
    /// Packets lost, in thousandths.
    #[arg(long, value_name = "P,…", value_delimiter = ',', default_value = "0,10,100,300")]
    loss: Vec<u32>,
    /// Rate of the hosts' links where packets get lost.
    #[arg(long, value_name = "R", default_value_t = 1000.0)]
    loss_rate: f64,
}

/// Measures and prints tables; where there can be no namespaces, says so.
///
/// # Errors
/// If something does not build, or a program fails or gets a wrong sum.
pub fn run(project: &Project, options: &Options) -> Result<()> {
    if let Err(error) = launchers::namespaces() {
        eprintln!("NOT MEASURED: {error:#}");
        return Ok(());
    }
    let mut cargo = project.cargo();
    cargo.args(["build", "--locked", "--release", "--package", "unisono"]);
    cmd::run_aside(cargo.args(["--example", "all_reduce_loop"]))?;
    let programs = Programs {
        unisono: project.target.join("release/examples/all_reduce_loop"),
        gloo: gloo(project)?,
        openmpi: OpenMpi::find(project)?,
        budget: options.budget,
    };
    for rates in &options.rates {
        let rates = rates.split(',').map(str::parse).collect::<Result<Vec<f64>, _>>();
        let rates = rates.context("--rates")?;
        rate_table(project, &programs, &rates, options)?;
        if options.aggregator > 0.0 {
            aggregator_row(project, &programs, &rates, options)?;
        }
    }
    let Some(most) = options.loss.iter().max().copied().filter(|&most| most > 0) else {
        return Ok(());
    };
    // More takes TCP minutes with one packet in ten lost.
    let bytes = options.bytes.min(1 << 20);
    println!("\nLoss of up to {most} ‰, 4 hosts, {} Mbit/s each\n", options.loss_rate);
    println!("| links | lost ‰ | {bytes} B: MB/s | 8 B: median ms | 99th percentile ms |");
    println!("|---|---|---|---|---|");
    for (links, protocol, bearable) in [("tcp", "tcp", 100), ("udp", "udp", u32::MAX)] {
        for &lost in options.loss.iter().filter(|&&lost| lost <= bearable) {
            let hosts = Hosts::make(project, &[options.loss_rate; 4])?;
            hosts.lose(protocol, lost)?;
            let large = programs.unisono(&hosts, &[links_of(links), only(bytes)], &[])?;
            let small = [links_of(links), only(8), vec!["--tail".into()]];
            let small = programs.unisono(&hosts, &small, &[])?;
            let rate = bytes as f64 / large.median_us;
            let (median, tail) = (small.median_us / 1e3, small.tail_us / 1e3);
            println!("| {links} | {lost} | {rate:.1} | {median:.2} | {tail:.2} |");
        }
    }
    Ok(())
}

fn links_of(name: &str) -> Vec<String> {
    vec![format!("--{name}")]
}

fn only(bytes: u64) -> Vec<String> {
    vec!["--only".into(), bytes.to_string()]
}

/// Every program over links of these rates.
fn rate_table(
    project: &Project,
    programs: &Programs,
    rates: &[f64],
    options: &Options,
) -> Result<()> {
    let hosts = Hosts::make(project, rates)?;
    let (bytes, links) = (options.bytes, Rates { ranks: rates, aggregators: &[] });
    let least = links.seconds(bytes) * 1e6;
    let planned = planned(links);
    let chunk = [("CHUNK", (options.chunk / 4).to_string())];
    println!("\nLinks of {rates:?} Mbit/s, {bytes} B; at least {:.0} ms\n", least / 1e3);
    println!("| program | median ms | over the bound | least ms | over the bound |");
    println!("|---|---|---|---|---|");
    let print = |name: &str, row: &Row| row.print(name, least);
    let base = [links_of("tcp"), only(bytes)];
    print("unisono, equal shares", &programs.unisono(&hosts, &base, &[])?);
    let [tcp, size] = base;
    let row = programs.unisono(&hosts, &[tcp, size.clone(), planned.clone()], &chunk)?;
    print("unisono, planned shares", &row);
    let row = programs.unisono(&hosts, &[links_of("udp"), size, planned], &chunk)?;
    print("unisono, planned shares, UDP", &row);
    match &programs.gloo {
        Some(gloo) => print("Gloo, ring", &programs.gloo(&hosts, gloo, bytes)?),
        None => println!("| Gloo | not installed | | | |"),
    }
    match &programs.openmpi {
        Some(openmpi) => print("Open MPI", &openmpi.run(&hosts, bytes, programs.budget)?),
        None => println!("| Open MPI | not installed: `host/peers/install.sh` | | | |"),
    }
    Ok(())
}

fn planned(links: Rates<'_>) -> Vec<String> {
    let shares: Vec<String> = links.shares().iter().map(u32::to_string).collect();
    vec!["--shares".to_owned(), shares.join(":")]
}

/// unisono with a member without data on a host more.
fn aggregator_row(
    project: &Project,
    programs: &Programs,
    rates: &[f64],
    options: &Options,
) -> Result<()> {
    let more = [options.aggregator];
    let hosts = Hosts::make(project, &[rates, &more].concat())?;
    let links = Rates { ranks: rates, aggregators: &more };
    let least = links.seconds(options.bytes);
    // It does not learn how long a call takes.
    let runs = (programs.budget / least).ceil().clamp(5.0, 200.0).to_string();
    let aggregator = ["--aggregators", "1", "--runs", &runs].map(str::to_owned).to_vec();
    let args = [links_of("tcp"), only(options.bytes), planned(links), aggregator];
    let chunk = [("CHUNK", (options.chunk / 4).to_string())];
    let row = programs.unisono(&hosts, &args, &chunk)?;
    let name = format!(
        "unisono, planned shares, an aggregator at {} Mbit/s: at least {:.0} ms",
        options.aggregator,
        least * 1e3
    );
    row.print(&name, least * 1e6);
    Ok(())
}

/// What was measured of one program.
struct Row {
    median_us: f64,
    min_us: f64,
    /// 99th percentile, if it was asked for.
    tail_us: f64,
}

impl Row {
    /// As a line of a table; `least`: what it is held against, in microseconds.
    fn print(&self, name: &str, least: f64) {
        let Self { median_us, min_us, .. } = self;
        println!(
            "| {name} | {:.0} | {:.2} | {:.0} | {:.2} |",
            median_us / 1e3,
            median_us / least,
            min_us / 1e3,
            min_us / least
        );
    }

    /// From what a program prints for its largest tensor.
    fn of(text: &str) -> Result<Self> {
        let wrong = || format!("no row in {text:?}");
        let line = text.lines().rfind(|line| line.split(',').count() == 7);
        let mut numbers = line.with_context(wrong)?.split(',').skip(3);
        let mut number = || -> Result<f64> { Ok(numbers.next().with_context(wrong)?.parse()?) };
        let (median_us, min_us) = (number()?, number()?);
        let tail = text.lines().find_map(|line| line.strip_prefix("p99_us,"));
        let tail_us = tail.map_or(Ok(f64::NAN), str::parse)?;
        Ok(Self { median_us, min_us, tail_us })
    }
}

/// What is measured.
struct Programs {
    unisono: PathBuf,
    gloo: Option<PathBuf>,
    openmpi: Option<OpenMpi>,
    budget: f64,
}

impl Programs {
    /// unisono's loop on every host.
    fn unisono(&self, hosts: &Hosts, args: &[Vec<String>], env: &[(&str, String)]) -> Result<Row> {
        let job = format!("bench-net-{}", std::process::id());
        let one = |rank: usize| {
            let mut command = hosts.rank(rank, &self.unisono, &job);
            command.args(args.iter().flatten()).env("BENCH_BUDGET_S", self.budget.to_string());
            command.envs(env.iter().map(|(name, value)| (*name, value)));
            command
        };
        Row::of(&hosts.run(one)?)
    }

    fn gloo(&self, hosts: &Hosts, program: &Path, bytes: u64) -> Result<Row> {
        let store = tempfile::tempdir()?;
        let one = |rank: usize| {
            let mut command = Hosts::on(rank, program);
            command.arg("ring").env("RANK", rank.to_string()).env("SIZE", "4");
            command.env("IFACE", "e0").env("STORE", store.path());
            command.env("BENCH_BUDGET_S", self.budget.to_string());
            command.env("BENCH_MIN_BYTES", bytes.to_string());
            command.env("BENCH_MAX_BYTES", bytes.to_string());
            command
        };
        Row::of(&hosts.run(one)?)
    }
}

/// Gloo's program, if its library is installed.
fn gloo(project: &Project) -> Result<Option<PathBuf>> {
    if !Path::new("/usr/include/gloo/allreduce.h").exists() {
        return Ok(None);
    }
    let program = project.target.join("bench-net-gloo");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O3", "-march=native", "-Wno-unused-parameter"]);
    compiler.arg(project.root.join("host/peers/gloo.cpp")).arg("-o").arg(&program).arg("-lgloo");
    cmd::run_aside(&mut compiler)?;
    Ok(Some(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let row = Row::of("a,4,8,10.00,9.00,0.1,0.2\na,4,16,20.00,19.00,0.1,0.2\np99_us,33.5\n");
        let row = row.expect("two rows");
        assert_eq!((row.median_us, row.min_us, row.tail_us), (20.0, 19.0, 33.5));
        assert!(Row::of("nothing\n").is_err());
    }
}
