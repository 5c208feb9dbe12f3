//! Firmware images: which boards there are, building them, QEMU to run them.
//!
//! A board is a folder of `boards/` with a `budget.toml`: it names the target and the image, and
//! says how much flash and RAM the image may take and at how many places it may panic.

use crate::project::{self, Project};
use crate::toolchain::Toolchain;
use crate::{cmd, install, toolchain};
use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the folder of images for tests of the host.
pub const IMAGES: &str = "UNISONO_BOARDS";

/// Emulators of the boards, and the packages that have them.
const EMULATORS: [(&str, &str); 4] = [
    ("qemu-aarch64", "qemu-user"),
    ("qemu-system-aarch64", "qemu-system-arm"),
    ("qemu-system-arm", "qemu-system-arm"),
    ("qemu-system-riscv64", "qemu-system-misc"),
];

/// A board's `budget.toml`. Sizes in bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The compiler's target.
    pub target: String,
    /// Name of the image.
    pub image: String,
    /// Cargo's profile.
    #[serde(default = "release")]
    pub profile: String,
    /// Code and constants.
    pub flash: u64,
    /// Variables, zeroed or not, and stacks, beside the slots.
    pub ram: u64,
    /// Slots for chunks on their way: as many as the board's maker wants.
    #[serde(default)]
    pub slots: u64,
    /// Places in the source that may panic.
    pub panics: u64,
}

fn release() -> String {
    "release".to_owned()
}

/// A board.
#[derive(Debug)]
pub struct Board {
    /// Name of its package.
    pub package: String,
    /// Names of its images; more than one if there are some for tests.
    pub images: Vec<String>,
    /// Its budget.
    pub budget: Budget,
}

/// Every board, in the order of their folders.
///
/// # Errors
/// If a manifest or a budget cannot be read.
pub fn all(project: &Project) -> Result<Vec<Board>> {
    let metadata = project::metadata(&project.boards().join("Cargo.toml"))?;
    let mut found = Vec::new();
    for package in &metadata.packages {
        let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
        let path = folder.join("budget.toml");
        if !path.exists() {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| path.to_string())?;
        let budget = parse(&text).with_context(|| path.to_string())?;
        let bins = package.targets.iter().filter(|t| t.is_bin());
        let images: Vec<String> = bins.map(|t| t.name.clone()).collect();
        if !images.contains(&budget.image) {
            bail!("{path}: package {} has no image {}", package.name, budget.image);
        }
        found.push((folder.to_owned(), package.name.to_string(), images, budget));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let board = |(_, package, images, budget)| Board { package, images, budget };
    Ok(found.into_iter().map(board).collect())
}

fn parse(text: &str) -> Result<Budget> {
    Ok(toml::from_str(text)?)
}

impl Board {
    /// Builds the board's images; returns the folder that they are in.
    ///
    /// # Errors
    /// If they do not build.
    pub fn build(&self, project: &Project, toolchain: &Toolchain) -> Result<PathBuf> {
        let (folder, target) = (project.bare_metal_target(), &self.budget.target);
        let mut cargo = toolchain.cargo(&project.boards());
        let profile = &self.budget.profile;
        cargo.args(["build", "--profile", profile, "--locked", "--package", &self.package]);
        cargo.args(["--target", target]).arg("--target-dir").arg(&folder);
        cmd::run_aside(&mut cargo)?;
        Ok(folder.join(target).join(profile))
    }
}

/// What `cargo xtask boards` takes.
#[derive(Args, Debug, Default)]
pub struct Options {
    /// Count the instructions of calls on each board under QEMU, and measure their windows.
    #[arg(long)]
    count: bool,
    /// Only on these boards, as the orchestrator names them.
    #[arg(requires = "count")]
    boards: Vec<String>,
}

/// Builds every image; prints their folder, or counts what they execute.
///
/// # Errors
/// If one does not build, or a call on a board fails.
pub fn run(project: &Project, options: &Options) -> Result<()> {
    let images = build_all(project)?;
    if !options.count {
        println!("{}", images.display());
        return Ok(());
    }
    emulators()?;
    cmd::run_aside(project.cargo().args(["build", "--locked", "--package", "qemu-counter"]))?;
    let plugin = project.target.join("debug/libqemu_counter.so");
    let mut count = project.cargo();
    count.env(IMAGES, images).env("UNISONO_COUNTER", plugin).args(["run", "--locked"]);
    count.args(["--package", "unisono-offload-dpu", "--example", "count"]);
    cmd::run(count.arg("--").args(&options.boards))
}

/// Builds every image into one folder, which is returned.
///
/// # Errors
/// If one does not build.
pub fn build_all(project: &Project) -> Result<PathBuf> {
    let toolchain = toolchain::prepare()?;
    let images = project.bare_metal_target().join("images");
    fs::create_dir_all(&images)?;
    for board in all(project)? {
        let built = board.build(project, &toolchain)?;
        for name in &board.images {
            let from = built.join(name);
            copy(&from, &images.join(name)).with_context(|| from.display().to_string())?;
        }
    }
    Ok(images)
}

/// Copies an image unless it is there already: what uses it would else be built anew.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let content = fs::read(from)?;
    if fs::read(to).is_ok_and(|old| old == content) {
        return Ok(());
    }
    // With its rights: some are programs.
    fs::copy(from, to)?;
    Ok(())
}

/// Makes the emulators usable.
///
/// # Errors
/// If they are missing and cannot be installed.
pub fn emulators() -> Result<()> {
    let missing = EMULATORS.iter().filter(|(program, _)| {
        let mut command = Command::new(program);
        !cmd::succeeds(command.arg("--version"))
    });
    let mut packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    packages.dedup();
    if packages.is_empty() { Ok(()) } else { install::apt(&packages) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read_whole() {
        let text = "target = \"t\"\nimage = \"i\"\nflash = 1\nram = 2\npanics = 3\n";
        let budget = parse(text).unwrap();
        assert_eq!((budget.target.as_str(), budget.image.as_str()), ("t", "i"));
        assert_eq!((budget.flash, budget.ram, budget.panics), (1, 2, 3));
        assert_eq!(budget.profile, "release");
        assert!(parse("target = \"t\"").is_err());
        assert!(parse(&format!("{text}flahs = 4\n")).is_err());
    }

    #[test]
    fn every_board_has_its_image() {
        let project = Project::find().unwrap();
        let boards = all(&project).unwrap();
        assert!(boards.iter().any(|b| b.budget.image == "qemu_virt_aarch64"), "{boards:?}");
    }
}
