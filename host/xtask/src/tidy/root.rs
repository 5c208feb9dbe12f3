//! The root folder shows the architecture and nothing else.

use anyhow::Result;
use std::fs;
use std::path::Path;

/// The five folders of the architecture.
const FOLDERS: [&str; 5] = ["no_std_core", "drivers", "runtime", "host", "boards"];
/// What may stand beside them. `target` is cargo's and ignored by git.
const BESIDE: [&str; 10] = [
    "README.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "CHANGELOG.md",
    "Cargo.toml",
    "Cargo.lock",
    "clippy.toml",
    "rustfmt.toml",
    "docs",
    "target",
];
/// What a published repository must have.
const REQUIRED: [&str; 6] =
    ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md", "Cargo.lock", "docs"];

/// Violations in the root folder.
///
/// # Errors
/// If it cannot be read.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(violations(&names))
}

fn violations(names: &[String]) -> Vec<String> {
    let allowed = |n: &str| n.starts_with('.') || FOLDERS.contains(&n) || BESIDE.contains(&n);
    let strange = names.iter().filter(|n| !allowed(n));
    let missing = REQUIRED.iter().filter(|r| !names.iter().any(|n| n == *r));
    strange
        .map(|n| format!("{n}:1: not one of the entries that the root folder may have"))
        .chain(missing.map(|r| format!("{r}:1: missing in the root folder")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strange_and_missing_entries_are_found() {
        let mut names: Vec<String> = REQUIRED.iter().map(|n| (*n).to_owned()).collect();
        names.extend([".ci", "host", "target"].map(str::to_owned));
        assert_eq!(violations(&names), Vec::<String>::new());
        names.push("scripts".to_owned());
        names.remove(0);
        let found = violations(&names);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("scripts:1:") && found[1].starts_with("README.md:1:"));
    }
}
