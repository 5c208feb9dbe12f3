//! `cargo xtask test`: every check of the project, one after the other.
//!
//! [`parts::PARTS`] is the list. A part that fails does not stop the next one; a mandatory part
//! that cannot run is a failure, an optional one is named and skipped. The last line counts all.

mod parts;
mod report;

use crate::project::Project;
use anyhow::{Result, bail};
use clap::Args;
use parts::{PARTS, Part};
use report::{Row, Verdict};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What `cargo xtask test` takes.
#[derive(Args, Debug, Default)]
pub struct Options {
    /// Leave the slow parts out (interleavings, bare metal, sizes, demo).
    #[arg(long)]
    quick: bool,
    /// Run only this part; may be given more than once.
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// List the parts and do nothing.
    #[arg(long)]
    list: bool,
}

impl Options {
    /// Why the part is left out, if the user wants it so.
    fn leaves_out(&self, part: &Part) -> Option<&'static str> {
        if !self.only.is_empty() {
            return (!self.only.iter().any(|o| o == part.name)).then_some("--only");
        }
        (self.quick && part.slow).then_some("--quick")
    }
}

/// Runs the parts that `options` ask for and prints the summary.
///
/// # Errors
/// If `--only` names no part. Failing parts are no error of this function but its exit code.
pub fn run(project: &Project, options: &Options) -> Result<ExitCode> {
    if options.list {
        for part in PARTS {
            let need = if part.mandatory { "mandatory" } else { "optional" };
            let pace = if part.slow { "slow" } else { "quick" };
            println!("{:<12} {need:<10} {pace:<6} {}", part.name, part.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(unknown) = options.only.iter().find(|o| PARTS.iter().all(|p| p.name != **o)) {
        let names: Vec<&str> = PARTS.iter().map(|p| p.name).collect();
        bail!("no part is called {unknown}; the parts are {}", names.join(", "));
    }
    let rows: Vec<Row> = PARTS.iter().map(|part| row(project, options, part)).collect();
    print!("{}", report::summary(&rows));
    let failed = rows.iter().any(|r| r.verdict == Verdict::Failed);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn row(project: &Project, options: &Options, part: &Part) -> Row {
    if let Some(flag) = options.leaves_out(part) {
        println!("=== {}: SKIPPED ({flag})", part.name);
        return Row::skipped(part.name, Duration::ZERO, flag);
    }
    println!("\n=== {}: {}", part.name, part.about);
    let start = Instant::now();
    let outcome = (part.run)(project);
    let row = Row::new(part.name, part.mandatory, start.elapsed(), outcome);
    println!("=== {}: {} {}", part.name, row.verdict, row.note);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_options_choose() {
        for (i, part) in PARTS.iter().enumerate() {
            assert!(PARTS[..i].iter().all(|p| p.name != part.name), "{}", part.name);
        }
        let left = |o: &Options| PARTS.iter().filter(|p| o.leaves_out(p).is_none()).count();
        assert_eq!(left(&Options::default()), PARTS.len());
        let quick = Options { quick: true, ..Options::default() };
        assert_eq!(left(&quick), PARTS.iter().filter(|p| !p.slow).count());
        let only = Options { only: vec!["tidy".to_owned()], ..Options::default() };
        assert_eq!(left(&only), 1);
    }

    #[test]
    fn an_unknown_part_is_an_error() {
        let project = Project { root: ".".into(), target: "target".into() };
        let options = Options { only: vec!["tody".to_owned()], ..Options::default() };
        let error = run(&project, &options).unwrap_err().to_string();
        assert!(error.contains("no part is called tody") && error.contains("tidy"), "{error}");
    }
}
