//! `cargo xtask bench-peers`: unisono and other all-reduce libraries, in turn, in one run.
//!
//! The programs and their launcher are in `host/peers`; [`runner`] drives it, [`rows`] is what it
//! prints, [`table`] and [`goals`] are what we make of that.

mod goals;
mod rows;
mod runner;
mod table;

use crate::project::Project;
use anyhow::{Context, Result, bail};
use clap::Args;
use rows::{Medians, Row};
use runner::Runner;
use std::fs;
use std::path::PathBuf;

/// What `cargo xtask bench-peers` takes.
#[derive(Args, Debug)]
pub struct Options {
    /// Numbers of processes.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2,4")]
    ranks: Vec<u16>,
    /// How often everything runs; the median counts.
    #[arg(long, value_name = "K", default_value_t = 5)]
    rounds: usize,
    /// Seconds for each library and size in a round.
    #[arg(long, value_name = "S", default_value_t = 0.7)]
    budget: f64,
    /// Only those whose name matches.
    #[arg(long, value_name = "REGEX")]
    only: Option<String>,
    /// Leave tensors of more bytes out.
    #[arg(long, value_name = "BYTES")]
    largest: Option<u64>,
    /// Before each program, wait so long for the rest of the machine to get idle.
    #[arg(long, value_name = "S", default_value_t = 10)]
    quiet: u32,
    /// Install what is missing (venvs in ~/.cache/allreduce-peers or $PEERS, packages by apt).
    #[arg(long)]
    install: bool,
    /// Write the tables to this file as Markdown, and all rows beside it as CSV.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Measure nothing: tables of rows that were written earlier.
    #[arg(long, value_name = "CSV", conflicts_with_all = ["install", "out"])]
    from: Vec<PathBuf>,
}

/// Builds, runs, prints and writes the tables.
///
/// # Errors
/// If something does not build, if a program fails or gets wrong sums (after the tables of the
/// others), or if a file cannot be written.
pub fn run(project: &Project, options: &Options) -> Result<()> {
    if !options.from.is_empty() {
        print!("{}", report(&read(&options.from)?));
        return Ok(());
    }
    let runner = Runner::new(project, options)?;
    let (rows, failures) = runner.all()?;
    if rows.is_empty() {
        bail!("nothing was measured; {}", failures.join("; "));
    }
    let text = format!("{}{}", runner.about()?, report(&rows));
    print!("\n{text}");
    if let Some(path) = &options.out {
        let write = |path: &PathBuf, text: String| {
            fs::write(path, text).with_context(|| format!("writing {}", path.display()))
        };
        write(path, text)?;
        write(&path.with_extension("csv"), rows::csv(&rows))?;
    }
    if !failures.is_empty() {
        bail!("the tables are without what failed: {}", failures.join("; "));
    }
    Ok(())
}

/// The smallest run: unisono's programs and the limit, two processes, right sums.
///
/// # Errors
/// As [`run`], or if anything is left out.
pub fn smoke(project: &Project) -> Result<()> {
    const NAMES: [&str; 4] = ["limit-fold", "unisono-shm", "unisono-vec", "unisono-tcp"];
    const LARGEST: u64 = 1 << 20;
    let options = Options {
        ranks: vec![2],
        rounds: 1,
        budget: 0.01,
        only: Some("^(limit-fold|unisono-)".into()),
        largest: Some(LARGEST),
        quiet: 0,
        install: false,
        out: None,
        from: Vec::new(),
    };
    let (rows, failures) = Runner::debug(project, &options)?.all()?;
    if !failures.is_empty() {
        bail!("{}", failures.join("; "));
    }
    let medians = Medians::of(&rows);
    for name in NAMES {
        if medians.us(name, 2, LARGEST).is_none() {
            bail!("{name} gave no row for {LARGEST} bytes");
        }
    }
    print!("{}", report(&rows));
    Ok(())
}

fn read(files: &[PathBuf]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        for (at, line) in text.lines().enumerate().skip(1) {
            let row = line.parse().with_context(|| format!("{}:{}", file.display(), at + 1))?;
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Tables of all numbers of ranks, then the goals.
fn report(rows: &[Row]) -> String {
    let medians = Medians::of(rows);
    let mut text = table::busy(rows);
    for ranks in medians.ranks() {
        text += &table::tables(&medians, ranks);
    }
    text + &goals::list(&medians)
}
