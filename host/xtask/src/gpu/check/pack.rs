//! The folder that is taken to a machine with a GPU.

use super::{DATA, SUITES};
use crate::cmd;
use crate::project::Project;
use anyhow::{Context, Result};
use cargo_metadata::Message;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a machine with a driver but without its loader finds one.
const LOADERS: &str = "loaders";
/// The loaders of both APIs.
const LOADER_NAMES: [&str; 2] = ["libvulkan.so.1", "libOpenCL.so.1"];
/// Where Linux systems have libraries.
const LIBRARIES: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
/// Where containers get NVIDIA's driver, which their system does not know.
const MOUNTED: &str = "/usr/local/nvidia";
/// OpenCL's list of drivers, for such a container.
const VENDORS: &str = "vendors";

/// Everything that a run needs, in one folder.
///
/// # Errors
/// If something does not build or cannot be copied.
pub fn pack(project: &Project, folder: &Path) -> Result<()> {
    for part in [DATA, LOADERS, VENDORS] {
        fs::create_dir_all(folder.join(part)).with_context(|| folder.display().to_string())?;
    }
    let mut build = project.cargo();
    build.args(["build", "--locked", "--release", "--package", "unisono", "--package", "xtask"]);
    cmd::run(&mut build)?;
    for program in ["unisono", "xtask"] {
        let from = project.target.join("release").join(program);
        copy(&from, &folder.join(program))?;
    }
    for suite in SUITES {
        copy(&build_suite(project, suite.package)?, &folder.join(suite.program()))?;
    }
    for entry in fs::read_dir(project.root.join("host/data").join(DATA))? {
        let entry = entry?;
        copy(&entry.path(), &folder.join(DATA).join(entry.file_name()))?;
    }
    for name in LOADER_NAMES {
        let files = LIBRARIES.iter().map(|library| Path::new(library).join(name));
        match files.into_iter().find(|file| file.exists()) {
            Some(file) => copy(&file, &folder.join(LOADERS).join(name))?,
            None => println!("{name} is not here: the machine must have its own"),
        }
    }
    fs::write(folder.join(VENDORS).join("nvidia.icd"), "libnvidia-opencl.so.1\n")?;
    Ok(())
}

/// Builds a driver's suite; returns where it is.
fn build_suite(project: &Project, package: &str) -> Result<PathBuf> {
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

/// Variables for a machine whose drivers are found only with the folder's loaders.
pub fn help(folder: &Path) -> Vec<(&'static str, String)> {
    let path = |path: PathBuf| path.to_string_lossy().into_owned();
    let mut libraries: Vec<String> = std::env::var("LD_LIBRARY_PATH").into_iter().collect();
    libraries.push(path(folder.join(LOADERS)));
    libraries.extend(["lib64", "lib"].map(|name| path(Path::new(MOUNTED).join(name))));
    let mut help = vec![("LD_LIBRARY_PATH", libraries.join(":"))];
    let drivers = ["share/vulkan/icd.d", "vulkan/icd.d"].map(|list| Path::new(MOUNTED).join(list));
    let drivers: Vec<String> = drivers.into_iter().filter(|list| list.is_dir()).map(path).collect();
    if !drivers.is_empty() {
        help.push(("VK_ADD_DRIVER_FILES", drivers.join(":")));
    }
    if !Path::new("/etc/OpenCL/vendors").exists() {
        help.push(("OCL_ICD_VENDORS", path(folder.join(VENDORS))));
    }
    help
}

/// `command` with these variables.
pub fn with(mut command: Command, variables: &[(&'static str, String)]) -> Command {
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command
}
