//! How much flash and RAM the core takes in firmware.
//!
//! `boards/size_probe` is an image that runs every part of the core on data the compiler cannot
//! foresee; it is built and linked as firmware is (size-optimised, link-time optimisation, dead
//! code dropped) for each bare-metal target. Its manifest holds the budget: an image that grows
//! past it fails here, in review, and not on a board.

mod elf;

use crate::cmd;
use crate::project::{self, Project};
use crate::toolchain::{self, TARGETS, Toolchain};
use anyhow::{Context, Result, bail};
use elf::Image;
use std::fs;
use std::path::PathBuf;

const PROBE: &str = "size_probe";
/// Where the probe's manifest keeps the budget: `[package.metadata.budget.TARGET]`.
const BUDGET: &str = "budget";

/// Most bytes that an image may take.
#[derive(Debug)]
struct Budget {
    /// Code and constants.
    flash: u64,
    /// Variables, zeroed or not.
    ram: u64,
}

/// Builds the probe for every target and prints its sizes and the `top` largest functions.
///
/// # Errors
/// If a probe does not build, or takes more than its budget.
pub fn run(project: &Project, top: usize) -> Result<()> {
    let toolchain = toolchain::prepare()?;
    let mut images = Vec::new();
    for target in TARGETS {
        let file = build(project, &toolchain, target)?;
        let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
        let image = elf::read(&bytes).with_context(|| file.display().to_string())?;
        images.push((target, budget(project, target)?, image));
    }
    println!(
        "{:<30} {:>7} {:>7} {:>6} {:>6} {:>7}   flash/budget   panic",
        "target (bytes)", "code", "rodata", "data", "bss", "unwind"
    );
    for (target, budget, image) in &images {
        println!(
            "{target:<30} {:>7} {:>7} {:>6} {:>6} {:>7} {:>7}/{:<7} {}",
            image.code,
            image.rodata,
            image.data,
            image.bss,
            image.unwind,
            image.flash(),
            budget.flash,
            if image.panics.is_empty() { "none" } else { "linked" },
        );
    }
    for (target, _, image) in &images {
        details(target, image, top);
    }
    let over: Vec<String> = images.iter().filter_map(|(t, b, i)| exceeded(t, b, i)).collect();
    if !over.is_empty() {
        bail!("{}", over.join("; "));
    }
    Ok(())
}

fn details(target: &str, image: &Image, top: usize) {
    if !image.panics.is_empty() {
        println!("{target}: panic machinery: {}", image.panics.join(", "));
    }
    for (bytes, name) in image.functions.iter().take(top) {
        println!("{target}: {bytes:>6} {name}");
    }
}

fn exceeded(target: &str, budget: &Budget, image: &Image) -> Option<String> {
    let (flash, ram) = (image.flash(), image.ram());
    (flash > budget.flash || ram > budget.ram).then(|| {
        format!(
            "{target} takes {flash} bytes of flash and {ram} of RAM, its budget is {} and {}",
            budget.flash, budget.ram
        )
    })
}

fn build(project: &Project, toolchain: &Toolchain, target: &str) -> Result<PathBuf> {
    let folder = project.bare_metal_target();
    let mut cargo = toolchain.cargo(&project.boards());
    cargo.args(["build", "--release", "--locked", "--package", PROBE, "--target", target]);
    cargo.arg("--target-dir").arg(&folder);
    cmd::run(&mut cargo)?;
    Ok(folder.join(target).join("release").join(PROBE))
}

fn budget(project: &Project, target: &str) -> Result<Budget> {
    let metadata = project::metadata(&project.boards().join("Cargo.toml"))?;
    let probe = metadata.packages.iter().find(|p| p.name.as_str() == PROBE);
    let table = &probe.context("boards has no size_probe")?.metadata[BUDGET][target];
    let number = |key: &str| {
        table[key].as_u64().with_context(|| format!("size_probe has no {BUDGET}.{target}.{key}"))
    };
    Ok(Budget { flash: number("flash")?, ram: number("ram")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_more_than_the_budget_fails() {
        let image = Image { code: 90, rodata: 5, data: 5, bss: 20, ..Image::default() };
        let over = |flash, ram| exceeded("t", &Budget { flash, ram }, &image);
        assert_eq!(over(100, 25), None);
        assert!(over(99, 25).unwrap().contains("100 bytes of flash"));
        assert!(over(100, 24).unwrap().contains("25 of RAM"));
    }
}
