//! Dependencies point one way: core <- drivers/api <- {drivers, runtime} <- {host, boards}.
//! Drivers and the runtime never know each other; the simulator may use both. `drivers/gpu` is what
//! the GPU drivers share, `drivers/link_span` what links over memory of threads and processes do;
//! `drivers/offload_…` command a whole board, over links of other drivers; `drivers/loader` brings
//! images to boards.
//!
//! Dev-dependencies are free: a driver's tests may use the runtime. Every crate must also take the
//! workspace's lints, or clippy would not see its long functions.

use crate::project::{self, Project};
use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Package};
use std::fs;
use std::path::Path;

/// What a crate is, told from its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Core,
    Api,
    Gpu,
    Span,
    Driver,
    Offload,
    Loader,
    Runtime,
    Sim,
    Host,
    Board,
}

impl Layer {
    /// The layer of a crate's folder, relative to the root.
    fn of(folder: &str) -> Option<Self> {
        match folder {
            "no_std_core" => Some(Self::Core),
            "drivers/api" => Some(Self::Api),
            "drivers/gpu" => Some(Self::Gpu),
            "drivers/link_span" => Some(Self::Span),
            "drivers/loader" => Some(Self::Loader),
            "runtime" => Some(Self::Runtime),
            "runtime/sim" => Some(Self::Sim),
            "host" => Some(Self::Host),
            _ if folder.starts_with("drivers/offload_") => Some(Self::Offload),
            _ if folder.starts_with("drivers/") => Some(Self::Driver),
            _ if folder.starts_with("host/") => Some(Self::Host),
            _ if folder.starts_with("boards/") => Some(Self::Board),
            _ => None,
        }
    }

    /// Layers that this one may depend on.
    const fn below(self) -> &'static [Self] {
        match self {
            Self::Core => &[],
            Self::Api => &[Self::Core],
            Self::Gpu | Self::Span | Self::Runtime => &[Self::Core, Self::Api],
            Self::Driver => &[Self::Core, Self::Api, Self::Gpu, Self::Span],
            Self::Offload => &[Self::Core, Self::Api, Self::Span, Self::Driver],
            Self::Loader => &[Self::Core, Self::Offload],
            Self::Sim => {
                &[Self::Core, Self::Api, Self::Gpu, Self::Span, Self::Driver, Self::Runtime]
            }
            Self::Host => &[
                Self::Core,
                Self::Span,
                Self::Api,
                Self::Gpu,
                Self::Driver,
                Self::Offload,
                Self::Loader,
                Self::Runtime,
                Self::Sim,
                Self::Host,
            ],
            Self::Board => {
                &[Self::Core, Self::Api, Self::Span, Self::Driver, Self::Runtime, Self::Board]
            }
        }
    }
}

/// Violations in the manifests of both workspaces.
///
/// # Errors
/// If cargo cannot read a manifest.
pub fn check(project: &Project) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for workspace in [project.root.clone(), project.boards()] {
        for package in &project::metadata(&workspace.join("Cargo.toml"))?.packages {
            found.extend(package_check(&project.root, package)?);
        }
    }
    Ok(found)
}

fn package_check(root: &Path, package: &Package) -> Result<Vec<String>> {
    let manifest = package.manifest_path.as_std_path();
    let mut found = Vec::new();
    let shown = manifest.strip_prefix(root).unwrap_or(manifest).display().to_string();
    let mut report = |what: String| found.push(format!("{shown}:1: {what}"));
    let text = fs::read_to_string(manifest).with_context(|| shown.clone())?;
    if !text.contains("[lints]\nworkspace = true") {
        report("does not take the workspace's lints".to_owned());
    }
    let Some(own) = manifest.parent().and_then(|f| layer(root, f)) else {
        report("this folder is no place for a crate".to_owned());
        return Ok(found);
    };
    for dependency in &package.dependencies {
        let Some(folder) = dependency.path.as_ref() else { continue };
        if dependency.kind == DependencyKind::Development {
            continue;
        }
        match layer(root, folder.as_std_path()) {
            None => report(format!("depends on {} outside the tree", dependency.name)),
            Some(other) if own.below().contains(&other) => {}
            Some(other) => {
                report(format!("{own:?} must not depend on {other:?} ({})", dependency.name))
            }
        }
    }
    Ok(found)
}

fn layer(root: &Path, folder: &Path) -> Option<Layer> {
    Layer::of(folder.strip_prefix(root).ok()?.to_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_has_its_layer() {
        assert_eq!(Layer::of("drivers/device_cpu"), Some(Layer::Driver));
        assert_eq!(Layer::of("host/xtask"), Some(Layer::Host));
        assert_eq!(Layer::of("boards/size_probe"), Some(Layer::Board));
        assert_eq!(Layer::of("tools/x"), None);
    }

    #[test]
    fn nothing_points_upwards() {
        let order =
            [Layer::Core, Layer::Api, Layer::Driver, Layer::Runtime, Layer::Sim, Layer::Host];
        for (i, lower) in order.iter().enumerate() {
            for upper in &order[i + 1..] {
                assert!(!lower.below().contains(upper), "{lower:?} -> {upper:?}");
            }
        }
        assert!(!Layer::Runtime.below().contains(&Layer::Driver));
        assert!(!Layer::Driver.below().contains(&Layer::Driver));
        assert!(!Layer::Driver.below().contains(&Layer::Offload));
        assert!(!Layer::Offload.below().contains(&Layer::Runtime));
        assert!(!Layer::Offload.below().contains(&Layer::Loader));
        assert!(!Layer::Host.below().contains(&Layer::Board));
        assert!(!Layer::Board.below().contains(&Layer::Host));
    }

    #[test]
    fn a_wrong_dependency_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let metadata = project::metadata(&root.join("Cargo.toml")).unwrap();
        let named = |n: &str| metadata.packages.iter().find(|p| p.name.as_str() == n).unwrap();
        let runtime = named("unisono-runtime").clone();
        assert_eq!(package_check(root, &runtime).unwrap(), Vec::<String>::new());
        let mut bad = runtime;
        let mut wrong = bad.dependencies[0].clone();
        wrong.path = Some(root.join("drivers/device_cpu").try_into().unwrap());
        wrong.kind = DependencyKind::Normal;
        bad.dependencies.push(wrong);
        let found = package_check(root, &bad).unwrap();
        assert!(found.len() == 1 && found[0].contains("Runtime must not depend on Driver"));
    }
}
