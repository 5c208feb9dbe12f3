//! House rules that no compiler checks.
//!
//! [`source`] looks into each `.rs` file, [`layers`] at the direction of dependencies, [`root`] at
//! the root folder. (Function length is clippy's `too_many_lines`, its limit is in `clippy.toml`.)

mod layers;
mod root;
mod source;

use crate::project::Project;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Checks everything and prints each violation as `path:line: rule`.
///
/// # Errors
/// If a rule is broken or a file cannot be read.
pub fn run(project: &Project) -> Result<()> {
    let files = rust_files(&project.root)?;
    let mut violations = root::check(&project.root)?;
    violations.extend(layers::check(project)?);
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let path = file.strip_prefix(&project.root)?.to_string_lossy().replace('\\', "/");
        violations.extend(source::check(&path, &text));
    }
    for violation in &violations {
        println!("{violation}");
    }
    if !violations.is_empty() {
        bail!("{} house rule violations in {} files", violations.len(), files.len());
    }
    println!("{} Rust files keep the house rules", files.len());
    Ok(())
}

/// Every `.rs` file of the repository in order of its path; build folders and dot-folders left out.
fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let kind = entry.file_type()?;
            if kind.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(entry.path());
            } else if kind.is_file() && name.ends_with(".rs") {
                files.push(entry.path());
            }
        }
    }
    if files.is_empty() {
        bail!("no Rust files under {}", root.display());
    }
    files.sort();
    Ok(files)
}
