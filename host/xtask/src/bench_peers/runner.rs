//! Drives `host/peers/run.sh`: installs, builds, runs, shows how far it is.

use super::Options;
use super::rows::Row;
use crate::cmd;
use crate::project::Project;
use crate::workspace;
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

/// A line of `run.sh --list`.
#[derive(Debug, PartialEq)]
struct Listed {
    name: String,
    installed: bool,
    version: String,
}

/// Everything built, ready to run.
pub struct Runner<'a> {
    options: &'a Options,
    scripts: PathBuf,
    /// unisono's program.
    program: PathBuf,
    list: Vec<Listed>,
}

impl<'a> Runner<'a> {
    /// Builds unisono as users get it, installs others if asked to, and says what is missing.
    ///
    /// # Errors
    /// If unisono does not build, or if nothing is to be run.
    pub fn new(project: &Project, options: &'a Options) -> Result<Self> {
        let scripts = project.root.join("host/peers");
        if options.install {
            // What could not be installed is named below, too; the rest is worth measuring.
            if let Err(error) = cmd::run_aside(&mut Command::new(scripts.join("install.sh"))) {
                eprintln!("warning: {error:#}");
            }
        }
        let mut cargo = project.cargo();
        cargo.args(["build", "--locked", "--release", "--package", "unisono"]);
        Self::build(project, cargo, "release", options)
    }

    /// As [`Runner::new`], but what tests have built already.
    ///
    /// # Errors
    /// As [`Runner::new`].
    pub fn debug(project: &Project, options: &'a Options) -> Result<Self> {
        Self::build(project, workspace::cargo(project, "build")?, "debug", options)
    }

    fn build(
        project: &Project,
        mut cargo: Command,
        profile: &str,
        options: &'a Options,
    ) -> Result<Self> {
        cmd::run_aside(cargo.args(["--example", "all_reduce_loop"]))?;
        let program = project.target.join(profile).join("examples/all_reduce_loop");
        let scripts = project.root.join("host/peers");
        let mut runner = Self { options, scripts, program, list: Vec::new() };
        let listed = cmd::read(runner.script().arg("--list"))?;
        runner.list = listed.lines().filter_map(parse_listed).collect();
        if runner.list.is_empty() {
            bail!("no program's name matches --only {}", options.only.as_deref().unwrap_or(""));
        }
        for missing in runner.list.iter().filter(|l| !l.installed) {
            eprintln!("NOT INSTALLED, so not measured: {} (see --install)", missing.name);
        }
        Ok(runner)
    }

    fn script(&self) -> Command {
        let Options { rounds, budget, quiet, .. } = self.options;
        let mut command = Command::new(self.scripts.join("run.sh"));
        command.env("UNISONO", &self.program);
        command.env("ROUNDS", rounds.to_string());
        command.env("BENCH_BUDGET_S", budget.to_string());
        command.env("QUIET_S", quiet.to_string());
        if let Some(only) = &self.options.only {
            command.env("ONLY", only);
        }
        if let Some(largest) = self.options.largest {
            command.env("BENCH_MAX_BYTES", largest.to_string());
        }
        command
    }

    /// Runs everything; also returns what failed.
    ///
    /// # Errors
    /// If the script cannot be started or prints what is no row.
    pub fn all(&self) -> Result<(Vec<Row>, Vec<String>)> {
        let (mut rows, mut failures) = (Vec::new(), Vec::new());
        let installed = self.list.iter().filter(|l| l.installed).count();
        let bar =
            ProgressBar::new((self.options.ranks.len() * self.options.rounds * installed) as u64);
        let style = "[{elapsed_precise}] {wide_bar} {pos}/{len} {msg}";
        bar.set_style(ProgressStyle::with_template(style)?);
        for &ranks in &self.options.ranks {
            self.at(ranks, &bar, &mut rows, &mut failures)?;
        }
        bar.finish_and_clear();
        Ok((rows, failures))
    }

    fn at(
        &self,
        ranks: u16,
        bar: &ProgressBar,
        rows: &mut Vec<Row>,
        failures: &mut Vec<String>,
    ) -> Result<()> {
        let mut command = self.script();
        command.arg(ranks.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().with_context(|| format!("cannot start `{}`", cmd::shown(&command)))?;
        let stdout = child.stdout.take().context("no pipe to the script")?;
        let stderr = child.stderr.take().context("no pipe to the script")?;
        let notes = thread::spawn({
            let bar = bar.clone();
            move || watch(stderr, ranks, &bar)
        });
        let before = failures.len();
        // The header is no row.
        for line in BufReader::new(stdout).lines().skip(1) {
            rows.push(line?.parse()?);
        }
        let status = child.wait()?;
        failures.extend(notes.join().expect("the watcher does not panic"));
        if !status.success() && failures.len() == before {
            failures.push(format!("`{}` failed: {status}", cmd::shown(&command)));
        }
        Ok(())
    }

    /// How it was measured: command, machine, versions.
    ///
    /// # Errors
    /// If the machine does not say what it is.
    pub fn about(&self) -> Result<String> {
        let Options { rounds, budget, .. } = self.options;
        let cpus = thread::available_parallelism()?;
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = cmd::read(Command::new("uname").args(["-sr"]))?;
        let mut text = format!(
            "`cargo xtask bench-peers --rounds {rounds} --budget {budget}` on {} ({cpus} CPUs), \
             {}.\n",
            model(&info),
            kernel.trim()
        );
        let versions = versions(&self.list);
        if !versions.is_empty() {
            let _ = writeln!(text, "Versions: {}.", versions.join(", "));
        }
        let missing = self.list.iter().filter(|l| !l.installed);
        let missing: Vec<&str> = missing.map(|l| l.name.as_str()).collect();
        if !missing.is_empty() {
            let _ = writeln!(text, "Not installed, so not measured: {}.", missing.join(", "));
        }
        Ok(text)
    }
}

/// Of each library once, whichever ways it sends in.
fn versions(list: &[Listed]) -> Vec<String> {
    let mut versions = Vec::new();
    for Listed { name, version, .. } in list.iter().filter(|l| !l.version.is_empty()) {
        let library = name.rsplit_once('-').map_or(name.as_str(), |(library, _)| library);
        let text = format!("{library} {version}");
        if !versions.contains(&text) {
            versions.push(text);
        }
    }
    versions
}

/// What `/proc/cpuinfo` calls the processor.
fn model(info: &str) -> &str {
    let line = info.lines().find(|l| l.starts_with("model name"));
    line.and_then(|l| l.split_once(": ")).map_or("an unnamed processor", |(_, name)| name.trim())
}

fn parse_listed(line: &str) -> Option<Listed> {
    let mut fields = line.splitn(3, ',');
    let (name, installed, version) = (fields.next()?, fields.next()?, fields.next()?);
    let (name, version) = (name.to_owned(), version.to_owned());
    Some(Listed { name, installed: installed == "yes", version })
}

/// Shows what the script says; returns the failures.
fn watch(stderr: impl Read, ranks: u16, bar: &ProgressBar) -> Vec<String> {
    let mut failures = Vec::new();
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        if text.contains(": FAILED") {
            failures.push(format!("N = {ranks}: {text}"));
        }
        if text.starts_with("round ") {
            bar.inc(1);
            bar.set_message(text.clone());
        }
        // The bar shows it already, if there is one.
        if bar.is_hidden() || !text.starts_with("round ") {
            bar.suspend(|| eprintln!("N = {ranks}: {text}"));
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let mpich = Listed { name: "mpich-shm".into(), installed: true, version: "5.0.2".into() };
        assert_eq!(parse_listed("mpich-shm,yes,5.0.2"), Some(mpich));
        assert!(!parse_listed("gloo-tcp,no,").unwrap().installed);
        assert_eq!(parse_listed("nonsense"), None);
    }

    #[test]
    fn a_library_has_one_version() {
        let lines = ["limit-fold,yes,", "a-b-shm,yes,1.2", "c-tcp,yes,5", "a-b-tcp,yes,1.2"];
        let list: Vec<Listed> = lines.iter().filter_map(|l| parse_listed(l)).collect();
        assert_eq!(versions(&list), ["a-b 1.2", "c 5"]);
    }

    #[test]
    fn failures_are_found_among_what_is_said() {
        let said: &[u8] = b"round 1 of 1: a-shm (0 %)\na-shm: FAILED (wrong)\nb: stopped\n";
        let bar = ProgressBar::hidden();
        assert_eq!(watch(said, 4, &bar), ["N = 4: a-shm: FAILED (wrong)"]);
        assert_eq!(bar.position(), 1);
    }

    #[test]
    fn the_processor_is_named() {
        assert_eq!(model("processor : 0\nmodel name\t: A CPU\n"), "A CPU");
        assert_eq!(model(""), "an unnamed processor");
    }
}
