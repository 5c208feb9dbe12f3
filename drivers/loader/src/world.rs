//! Where devices, firmware folders and programs are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The system's files and programs, or a folder that stands for them in tests.
#[derive(Clone, Debug)]
pub struct World {
    root: PathBuf,
    /// Folders of programs, as in `PATH`.
    programs: OsString,
}

impl World {
    /// This machine.
    #[must_use]
    pub fn real() -> Self {
        Self { root: "/".into(), programs: std::env::var_os("PATH").unwrap_or_default() }
    }

    /// A folder with `dev`, `sys`, `lib` and programs in `bin`.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self { root: root.to_owned(), programs: root.join("bin").into() }
    }

    /// Where `path`, written without its first `/`, is.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Where the program is; `None` if there is none.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        which::which_in(name, Some(&self.programs), &self.root).ok()
    }
}
