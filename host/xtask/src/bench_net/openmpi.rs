//! Open MPI on the test hosts: its launcher reaches them as it reaches others over ssh.

use super::hosts::Hosts;
use super::{Row, cmd};
use crate::project::Project;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// What stands for ssh: an address, then a command line. Ranks on hosts of one name would try to
/// share memory.
const AGENT: &str = "#!/bin/sh
n=$((${1##*.} - 1))
shift
exec ip netns exec peer$n unshare -u sh -c \"hostname peer$n; $*\"
";

/// Open MPI, and its part of the comparison.
pub struct OpenMpi {
    mpirun: PathBuf,
    program: PathBuf,
    folder: TempDir,
}

impl OpenMpi {
    /// Builds the program, if Open MPI is where `host/peers/install.sh` puts it.
    ///
    /// # Errors
    /// If it does not build.
    pub fn find(project: &Project) -> Result<Option<Self>> {
        let of = |name| std::env::var_os(name).map(PathBuf::from);
        let cache = || of("HOME").map(|home| home.join(".cache/allreduce-peers"));
        let Some(peers) = of("PEERS").or_else(cache) else { return Ok(None) };
        let (bin, program) = (peers.join("openmpi/bin"), project.target.join("bench-net-openmpi"));
        let mpirun = bin.join("mpirun");
        if !mpirun.exists() {
            return Ok(None);
        }
        let mut compiler = Command::new(bin.join("mpicc"));
        compiler.env("OMPI_CC", "cc").args(["-O3", "-march=native"]);
        compiler.arg(project.root.join("host/peers/mpi.c")).arg("-o").arg(&program).arg("-lm");
        cmd::run_aside(&mut compiler)?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("agent"), AGENT).context("the agent")?;
        Ok(Some(Self { mpirun, program, folder }))
    }

    /// Its loop on every host.
    ///
    /// # Errors
    /// If it fails, with what it said.
    pub fn run(&self, hosts: &Hosts, bytes: u64, budget: f64) -> Result<Row> {
        let agent = format!("sh {}", self.folder.path().join("agent").display());
        let addresses: Vec<String> =
            (1..=hosts.count()).map(|host| format!("10.99.0.{host}:1")).collect();
        let mut command = Hosts::on(0, "unshare");
        command.args(["-u", "sh", "-c", "hostname peer0; exec \"$@\"", "sh"]).arg(&self.mpirun);
        command.args(["--allow-run-as-root", "--bind-to", "none"]);
        command.args(["--prtemca", "plm_ssh_agent", &agent, "--prtemca", "prte_if_include", "e0"]);
        command.args(["--host", &addresses.join(",")]);
        command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]);
        command.args(["--mca", "btl_tcp_if_include", "e0"]);
        let bytes = bytes.to_string();
        let budget = budget.to_string();
        let settings =
            [("BENCH_BUDGET_S", &budget), ("BENCH_MIN_BYTES", &bytes), ("BENCH_MAX_BYTES", &bytes)];
        for (name, value) in settings {
            command.args(["-x", name]).env(name, value);
        }
        command.args(["-np", &hosts.count().to_string()]).arg(&self.program).arg("openmpi");
        Row::of(&cmd::read(&mut command)?)
    }
}
