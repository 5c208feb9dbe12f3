//! Some of an API's drivers, in the loader's own terms: environment variables.

use std::env::join_paths;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use tempfile::TempDir;
use unisono::device::Api;

/// An API with these drivers only.
#[derive(Debug)]
pub struct Only {
    api: Api,
    variables: Vec<(&'static str, OsString)>,
    /// OpenCL takes a list in the form of a folder.
    folder: Option<TempDir>,
}

impl Only {
    /// # Errors
    /// A file cannot be copied, or named in a list.
    pub fn new(api: Api, files: &[PathBuf]) -> io::Result<Self> {
        if api == Api::Vulkan {
            let list = join_paths(files).map_err(io::Error::other)?;
            // Loaders before 1.3.207 know the second only.
            let variables = vec![("VK_DRIVER_FILES", list.clone()), ("VK_ICD_FILENAMES", list)];
            return Ok(Self { api, variables, folder: None });
        }
        let folder = tempfile::Builder::new().prefix("unisono-").tempdir()?;
        for (i, file) in files.iter().enumerate() {
            std::fs::copy(file, folder.path().join(format!("{i:03}.icd")))?;
        }
        let variables = vec![("OCL_ICD_VENDORS", folder.path().as_os_str().to_owned())];
        Ok(Self { api, variables, folder: Some(folder) })
    }

    /// What a child needs.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        self.variables.iter().map(|(name, value)| (*name, value))
    }

    /// Sets the variables of this process, which must have one thread.
    pub fn set(&self) {
        for (name, value) in self.variables() {
            // SAFETY: nobody reads the environment meanwhile: `main` comes here before it starts a
            // thread or loads a driver, which might start one.
            unsafe { std::env::set_var(name, value) };
        }
    }

    /// Lets the loader read its list, if that is a folder which goes now.
    pub fn load(self) {
        if self.folder.is_some() {
            // Whatever it finds, it is asked again by whoever wants to know.
            let _ = unisono::device::Catalog::of(&[self.api]);
        }
    }
}
