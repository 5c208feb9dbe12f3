//! The list of parts. To add a check, add an entry and, if it is new, its function.

use super::report::{Counts, Outcome};
use crate::project::Project;
use crate::toolchain::{self, TARGETS};
use crate::{bench_peers, boards, cmd, demo, gpu, install, launchers, size, tidy, workspace};
use anyhow::{Result, bail};
use std::borrow::BorrowMut;
use std::io::Write;
use std::process::Command;

/// One check.
pub struct Part {
    /// Name for `--only`.
    pub name: &'static str,
    /// What it proves, in a few words.
    pub about: &'static str,
    /// Is it a failure if it cannot run here?
    pub mandatory: bool,
    /// Does `--quick` leave it out?
    pub slow: bool,
    /// Runs it. An error is a failure; what cannot run is [`Outcome::CannotRun`].
    pub run: fn(&Project) -> Result<Outcome>,
}

/// All checks in the order of running: what fails fastest comes first.
pub const PARTS: &[Part] = &[
    Part { name: "fmt", about: "rustfmt changes nothing", mandatory: true, slow: false, run: fmt },
    Part {
        name: "tidy",
        about: "house rules: lengths, root folder, direction of dependencies",
        mandatory: true,
        slow: false,
        run: |project| tidy::run(project).map(one),
    },
    Part {
        name: "clippy",
        about: "no warnings in any target, with all features",
        mandatory: true,
        slow: false,
        run: clippy,
    },
    Part {
        name: "doc",
        about: "the documentation builds without warnings",
        mandatory: true,
        slow: false,
        run: doc,
    },
    Part {
        name: "test",
        about: "unit, integration and documentation tests, without GPUs",
        mandatory: true,
        slow: false,
        run: test,
    },
    Part {
        name: "gpu",
        about: "Vulkan and OpenCL: kernels, drivers, and groups of CPU and GPU ranks",
        mandatory: false,
        slow: true,
        run: gpus,
    },
    Part {
        name: "launchers",
        about: "ranks under mpirun, mpiexec, srun, launch and etcd; two hosts with a wire between",
        mandatory: false,
        slow: true,
        run: launched,
    },
    Part {
        name: "net",
        about: "hosts in namespaces whose packets get lost or links get slower: the same bits",
        mandatory: false,
        slow: true,
        run: lossy,
    },
    Part {
        name: "peers",
        about: "the programs of bench-peers: processes over memory and TCP, right sums",
        mandatory: true,
        slow: false,
        run: |project| bench_peers::smoke(project).map(one),
    },
    Part {
        name: "loom",
        about: "the rings between threads, in every interleaving of writer and reader",
        mandatory: true,
        slow: true,
        run: loom,
    },
    Part {
        name: "bare-metal",
        about: "core, contract, runtime and firmware's drivers build without std",
        mandatory: true,
        slow: true,
        run: bare_metal,
    },
    Part {
        name: "size",
        about: "firmware keeps its budget of flash and RAM",
        mandatory: true,
        slow: true,
        run: |project| size::run(project, &size::Options::default()).map(one),
    },
    Part {
        name: "boards",
        about: "firmware under QEMU: all collectives to the bit, and every fault an error in time",
        mandatory: true,
        slow: true,
        run: emulated,
    },
    Part {
        name: "demo",
        about: "the main job: CPU and GPU ranks reduce the shipped gradients",
        mandatory: true,
        slow: true,
        run: |project| demo::run(project).map(one),
    },
];

/// Crates that must build for every target without an operating system.
const BARE_METAL: [&str; 9] = [
    "unisono-core",
    "unisono-driver",
    "unisono-runtime",
    "unisono-device-cpu",
    "unisono-device-scalar",
    "unisono-link-packet",
    "unisono-link-serial",
    "unisono-link-udp",
    "unisono-link-window",
];

/// Crates whose tests need a driver.
const GPU_DRIVERS: [&str; 2] = ["unisono-device-vulkan", "unisono-device-opencl"];

/// Tests that boot boards' images under QEMU.
const BOARDS_TESTS: [&str; 8] =
    ["attach", "conformance", "faults", "pins", "serial", "udp", "qemu", "boards"];

/// Firmware crates that clippy can look at, and tests can run, on the host.
const BOARDS_ON_HOST: [&str; 2] = ["size_probe", "unisono-firmware"];

/// A part that is one check counts as one.
fn one((): ()) -> Outcome {
    Outcome::Ran(Counts::PASSED)
}

fn fmt(project: &Project) -> Result<Outcome> {
    install::components(project)?;
    let check = ["fmt", "--all", "--check"];
    let host = cmd::run(project.cargo().args(check));
    // Both are shown, whatever the first says.
    let boards = cmd::run(project.cargo().args(check).current_dir(project.boards()));
    host.and(boards).map(one)
}

fn clippy(project: &Project) -> Result<Outcome> {
    install::components(project)?;
    install::protoc()?;
    let mut host = project.cargo();
    host.args(["clippy", "--locked", "--workspace", "--all-features", "--lib", "--bins"]);
    // `--all-targets` would leave tests out that only run when they are named.
    host.args(["--examples", "--benches", "--test=*"]);
    cmd::run(host.args(["--", "-D", "warnings"]))?;
    let mut boards = project.cargo();
    boards.current_dir(project.boards()).args(["clippy", "--locked", "--all-features"]);
    boards.args(BOARDS_ON_HOST.iter().flat_map(|b| ["--package", b]));
    boards.arg("--target-dir").arg(project.target.join("boards"));
    cmd::run(boards.args(["--", "-D", "warnings"])).map(one)
}

fn doc(project: &Project) -> Result<Outcome> {
    install::protoc()?;
    let mut cargo = project.cargo();
    cargo.env("RUSTDOCFLAGS", "-D warnings");
    cargo.args(["doc", "--locked", "--workspace", "--no-deps", "--all-features"]);
    cmd::run(&mut cargo).map(one)
}

fn test(project: &Project) -> Result<Outcome> {
    install::openssl()?;
    let mut host = workspace::cargo(project, "test")?;
    host.arg("--no-fail-fast").args(GPU_DRIVERS.iter().flat_map(|c| ["--exclude", c]));
    // What a build without etcd says.
    let mut plain = project.cargo();
    plain.args(["test", "--locked", "--package=unisono-rendezvous", "--lib"]);
    let mut boards = project.cargo();
    boards.current_dir(project.boards()).args(["test", "--locked", "--no-fail-fast"]);
    boards.args(BOARDS_ON_HOST.iter().flat_map(|b| ["--package", b]));
    boards.arg("--target-dir").arg(project.target.join("boards"));
    all([host, plain, boards])
}

fn gpus(project: &Project) -> Result<Outcome> {
    if let Err(error) = gpu::prepare() {
        // Elsewhere a machine may be without drivers, and the part is named as skipped.
        if std::env::var_os("UNISONO_GPU").is_some_and(|v| v == "required") {
            return Err(error);
        }
        return Ok(Outcome::CannotRun(format!("{error:#}")));
    }
    let mut groups = workspace::cargo(project, "test")?;
    groups.args(["--no-fail-fast", "--test=gpu", "--test=spirv"]);
    // The kernels' tests have to find their tools here.
    groups.env("UNISONO_SPIRV_TOOLS", "1");
    let drivers = workspace::tests_of(project, &GPU_DRIVERS)?;
    all(drivers.into_iter().chain([groups]))
}

fn launched(project: &Project) -> Result<Outcome> {
    let folder = match launchers::prepare(project).and_then(|f| install::protoc().map(|()| f)) {
        Ok(folder) => folder,
        Err(error) => return Ok(Outcome::CannotRun(format!("{error:#}"))),
    };
    // One of them is our own. Tests beside it let features of dev-dependencies count, as elsewhere.
    let mut tool = workspace::cargo(project, "build")?;
    cmd::run(tool.args(["--bin=unisono", "--test=hosts", "--test=etcd"]))?;
    let mut hosts = workspace::cargo(project, "test")?;
    hosts.env(launchers::FOLDER, folder).args(["--no-fail-fast", "--test=hosts"]);
    let mut etcd = workspace::cargo(project, "test")?;
    // Its tests wait for leases to end, and for each other if there are few threads.
    etcd.args(["--test=etcd", "--", "--test-threads=16"]);
    all([hosts, etcd])
}

fn lossy(project: &Project) -> Result<Outcome> {
    if let Err(error) = launchers::namespaces() {
        return Ok(Outcome::CannotRun(format!("{error:#}")));
    }
    let mut cargo = workspace::cargo(project, "test")?;
    all([cargo.args(["--no-fail-fast", "--test=net"])])
}

fn loom(project: &Project) -> Result<Outcome> {
    let mut cargo = project.cargo();
    cargo.env("RUSTFLAGS", "--cfg loom").env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.args(["test", "--locked", "--package", "unisono-link-span", "--lib"]);
    // Other flags in the same folder would rebuild everything each time.
    cargo.arg("--target-dir").arg(project.target.join("loom"));
    // Without the flag these are not compiled, and a run without tests is a failure.
    all([cargo.args(["--", "interleavings"])])
}

/// Runs them all, whatever the first ones say, and adds up what their runners say.
fn all(commands: impl IntoIterator<Item = impl BorrowMut<Command>>) -> Result<Outcome> {
    let run = |mut command| counted(BorrowMut::borrow_mut(&mut command), &mut std::io::stdout());
    let results: Vec<Result<Counts>> = commands.into_iter().map(run).collect();
    let mut sum = Counts::default();
    for counts in results {
        sum.add(counts?);
    }
    Ok(Outcome::Ran(sum))
}

/// Runs tests and adds up what their runners say.
fn counted(command: &mut Command, out: &mut impl Write) -> Result<Counts> {
    let mut counts = Counts::default();
    let status = cmd::tee(command, out, |line| counts.add_test_line(line))?;
    if counts.failed > 0 {
        return Ok(counts);
    }
    cmd::ended(command, status)?;
    if counts.passed == 0 {
        bail!("`{}` ran no test", cmd::shown(command));
    }
    Ok(counts)
}

fn emulated(project: &Project) -> Result<Outcome> {
    if let Err(error) = boards::emulators() {
        return Ok(Outcome::CannotRun(format!("{error:#}")));
    }
    let mut cargo = workspace::cargo(project, "test")?;
    cargo.env(boards::IMAGES, boards::build_all(project)?).arg("--no-fail-fast");
    all([cargo.args(BOARDS_TESTS.iter().flat_map(|t| ["--test", t]))])
}

fn bare_metal(project: &Project) -> Result<Outcome> {
    // Nothing to build with is not the code's fault; being mandatory, the part fails all the same.
    let toolchain = match toolchain::prepare() {
        Ok(toolchain) => toolchain,
        Err(error) => return Ok(Outcome::CannotRun(format!("{error:#}"))),
    };
    // One call a target: a single call would unify features over the targets.
    for target in TARGETS {
        let mut cargo = toolchain.cargo(&project.root);
        cargo.args(["build", "--locked", "--no-default-features", "--target", target]);
        cargo.args(BARE_METAL.iter().flat_map(|c| ["--package", c]));
        cargo.arg("--target-dir").arg(project.bare_metal_target());
        cmd::run(&mut cargo)?;
    }
    Ok(one(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Counts> {
        // Kept apart from the output of this test: an outer run would count these lines.
        counted(Command::new("sh").args(["-c", script]), &mut std::io::sink())
    }

    #[test]
    fn a_run_without_tests_is_no_success() {
        assert!(shell("true").is_err());
        assert!(shell("echo 'test result: ok. 0 passed; 0 failed; 0 ignored'").is_err());
    }

    #[test]
    fn a_runner_that_dies_is_no_success() {
        assert!(shell("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; exit 1").is_err());
    }

    #[test]
    fn tests_are_added_up() {
        let line = "echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured';";
        let counts = shell(&line.repeat(2)).unwrap();
        assert_eq!(counts, Counts { passed: 4, failed: 0, skipped: 2 });
        let bad = "echo 'test result: FAILED. 1 passed; 3 failed; 0 ignored'; exit 101";
        let counts = shell(bad).unwrap();
        assert_eq!(counts, Counts { passed: 1, failed: 3, skipped: 0 });
    }
}
