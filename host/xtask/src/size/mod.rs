//! How much flash and RAM unisono takes in firmware.
//!
//! Each board says in its `budget.toml` what its image may take. `boards/size_probe` has images
//! that run parts of unisono on data the compiler cannot foresee: the core, layer by layer, and a
//! whole member. They are built and linked as firmware is (size-optimised, link-time optimisation,
//! dead code dropped) for each bare-metal target. Their manifest holds the budgets. An image that
//! grows past its own fails here, in review, and not on a board.
//!
//! Budgets leave no room for two things: a place in the core's source that may panic, and a symbol
//! of an allocator.

mod elf;

use crate::boards::{self, Budget};
use crate::cmd;
use crate::project::{self, Project};
use crate::toolchain::{self, TARGETS, Toolchain};
use anyhow::{Context, Result, bail};
use clap::Args;
use elf::Image;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PROBE: &str = "size_probe";
/// The probe's images, in the order of the table.
const IMAGES: [&str; 7] = ["machine", "reliable", "fold", "planner", "node", "node_cpu", "serial"];
/// Where the probe's manifest keeps the budgets: `[package.metadata.budget.TARGET.IMAGE]`.
const BUDGET: &str = "budget";

/// What `cargo xtask size` takes.
#[derive(Args, Debug, Default)]
pub struct Options {
    /// Also list this many of the largest functions and statics of each image.
    #[arg(long, default_value_t = 0)]
    top: usize,
    /// Also list the places in the source whose checks may panic.
    #[arg(long)]
    panics: bool,
    /// Print the sizes as JSON, one object an image, and nothing else on stdout.
    #[arg(long)]
    json: bool,
}

/// One image for one target.
struct Row {
    budget: Budget,
    image: Image,
}

/// Builds the images for every target and prints their sizes.
///
/// # Errors
/// If an image does not build, takes more than its budget.
pub fn run(project: &Project, options: &Options) -> Result<()> {
    let rows = measure(project)?;
    if options.json {
        for row in &rows {
            println!("{}", row.json());
        }
    } else {
        print!("{}", table(&rows));
        for row in &rows {
            row.details(options, &project.root);
        }
    }
    let wrong: Vec<String> = rows.iter().flat_map(Row::violations).collect();
    if !wrong.is_empty() {
        bail!("{}", wrong.join("; "));
    }
    Ok(())
}

fn measure(project: &Project) -> Result<Vec<Row>> {
    let toolchain = toolchain::prepare()?;
    let folder = project.bare_metal_target();
    let mut rows = Vec::new();
    let budgets: Result<Vec<Budget>> = TARGETS
        .iter()
        .flat_map(|target| IMAGES.iter().map(|name| budget(project, target, name)))
        .collect();
    let budgets = budgets?;
    build_probe(project, &toolchain, &budgets)?;
    for budget in budgets {
        rows.push(Row::read(&folder.join(&budget.target).join(&budget.profile), budget)?);
    }
    for board in boards::all(project)? {
        rows.push(Row::read(&board.build(project, &toolchain)?, board.budget)?);
    }
    Ok(rows)
}

/// Builds the probe's images for all targets.
///
/// Link-time optimisation takes one core an image, so a call has all images of a profile. They are
/// of one package, and have the same features however they are built.
fn build_probe(project: &Project, toolchain: &Toolchain, budgets: &[Budget]) -> Result<()> {
    let profiles: BTreeSet<&str> = budgets.iter().map(|b| b.profile.as_str()).collect();
    for profile in profiles {
        let of_profile = budgets.iter().filter(|b| b.profile == profile);
        let images: BTreeSet<&str> = of_profile.map(|b| b.image.as_str()).collect();
        let mut cargo = toolchain.cargo(&project.boards());
        cargo.args(["build", "--locked", "--package", PROBE, "--profile", profile]);
        cargo.args(TARGETS.iter().flat_map(|target| ["--target", target]));
        cargo.args(images.iter().flat_map(|image| ["--bin", image]));
        cargo.arg("--target-dir").arg(project.bare_metal_target());
        cmd::run_aside(&mut cargo)?;
    }
    Ok(())
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<28} {:<18} {:>7} {:>7} {:>5} {:>6} {:>15} {:>13} {:>13}\n",
        "target (bytes)",
        "image",
        "code",
        "rodata",
        "data",
        "bss",
        "flash/budget",
        "RAM/budget",
        "panics/budget"
    );
    for row @ Row { budget, image } in rows {
        let Budget { target, image: name, .. } = budget;
        let flash = format!("{}/{}", image.flash(), budget.flash);
        let ram = format!("{}/{}", row.ram(), budget.ram);
        let panics = format!("{}/{}", image.sites.len(), budget.panics);
        text += &format!(
            "{target:<28} {name:<18} {:>7} {:>7} {:>5} {:>6} {flash:>15} {ram:>13} {panics:>13}\n",
            image.code, image.rodata, image.data, image.bss,
        );
    }
    text
}

impl Row {
    /// Reads the image of this budget in a folder.
    fn read(folder: &Path, budget: Budget) -> Result<Self> {
        let file = folder.join(&budget.image);
        let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
        let image = elf::read(&bytes).with_context(|| file.display().to_string())?;
        Ok(Self { budget, image })
    }

    /// What the image takes of RAM beside the slots.
    const fn ram(&self) -> u64 {
        self.image.ram().saturating_sub(self.budget.slots)
    }

    fn details(&self, options: &Options, root: &Path) {
        let Self { budget: Budget { target, image: name, .. }, image } = self;
        let top = options.top;
        if options.panics {
            println!("{target} {name}: panic machinery: {}", image.panics.join(", "));
            for site in &image.sites {
                println!("{target} {name}: may panic: {}", shortened(site, root));
            }
        }
        for (bytes, symbol) in image.functions.iter().take(top) {
            println!("{target} {name}: {bytes:>6} {symbol}");
        }
        for (bytes, symbol) in image.objects.iter().take(top) {
            println!("{target} {name}: {bytes:>6} {symbol} (static)");
        }
    }

    fn json(&self) -> serde_json::Value {
        let Self { budget, image } = self;
        let Budget { target, image: name, .. } = budget;
        serde_json::json!({
            "target": target,
            "image": name,
            "code": image.code,
            "rodata": image.rodata,
            "data": image.data,
            "bss": image.bss,
            "flash": image.flash(),
            "flash_budget": budget.flash,
            "ram": self.ram(),
            "ram_budget": budget.ram,
            "panics": image.sites.len(),
            "panics_budget": budget.panics,
        })
    }

    fn violations(&self) -> Vec<String> {
        let Self { budget, image } = self;
        let Budget { target, image: name, .. } = budget;
        let (flash, ram) = (image.flash(), self.ram());
        let mut found = Vec::new();
        if flash > budget.flash || ram > budget.ram {
            found.push(format!(
                "{name} takes {flash} bytes of flash and {ram} of RAM on {target}, its budget is \
                 {} and {}",
                budget.flash, budget.ram
            ));
        }
        let panics = image.sites.len() as u64;
        if panics > budget.panics {
            found.push(format!(
                "{name} may panic at {panics} places on {target}, its budget is {} (--panics lists \
                 them)",
                budget.panics
            ));
        }
        let core: Vec<&str> =
            image.sites.iter().map(String::as_str).filter(|s| in_core(s)).collect();
        if !core.is_empty() {
            found.push(format!("{name} may panic in the core on {target}: {}", core.join(", ")));
        }
        if !image.allocators.is_empty() {
            let symbols = image.allocators.join(", ");
            found.push(format!("{name} has an allocator on {target}: {symbols}"));
        }
        found
    }
}

fn budget(project: &Project, target: &str, image: &str) -> Result<Budget> {
    let metadata = project::metadata(&project.boards().join("Cargo.toml"))?;
    let probe = metadata.packages.iter().find(|p| p.name.as_str() == PROBE);
    let table = &probe.context("boards has no size_probe")?.metadata[BUDGET][target][image];
    let number = |key: &str| {
        let name = || format!("size_probe has no {BUDGET}.{target}.{image}.{key}");
        table[key].as_u64().with_context(name)
    };
    Ok(Budget {
        target: target.to_owned(),
        image: image.to_owned(),
        profile: table["profile"].as_str().unwrap_or("release").to_owned(),
        flash: number("flash")?,
        ram: number("ram")?,
        slots: 0,
        panics: number("panics")?,
    })
}

/// Does a place lie in the source of the core, which must not panic?
fn in_core(site: &str) -> bool {
    site.contains("no_std_core/src/")
}

/// A place in the source without the folders that depend on the machine.
fn shortened<'a>(site: &'a str, root: &Path) -> &'a str {
    let own = root.to_str().and_then(|root| site.strip_prefix(root)?.strip_prefix('/'));
    let registry = || site.split_once("/registry/src/")?.1.split_once('/');
    let library = || site.split_once("/library/");
    own.or_else(|| Some(registry()?.1)).or_else(|| Some(library()?.1)).unwrap_or(site)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, flash: u64, ram: u64) -> Row {
        let image = Image { code: 90, rodata: 5, data: 5, bss: 20, ..Image::default() };
        let (target, profile, name) = ("t".to_owned(), "release".to_owned(), name.to_owned());
        let budget = Budget { target, image: name, profile, flash, ram, slots: 0, panics: 1 };
        Row { budget, image }
    }

    #[test]
    fn only_more_than_the_budget_fails() {
        assert!(row("node", 100, 25).violations().is_empty());
        assert!(row("node", 99, 25).violations()[0].contains("100 bytes of flash"));
        assert!(row("node", 100, 24).violations()[0].contains("25 of RAM"));
    }

    #[test]
    fn panics_have_a_budget_too() {
        let mut row = row("node", 100, 25);
        row.image.sites.push("a.rs:1:2".into());
        assert!(row.violations().is_empty());
        row.image.sites.push("b.rs:1:2".into());
        assert!(row.violations()[0].contains("may panic at 2 places"));
    }

    #[test]
    fn the_core_must_not_panic_and_nothing_may_allocate() {
        let mut row = row("node", 100, 25);
        row.image.sites.push("/a/no_std_core/src/machine/mod.rs:1:2".into());
        row.image.allocators.push("malloc".into());
        let found = row.violations();
        assert!(found.len() == 2 && found[0].contains("may panic in the core"), "{found:?}");
        assert!(found[1].contains("has an allocator on t: malloc"), "{found:?}");
    }

    #[test]
    fn places_are_shown_without_the_machines_folders() {
        let short = |site| shortened(site, Path::new("/a/b"));
        assert_eq!(short("/a/b/no_std_core/src/x.rs:1:2"), "no_std_core/src/x.rs:1:2");
        assert_eq!(short("/c/registry/src/i-1/cobs-1/src/x.rs:1:2"), "cobs-1/src/x.rs:1:2");
        assert_eq!(short("/r/library/core/src/x.rs:1:2"), "core/src/x.rs:1:2");
        assert_eq!(short("x.rs:1:2"), "x.rs:1:2");
    }

    #[test]
    fn the_table_and_json_show_every_image() {
        let rows = [row("machine", 100, 25), row("node", 100, 25)];
        assert_eq!(table(&rows).lines().count(), 3);
        assert!(table(&rows).contains("100/100"));
        assert_eq!(rows[1].json()["bss"], 20);
    }
}
