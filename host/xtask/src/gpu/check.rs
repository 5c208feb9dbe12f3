//! `cargo xtask gpu-check`: everything about the GPUs of a machine, in one run.
//!
//! 1. The list of devices, with features and what the self-test found.
//! 2. The conformance suite on each device, through each API that sees it.
//! 3. How fast each folds, against its own copy of memory.
//! 4. A group of the CPU and all devices, in every schedule, on the shipped gradients.
//!
//! Building takes longer than checking, and a machine with a GPU may have no compiler: `--pack`
//! makes a folder of programs, and the program `xtask` in it runs there with `--packed`.

use crate::cmd;
use crate::project::Project;
use anyhow::{Context, Result, bail};
use cargo_metadata::Message;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What `cargo xtask gpu-check` takes.
#[derive(clap::Args, Debug, Default)]
pub struct Options {
    /// Only build, into this folder, to be taken to a machine with a GPU
    #[arg(long, value_name = "FOLDER", conflicts_with = "packed")]
    pack: Option<PathBuf>,
    /// Run what is in a folder that --pack has made: `FOLDER/xtask gpu-check --packed FOLDER`
    #[arg(long, value_name = "FOLDER")]
    pub packed: Option<PathBuf>,
    /// Random bit patterns of each type in the suites; more take longer
    #[arg(long, default_value_t = 100_000)]
    patterns: usize,
    /// Software devices, too
    #[arg(long)]
    software: bool,
}

/// The suites: the package, the API's name in `unisono devices`, the variable that picks a device.
const SUITES: [(&str, &str, &str); 2] = [
    ("unisono-device-vulkan", "vulkan", "UNISONO_VULKAN"),
    ("unisono-device-opencl", "opencl", "UNISONO_OPENCL"),
];

const DATA: &str = "digits-mlp";

/// Builds, and runs unless the programs are only packed.
///
/// # Errors
/// If something does not build, or a check fails.
pub fn run(project: &Project, options: &Options) -> Result<()> {
    let folder = options.pack.clone().unwrap_or_else(|| project.target.join("gpu-check"));
    pack(project, &folder)?;
    if options.pack.is_some() {
        println!(
            "take {0} to the machine and run {0}/xtask gpu-check --packed {0}",
            folder.display()
        );
        return Ok(());
    }
    packed(&folder, options)
}

/// Everything that a run needs, in one folder.
fn pack(project: &Project, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join(DATA)).with_context(|| folder.display().to_string())?;
    let mut build = project.cargo();
    build.args(["build", "--locked", "--release", "--package", "unisono", "--package", "xtask"]);
    cmd::run(&mut build)?;
    for program in ["unisono", "xtask"] {
        let from = project.target.join("release").join(program);
        copy(&from, &folder.join(program))?;
    }
    for (package, api, _) in SUITES {
        copy(&suite(project, package)?, &folder.join(format!("suite-{api}")))?;
    }
    for entry in fs::read_dir(project.root.join("host/data").join(DATA))? {
        let entry = entry?;
        copy(&entry.path(), &folder.join(DATA).join(entry.file_name()))?;
    }
    Ok(())
}

/// Builds a driver's suite; returns where it is.
fn suite(project: &Project, package: &str) -> Result<PathBuf> {
    let mut build = project.cargo();
    build.args(["test", "--locked", "--release", "--package", package, "--test", "suite"]);
    build.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let messages = cmd::read(&mut build)?;
    let built = Message::parse_stream(messages.as_bytes()).filter_map(|message| match message {
        Ok(Message::CompilerArtifact(artifact)) => artifact.executable,
        _ => None,
    });
    let built = built.last().with_context(|| format!("the suite of {package} was not built"))?;
    Ok(built.into())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    // A program that runs cannot be written to, but it can be replaced.
    let _ = fs::remove_file(to);
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    Ok(())
}

/// A device as one API sees it.
#[derive(Debug)]
struct Seen {
    on: String,
    software: bool,
}

/// Runs all that is in the folder.
///
/// # Errors
/// Names what failed, after all has been run.
pub fn packed(folder: &Path, options: &Options) -> Result<()> {
    let folder = &fs::canonicalize(folder).with_context(|| folder.display().to_string())?;
    let started = Instant::now();
    let tool = folder.join("unisono");
    cmd::run(Command::new(&tool).args(["devices", "-v"]))?;
    let listed = cmd::read(Command::new(&tool).args(["devices", "--json"]))?;
    let mut seen = seen(&listed)?;
    seen.retain(|device| options.software || !device.software);
    if seen.is_empty() {
        bail!("no GPU here; --software checks software devices");
    }
    let mut failed = Vec::new();
    let mut check = |what: String, command: &mut Command| {
        println!("\n=== {what}, after {:.0} s", started.elapsed().as_secs_f64());
        if let Err(error) = cmd::run(command) {
            println!("=== {what}: FAILED: {error:#}");
            failed.push(what);
        }
    };
    // The rates first: they tell most, and take seconds.
    for Seen { on, software } in &seen {
        let mut bench = Command::new(&tool);
        let size = if *software { "1M" } else { "64M" };
        check(format!("rates of {on}"), bench.args(["bench", "device", on, "-b", size]));
    }
    let group = seen.iter().fold("cpu".to_owned(), |all, Seen { on, .. }| format!("{all},{on}"));
    for size in ["4K", "1M", "64M"] {
        let mut bench = Command::new(&tool);
        bench.args(["bench", "--on", &group, "-b", size, "-e", size, "-n", "5"]);
        check(format!("all-reduce of {size} over {group}"), &mut bench);
    }
    for algo in ["auto", "direct", "one-shot", "binomial", "halving-doubling"] {
        check(
            format!("gradients by {algo}"),
            reduce(folder, &tool, &seen, algo).stdout(Stdio::null()),
        );
    }
    for Seen { on, .. } in &seen {
        let (api, index) = on.split_once(':').context("a device without a place")?;
        let Some((.., variable)) = SUITES.iter().find(|suite| suite.1 == api) else { continue };
        let mut suite = Command::new(folder.join(format!("suite-{api}")));
        suite.env(variable, index).env("UNISONO_PATTERNS", options.patterns.to_string());
        check(format!("suite on {on}"), suite.args(["--test-threads", "1", "--nocapture"]));
    }
    println!("\n{} devices, {:.0} s", seen.len(), started.elapsed().as_secs_f64());
    if !failed.is_empty() {
        bail!("failed: {}", failed.join("; "));
    }
    println!("all checks passed");
    Ok(())
}

/// Four files over the CPU and as many of the devices as there are files for.
fn reduce(folder: &Path, tool: &Path, seen: &[Seen], algo: &str) -> Command {
    let mut ranks: Vec<&str> = seen.iter().map(|device| device.on.as_str()).take(3).collect();
    ranks.resize(4, "cpu");
    let mut reduce = Command::new(tool);
    reduce.args(["reduce", "--on", &ranks.join(","), "--algo", algo, "--verify", "-o"]);
    reduce.arg(folder.join("sum.safetensors"));
    reduce.args((0..4).map(|rank| folder.join(DATA).join(format!("rank{rank}.safetensors"))));
    reduce
}

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
