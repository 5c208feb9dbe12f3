//! `cargo xtask gpu-check`: everything about the GPUs of a machine, in one run of limited time.
//!
//! 1. The list of devices, with features and what the self-test found.
//! 2. The conformance suite on each device, through each API that sees it, side by side.
//! 3. How fast each folds, against its own copy of memory.
//! 4. Groups of the CPU and all devices: times, and the shipped gradients by several schedules.
//! 5. The suites again, with parts of the devices taken away.
//!
//! Each step has a part of the time; what a program has printed when its time is over is kept, and
//! a summary comes last. Building takes longer than checking, and a machine with a GPU may have no
//! compiler: `--pack` makes a folder of programs, and the program `xtask` in it runs there with
//! `--packed`.

mod job;
mod pack;
mod rates;
mod report;

use crate::project::Project;
use anyhow::{Context, Result, bail};
use job::{Done, Job, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// What `cargo xtask gpu-check` takes.
#[derive(clap::Args, Debug, Default)]
pub struct Options {
    /// Only build, into this folder, to be taken to a machine with a GPU
    #[arg(long, value_name = "FOLDER", conflicts_with = "packed")]
    pack: Option<PathBuf>,
    /// Run what is in a folder that --pack has made: `FOLDER/xtask gpu-check --packed FOLDER`
    #[arg(long, value_name = "FOLDER")]
    pub packed: Option<PathBuf>,
    /// Random bit patterns of each type, operator and number of sources in the suites
    #[arg(long, default_value_t = 5_000)]
    patterns: usize,
    /// Seconds for all of it, building not counted
    #[arg(long, default_value_t = 450)]
    limit: u32,
    /// Software devices, too
    #[arg(long)]
    software: bool,
}

/// A driver's suite.
struct Suite {
    package: &'static str,
    /// As in the devices' names.
    api: &'static str,
    /// The variable that picks a device.
    variable: &'static str,
    /// The test with all that the device has.
    whole: &'static str,
    /// Those with parts of it taken away.
    masked: &'static [&'static str],
}

const SUITES: [Suite; 2] = [
    Suite {
        package: "unisono-device-vulkan",
        api: "vulkan",
        variable: "UNISONO_VULKAN",
        whole: "everything",
        masked: &["bare", "discrete"],
    },
    Suite {
        package: "unisono-device-opencl",
        api: "opencl",
        variable: "UNISONO_OPENCL",
        whole: "all_that_it_has",
        masked: &["the_least"],
    },
];

const DATA: &str = "digits-mlp";

impl Suite {
    /// Its program in the folder.
    fn program(&self) -> String {
        format!("suite-{}", self.api)
    }
}

/// Builds, and runs unless the programs are only packed.
///
/// # Errors
/// If something does not build, or a check fails.
pub fn run(project: &Project, options: &Options) -> Result<()> {
    let folder = options.pack.clone().unwrap_or_else(|| project.target.join("gpu-check"));
    pack::pack(project, &folder)?;
    if options.pack.is_some() {
        println!(
            "take {0} to the machine and run {0}/xtask gpu-check --packed {0}",
            folder.display()
        );
        return Ok(());
    }
    packed(&folder, options)
}

/// A device as one API sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    on: String,
    software: bool,
}

/// A run.
struct Check<'a> {
    folder: &'a Path,
    options: &'a Options,
    started: Instant,
    /// For all programs.
    variables: Vec<(&'static str, String)>,
    seen: Vec<Seen>,
    done: Vec<Done>,
}

/// Runs all that is in the folder.
///
/// # Errors
/// Names what failed and what there was no time for, after all has been run.
pub fn packed(folder: &Path, options: &Options) -> Result<()> {
    let folder = &fs::canonicalize(folder).with_context(|| folder.display().to_string())?;
    let (started, done) = (Instant::now(), Vec::new());
    let mut check =
        Check { folder, options, started, variables: Vec::new(), seen: Vec::new(), done };
    check.find()?;
    check.suites(false, 0.45);
    let rates = check.rates()?;
    check.groups();
    check.gradients();
    check.suites(true, 1.0);
    println!("\n=== summary after {:.0} s", started.elapsed().as_secs_f64());
    check.done.iter().for_each(|done| println!("{}", done.line()));
    print!("\n{rates}");
    check.verdict()
}

impl Check<'_> {
    /// When this share of all the time is over.
    fn at(&self, share: f64) -> Instant {
        self.started + Duration::from_secs(self.options.limit.into()).mul_f64(share)
    }

    /// So much of all the time from now on, but not past the end.
    fn next(&self, share: f64) -> Instant {
        let part = Duration::from_secs(self.options.limit.into()).mul_f64(share);
        (Instant::now() + part).min(self.at(1.0))
    }

    fn command(&self, program: &str) -> Command {
        pack::with(Command::new(self.folder.join(program)), &self.variables)
    }

    fn tool<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut tool = self.command("unisono");
        tool.args(arguments);
        tool
    }

    /// The devices: with the machine's own loaders, and if those find fewer, with the folder's.
    fn find(&mut self) -> Result<()> {
        let mut found = self.list()?;
        let help = pack::help(self.folder);
        let own = std::mem::replace(&mut self.variables, help);
        match self.list() {
            Ok(more) if more.len() > found.len() => {
                println!("with the folder's loaders: {:?}", self.variables);
                found = more;
            }
            _ => self.variables = own,
        }
        self.seen = found;
        self.step("devices".into(), self.tool(["devices", "-v"]), 0.1);
        if self.seen.is_empty() {
            bail!("no GPU here that can be used; --software checks software devices");
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<Seen>> {
        let command = self.tool(["devices", "--json"]);
        let listed = Job { what: "devices".into(), command }.run(self.next(0.1), false);
        if listed.outcome != Outcome::Passed {
            bail!("`unisono devices --json`: {}\n{}", listed.line(), listed.lines.join("\n"));
        }
        let mut seen = seen(&listed.out)?;
        seen.retain(|device| self.options.software || !device.software);
        Ok(seen)
    }

    /// Runs one program and shows what it prints.
    fn step(&mut self, what: String, command: Command, share: f64) {
        println!("\n=== {what}, after {:.0} s", self.started.elapsed().as_secs_f64());
        let done = Job { what, command }.run(self.next(share), true);
        if done.outcome != Outcome::Passed {
            println!("=== {}", done.line());
        }
        self.done.push(done);
    }

    /// The suites, on all devices side by side, until this share of the time is over.
    fn suites(&mut self, masked: bool, until: f64) {
        let mut jobs = Vec::new();
        for Seen { on, .. } in &self.seen {
            let Some((api, index)) = on.split_once(':') else { continue };
            for suite in SUITES.iter().filter(|suite| suite.api == api) {
                let tests = if masked { suite.masked } else { &[suite.whole] };
                jobs.extend(tests.iter().map(|test| {
                    let mut command = self.command(&suite.program());
                    command.args(["--exact", test, "--nocapture"]).env(suite.variable, index);
                    command.env("UNISONO_PATTERNS", self.options.patterns.to_string());
                    Job { what: format!("suite on {on}, {test}"), command }
                }));
            }
        }
        // A device's host thread spins, and its driver compiles with threads of its own.
        let width = available_parallelism().map_or(1, |cores| cores.get() / 2);
        println!("\n=== suites, after {:.0} s", self.started.elapsed().as_secs_f64());
        self.done.extend(job::side_by_side(jobs, width, self.at(until), |done| {
            println!("{}", done.line());
            if matches!(done.outcome, Outcome::Failed(_)) {
                println!("{}", done.lines[done.lines.len().saturating_sub(LAST)..].join("\n"));
            }
        }));
    }

    /// The table of rates.
    fn rates(&mut self) -> Result<String> {
        let mut table = String::new();
        for Seen { on, software } in self.seen.clone() {
            let size = if software { "1M" } else { "64M" };
            let command = self.tool(["bench", "device", &on, "-b", size, "--json"]);
            println!("\n=== rates of {on}, after {:.0} s", self.started.elapsed().as_secs_f64());
            let done = Job { what: format!("rates of {on}"), command }.run(self.next(0.1), false);
            if done.outcome == Outcome::Passed {
                let rates = rates::text(&on, &done.out)?;
                print!("{rates}");
                table += &rates;
            } else {
                println!("{}\n{}", done.line(), done.lines.join("\n"));
            }
            self.done.push(done);
        }
        Ok(table)
    }

    /// The CPU and all devices in one group.
    fn groups(&mut self) {
        let on = self.seen.iter().fold("cpu".to_owned(), |all, seen| format!("{all},{}", seen.on));
        for size in ["4K", "1M", "64M"] {
            let bench = self.tool(["bench", "--on", &on, "-b", size, "-e", size, "-n", "5"]);
            self.step(format!("all-reduce of {size} over {on}"), bench, 0.08);
        }
    }

    /// Four files over the CPU and as many of the devices as there are files for.
    fn gradients(&mut self) {
        let mut ranks: Vec<&str> = self.seen.iter().map(|seen| seen.on.as_str()).take(3).collect();
        ranks.resize(4, "cpu");
        let ranks = ranks.join(",");
        for algo in ["auto", "direct", "one-shot", "binomial", "halving-doubling"] {
            let mut reduce = self.tool(["reduce", "--on", &ranks, "--algo", algo, "--verify"]);
            reduce.arg("-o").arg(self.folder.join("sum.safetensors"));
            let file = |rank| self.folder.join(DATA).join(format!("rank{rank}.safetensors"));
            reduce.args((0..4).map(file));
            self.step(format!("gradients by {algo} over {ranks}"), reduce, 0.05);
        }
    }

    /// # Errors
    /// Unless all has passed.
    fn verdict(&self) -> Result<()> {
        let named = |wanted: fn(&Outcome) -> bool| {
            let done = self.done.iter().filter(|done| wanted(&done.outcome));
            done.map(|done| done.what.as_str()).collect::<Vec<_>>().join("; ")
        };
        let failed = named(|outcome| matches!(outcome, Outcome::Failed(_)));
        let cut = self.done.iter().filter_map(Done::cut).collect::<Vec<_>>().join("; ");
        match (failed.is_empty(), cut.is_empty()) {
            (true, true) => {
                println!("\nall {} checks passed", self.done.len());
                Ok(())
            }
            (true, false) => bail!("nothing failed, but there was no time for: {cut}"),
            (false, true) => bail!("failed: {failed}"),
            (false, false) => bail!("failed: {failed}; and there was no time for: {cut}"),
        }
    }
}

/// Lines of a failed suite that are shown.
const LAST: usize = 30;

/// What `unisono devices --json` lists, each device through each API.
fn seen(json: &str) -> Result<Vec<Seen>> {
    let listed: serde_json::Value = serde_json::from_str(json)?;
    let mut seen = Vec::new();
    for device in listed["devices"].as_array().context("a list of devices")? {
        let software = device["type"] == "software";
        for api in device["apis"].as_array().context("its APIs")? {
            if api["error"].is_null() {
                let on = api["on"].as_str().context("its name")?.to_owned();
                seen.push(Seen { on, software });
            }
        }
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read() {
        let json = r#"{"devices": [
            {"type": "discrete", "apis": [{"on": "vulkan:0", "error": null}, {"on": "opencl:1"}]},
            {"type": "software", "apis": [{"on": "vulkan:1", "error": "no"}, {"on": "vulkan:2"}]}
        ]}"#;
        let seen: Vec<_> = seen(json).unwrap().into_iter().map(|s| (s.on, s.software)).collect();
        let want = [("vulkan:0", false), ("opencl:1", false), ("vulkan:2", true)];
        assert_eq!(seen, want.map(|(on, software)| (on.to_owned(), software)));
        assert!(super::seen("{}").is_err());
    }
}
