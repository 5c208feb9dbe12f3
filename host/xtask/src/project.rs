//! Where things are: the root of the repository, the build folder, the cargo that called us.

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository that this program works on.
pub struct Project {
    /// Folder with the workspace's `Cargo.toml`.
    pub root: PathBuf,
    /// Cargo's build folder (`CARGO_TARGET_DIR` included).
    pub target: PathBuf,
}

impl Project {
    /// Finds the repository: that of the running `cargo xtask`, else that of the build.
    ///
    /// # Errors
    /// If there is no workspace there.
    pub fn find() -> Result<Self> {
        // Cargo sets the variable at run time too. The compile-time value alone could name another
        // checkout that shares the build folder.
        let own = std::env::var_os("CARGO_MANIFEST_DIR")
            .unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
        let root = Path::new(&own).ancestors().nth(2).context("xtask is not in host/xtask")?;
        let metadata = metadata(&root.join("Cargo.toml"))?;
        Ok(Self { root: root.to_path_buf(), target: metadata.target_directory.into() })
    }

    /// The host's cargo, started in the root folder.
    pub fn cargo(&self) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command.current_dir(&self.root);
        command
    }

    /// Folder of the firmware workspace.
    pub fn boards(&self) -> PathBuf {
        self.root.join("boards")
    }

    /// Build folder for bare-metal targets: another compiler may build them than the host's.
    pub fn bare_metal_target(&self) -> PathBuf {
        self.target.join("bare-metal")
    }
}

/// What cargo knows about a workspace, without resolving (or downloading) its dependencies.
///
/// # Errors
/// If cargo cannot read the manifests.
pub fn metadata(manifest: &Path) -> Result<Metadata> {
    let run = MetadataCommand::new().manifest_path(manifest).no_deps().exec();
    run.with_context(|| format!("cargo metadata of {}", manifest.display()))
}
