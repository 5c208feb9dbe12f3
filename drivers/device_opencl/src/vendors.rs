//! The `.icd` files from which the loader learns of drivers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Names a folder of them, one of them, or a driver's library.
const INSTEAD: &str = "OCL_ICD_VENDORS";
/// Names a folder of them.
const FOLDER: &str = "OPENCL_VENDOR_PATH";
/// Where they are if neither is set.
const SYSTEM: &str = "/etc/OpenCL/vendors";

/// The `.icd` files that the loader reads on this system, by name. None if `OCL_ICD_VENDORS`
/// names a library: then there is no other driver.
#[must_use]
pub fn vendors() -> Vec<PathBuf> {
    let folder = set(FOLDER).unwrap_or_else(|| SYSTEM.into());
    let Some(instead) = set(INSTEAD) else { return inside(folder.as_ref()) };
    let path = Path::new(&instead);
    if path.is_dir() {
        return inside(path);
    }
    if path.extension().is_none_or(|ending| ending != "icd") {
        return Vec::new();
    }
    // A name without a folder means the system's file first.
    let known = Path::new(&folder).join(path);
    let bare = path.components().count() == 1;
    vec![if bare && known.exists() { known } else { path.to_owned() }]
}

/// The library that a `.icd` file names, as the system's loader takes it.
#[must_use]
pub fn library(icd: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(icd).ok()?;
    text.lines().next().map(str::trim).filter(|line| !line.is_empty()).map(PathBuf::from)
}

/// What leads the loader elsewhere, and where to.
pub(crate) fn variable() -> Option<(&'static str, OsString)> {
    [INSTEAD, FOLDER].into_iter().find_map(|name| Some((name, set(name)?)))
}

/// What is there instead of a driver.
pub(crate) fn astray(path: &Path) -> &'static str {
    if path.is_dir() {
        return if inside(path).is_empty() {
            "a folder without .icd files"
        } else {
            "a folder whose .icd files name no library that loads and has a platform"
        };
    }
    let bare = path.components().count() == 1;
    match path.extension() {
        // These are looked up elsewhere, too.
        _ if bare => "where the loader finds none",
        _ if !path.exists() => "which does not exist",
        Some(ending) if ending == "icd" => {
            "a file that names no library that loads and has a platform"
        }
        _ => "which is no folder, no .icd file and no library of a driver",
    }
}

fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn inside(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else { return Vec::new() };
    let mut all: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    all.retain(|path| path.extension().is_some_and(|ending| ending == "icd"));
    all.sort();
    all
}
