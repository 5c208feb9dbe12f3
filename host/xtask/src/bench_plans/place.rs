//! Where the ranks of a set-up are, and how programs are run there.

use crate::bench_net::Hosts;
use crate::cmd;
use crate::project::Project;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// What is to be set up.
#[derive(Clone, Debug, PartialEq)]
pub enum Setup {
    /// So many processes that share memory.
    Memory(u16),
    /// So many processes of this machine over TCP.
    Tcp(u16),
    /// Hosts with links of these rates in Mbit/s.
    Hosts(Vec<f64>),
}

impl FromStr for Setup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: not shm:N, tcp:N or net:RATE,…");
        let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
        let ranks = || rest.parse::<u16>().ok().filter(|n| (2..=64).contains(n)).ok_or_else(wrong);
        let rates = || rest.split(',').map(str::parse).collect::<Result<Vec<f64>, _>>();
        match kind {
            "shm" => Ok(Self::Memory(ranks()?)),
            "tcp" => Ok(Self::Tcp(ranks()?)),
            "net" => {
                let rates = rates().map_err(|_| wrong())?;
                let good = rates.len() > 1 && rates.iter().all(|rate| *rate > 0.0);
                good.then_some(Self::Hosts(rates)).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(ranks) => write!(f, "{ranks} processes in shared memory"),
            Self::Tcp(ranks) => write!(f, "{ranks} processes over TCP on this machine"),
            Self::Hosts(rates) => write!(f, "{} hosts, links of {rates:?} Mbit/s", rates.len()),
        }
    }
}

/// A set-up that is there.
pub struct Place {
    unisono: PathBuf,
    on: On,
}

enum On {
    /// Processes, and their links.
    Here(u16, &'static str),
    Hosts(Hosts),
}

impl Place {
    /// Sets it up.
    ///
    /// # Errors
    /// If there can be no namespaces.
    pub fn make(project: &Project, unisono: &Path, setup: &Setup) -> Result<Self> {
        let on = match setup {
            Setup::Memory(ranks) => On::Here(*ranks, "auto"),
            Setup::Tcp(ranks) => On::Here(*ranks, "tcp"),
            Setup::Hosts(rates) => On::Hosts(Hosts::make(project, rates)?),
        };
        Ok(Self { unisono: unisono.to_owned(), on })
    }

    /// Runs unisono on all ranks together.
    ///
    /// # Errors
    /// If it fails, with what it said.
    pub fn run(&self, args: &[&str]) -> Result<()> {
        match &self.on {
            On::Here(ranks, links) => {
                let mut command = Command::new(&self.unisono);
                command.args(["launch", "-n", &ranks.to_string(), "--"]).arg(&self.unisono);
                cmd::read(command.args(args).args(["--links", links])).map(drop)
            }
            On::Hosts(hosts) => {
                let job = format!("bench-plans-{}", std::process::id());
                let one = |rank| {
                    let mut command = hosts.rank(rank, &self.unisono, &job);
                    command.args(args);
                    command
                };
                hosts.run(one).map(drop)
            }
        }
    }

    /// What unisono prints by itself.
    ///
    /// # Errors
    /// If it fails, with what it said.
    pub fn alone(&self, args: &[&str], last: &str) -> Result<String> {
        let output = Command::new(&self.unisono).args(args).arg(last).output();
        let output = output.with_context(|| format!("cannot start {}", self.unisono.display()))?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_ups_are_read() {
        assert_eq!("shm:2".parse(), Ok(Setup::Memory(2)));
        assert_eq!("tcp:4".parse(), Ok(Setup::Tcp(4)));
        assert_eq!("net:200,50".parse(), Ok(Setup::Hosts(vec![200.0, 50.0])));
        for wrong in ["", "shm", "shm:1", "tcp:x", "net:", "net:5", "net:5,-1", "udp:2"] {
            assert!(wrong.parse::<Setup>().is_err(), "{wrong}");
        }
    }
}
