//! Cargo for the host's crates, so that each of them, and what they depend on, is built once.
//!
//! Cargo chooses the features of dependencies for all packages that a call selects. Calls that
//! select different packages build much of Vulkan's, clap's and serde's crates once more, in
//! another variant. So all calls select the whole workspace, with the features that some part
//! wants, and name the targets that they are after.

use crate::project::{self, Project};
use crate::{cmd, install};
use anyhow::{Context, Result, bail};
use cargo_metadata::Message;
use std::io::BufReader;
use std::process::{Command, Stdio};

/// What is not there by default, and some tests need.
const FEATURES: &str = "--features=unisono/etcd";

/// `cargo COMMAND` for the whole workspace.
///
/// # Errors
/// If a tool that building takes is missing and cannot be installed.
pub fn cargo(project: &Project, command: &str) -> Result<Command> {
    install::protoc()?;
    let mut cargo = project.cargo();
    cargo.args([command, "--locked", "--workspace", FEATURES]);
    Ok(cargo)
}

/// Builds all tests and returns commands that run those of some packages.
///
/// `cargo test --package` would do the same, with features for these packages alone.
///
/// # Errors
/// If the tests do not build, or if a package has none.
pub fn tests_of(project: &Project, packages: &[&str]) -> Result<Vec<Command>> {
    let mut cargo = cargo(project, "test")?;
    cargo.args(["--no-run", "--lib", "--tests", "--message-format=json-render-diagnostics"]);
    eprintln!("$ {}", cmd::shown(&cargo));
    let mut child = cargo
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", cmd::shown(&cargo)))?;
    let stdout = child.stdout.take().context("no pipe to cargo")?;
    let mut built = Vec::new();
    for message in Message::parse_stream(BufReader::new(stdout)) {
        let Message::CompilerArtifact(artifact) = message? else { continue };
        if let Some(program) = artifact.executable.filter(|_| artifact.profile.test) {
            built.push((artifact.manifest_path, program));
        }
    }
    cmd::ended(&cargo, child.wait()?)?;
    let metadata = project::metadata(&project.root.join("Cargo.toml"))?;
    let mut commands = Vec::new();
    for name in packages {
        let package = metadata.packages.iter().find(|p| p.name.as_str() == *name);
        let manifest = &package.with_context(|| format!("no package {name}"))?.manifest_path;
        let folder = manifest.parent().context("a manifest lies in a folder")?;
        let before = commands.len();
        for (_, program) in built.iter().filter(|(of, _)| of == manifest) {
            let mut command = Command::new(program);
            // As cargo starts them.
            command.current_dir(folder);
            commands.push(command);
        }
        if commands.len() == before {
            bail!("the package {name} has no tests");
        }
    }
    Ok(commands)
}
