//! Installing what is missing. Where that is not possible the error says what to install.

use crate::project::Project;
use crate::{boards, cmd, gpu, launchers, toolchain};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// One thing that `demo` and `test` need; to add one is one entry.
struct Step {
    name: &'static str,
    install: fn(&Project) -> Result<()>,
}

const STEPS: &[Step] = &[
    Step { name: "rustfmt and clippy", install: components },
    Step { name: "bare-metal targets", install: |_| toolchain::prepare().map(drop) },
    Step { name: "protoc, which the client of etcd is built with", install: |_| protoc() },
    Step { name: "OpenSSL's tool, whose keys sign images", install: |_| openssl() },
    Step { name: "emulators of boards", install: |_| boards::emulators() },
    Step { name: "launchers of ranks", install: |project| launchers::prepare(project).map(drop) },
    Step { name: "drivers for Vulkan and OpenCL, shader tools", install: |_| gpu::prepare() },
];

/// Installs everything; goes on after a failure, so that one run names all that is missing.
///
/// # Errors
/// If anything is still missing at the end.
pub fn everything(project: &Project) -> Result<()> {
    let mut missing = Vec::new();
    for step in STEPS {
        match (step.install)(project) {
            Ok(()) => println!("ok       {}", step.name),
            Err(error) => {
                println!("MISSING  {}: {error:#}", step.name);
                missing.push(step.name);
            }
        }
    }
    if !missing.is_empty() {
        bail!("still missing: {}", missing.join(", "));
    }
    Ok(())
}

/// Makes `cargo fmt` and `cargo clippy` usable.
///
/// # Errors
/// If they are missing and rustup cannot or must not download them.
pub fn components(project: &Project) -> Result<()> {
    const COMPONENTS: [(&str, &str); 2] = [("fmt", "rustfmt"), ("clippy", "clippy")];
    for (subcommand, component) in COMPONENTS {
        if cmd::succeeds(project.cargo().args([subcommand, "--version"])) {
            continue;
        }
        if toolchain::Choice::from_env()? == toolchain::Choice::Debian {
            bail!(
                "`cargo {subcommand}` is missing, and UNISONO_TOOLCHAIN=debian forbids to \
                 download it: install the {component} of the host's Rust toolchain"
            );
        }
        cmd::run_aside(Command::new("rustup").args(["component", "add", component]))?;
    }
    Ok(())
}

/// Makes `openssl` usable: a test holds our keys and signatures against it.
///
/// # Errors
/// If it is missing and cannot be installed.
pub fn openssl() -> Result<()> {
    if cmd::succeeds(Command::new("openssl").arg("version")) {
        return Ok(());
    }
    apt(&["openssl"])
}

/// Makes `protoc` usable, with the files that it includes: the feature `etcd` is built with it.
///
/// # Errors
/// If it is missing and cannot be installed.
pub fn protoc() -> Result<()> {
    // Debian keeps the two apart; elsewhere the program knows where its files are.
    let has_files = std::env::var_os("PROTOC_INCLUDE").is_some()
        || Path::new("/usr/include/google/protobuf/descriptor.proto").exists();
    let protoc = std::env::var_os("PROTOC").unwrap_or_else(|| "protoc".into());
    if has_files && cmd::succeeds(Command::new(protoc).arg("--version")) {
        return Ok(());
    }
    apt(&["protobuf-compiler", "libprotobuf-dev"])
}

/// Installs Debian packages.
///
/// # Errors
/// If we are not root, if there is no apt, or if apt fails; the error names the packages.
pub fn apt(packages: &[&str]) -> Result<()> {
    let list = packages.join(" ");
    if !cmd::succeeds(Command::new("apt-get").arg("--version")) {
        bail!("there is no apt here; install what Debian 12 calls: {list}");
    }
    if cmd::read(Command::new("id").arg("-u"))?.trim() != "0" {
        bail!("installing needs root; run: sudo apt-get update && sudo apt-get install {list}");
    }
    cmd::run_aside(Command::new("apt-get").args(["update", "-q"]))?;
    let mut install = Command::new("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive");
    install.args(["install", "-y", "-q", "--no-install-recommends"]).args(packages);
    cmd::run_aside(&mut install)
}
