//! Test hosts in network namespaces, and programs in them.

use crate::cmd;
use crate::project::Project;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Hosts on one bridge, each with a link of limited rate; gone with this object.
pub struct Hosts {
    script: PathBuf,
    ranks: usize,
}

impl Hosts {
    /// One for each of these rates, in Mbit/s.
    ///
    /// # Errors
    /// If `netns.sh` fails.
    pub fn make(project: &Project, rates: &[f64]) -> Result<Self> {
        let hosts = Self { script: project.root.join("host/peers/netns.sh"), ranks: rates.len() };
        cmd::run_aside(Command::new(&hosts.script).args(rates.iter().map(f64::to_string)))?;
        Ok(hosts)
    }

    /// Whether a part of the packets that come in at every host is lost: one packet is one drop,
    /// not a run of them that the card would cut up.
    ///
    /// # Errors
    /// If `nft` or `ip` fails.
    pub fn lose(&self, protocol: &str, per_mille: u32) -> Result<()> {
        let rules = format!(
            "flush ruleset\ntable inet loss {{\n chain input {{\n  type filter hook input priority \
             0;\n  meta l4proto {protocol} numgen random mod 1000 < {per_mille} drop\n }}\n}}\n"
        );
        let file = std::env::temp_dir().join(format!("unisono-loss-{}", std::process::id()));
        std::fs::write(&file, rules).with_context(|| file.display().to_string())?;
        let all = (0..self.ranks).try_for_each(|rank| {
            let size = ["link", "set", "e0", "gso_max_size", "1500", "gso_max_segs", "1"];
            cmd::run_aside(Command::new("ip").args(["-n", &format!("peer{rank}")]).args(size))?;
            cmd::run_aside(Self::on(rank, "nft").arg("-f").arg(&file))
        });
        // Nobody needs it any more.
        let _ = std::fs::remove_file(&file);
        all
    }

    /// How many there are.
    pub const fn count(&self) -> usize {
        self.ranks
    }

    /// A program on one of the hosts.
    pub fn on(rank: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("peer{rank}")]).arg(program);
        command
    }

    /// A program of unisono on one of the hosts, as that rank of a job.
    pub fn rank(&self, rank: usize, program: &Path, job: &str) -> Command {
        let mut command = Self::on(rank, program);
        command.env("UNISONO_RANK", rank.to_string()).env("UNISONO_SIZE", self.ranks.to_string());
        command.env("UNISONO_MASTER", "10.99.0.1:29611").env("UNISONO_JOB", job);
        // All hosts are of one owner, and nobody else's.
        command.env("UNISONO_SECRET", "namespaces of one machine");
        command
    }

    /// Runs a program on each host at the same time; what the first has printed.
    ///
    /// # Errors
    /// If one fails, with what it said.
    pub fn run(&self, program: impl Fn(usize) -> Command) -> Result<String> {
        let start = |rank| {
            let mut command = program(rank);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = command.spawn();
            child.with_context(|| format!("cannot start `{}`", cmd::shown(&command)))
        };
        let children = (0..self.ranks).map(start).collect::<Result<Vec<_>>>()?;
        let ended: Vec<_> = children.into_iter().map(|child| child.wait_with_output()).collect();
        let (mut first, mut failed) = (None, Vec::new());
        for (rank, output) in ended.into_iter().enumerate() {
            let output = output?;
            if !output.status.success() {
                let text = String::from_utf8_lossy(&output.stderr);
                failed.push(format!("rank {rank}: {} {}", output.status, text.trim()));
            }
            first.get_or_insert_with(|| String::from_utf8_lossy(&output.stdout).into_owned());
        }
        if !failed.is_empty() {
            bail!("{}", failed.join("; "));
        }
        first.context("there is no host")
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if let Err(error) = cmd::run_aside(Command::new(&self.script).arg("clean")) {
            eprintln!("warning: hosts are left over: {error:#}");
        }
    }
}
