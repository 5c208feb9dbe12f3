//! The output file: complete or not there.

use super::super::error::Usage;
use super::super::interrupt::Interrupt;
use super::buckets::Buckets;
use super::input::Input;
use super::run::BLOCK;
use anyhow::{Context, Result, anyhow, bail};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A temporary file in the folder of the output; gone again unless it is written to the end.
pub struct Output {
    path: PathBuf,
    file: NamedTempFile,
}

impl Output {
    /// Makes sure, before any work is done, that the output can be written.
    ///
    /// An output that is one of the inputs is safe for the tool (inputs are read long before the
    /// output takes its name), but the user loses data: that needs `force`.
    pub fn create(path: &Path, inputs: &[Input], force: bool) -> Result<Self> {
        let shown = || format!("cannot write {}", path.display());
        // Through a symbolic link, the file that it points to is replaced.
        let path = match fs::canonicalize(path) {
            Ok(path) => path,
            Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error).with_context(shown),
        };
        if path.exists() {
            if !path.is_file() {
                bail!("{}: it is not a regular file", shown());
            }
            let same = |i: &&Input| fs::canonicalize(&i.path).is_ok_and(|other| other == path);
            if let Some(input) = inputs.iter().find(same).filter(|_| !force) {
                let input = input.path.display();
                return Err(Usage(format!("{input} is input and output; --force allows it")).into());
            }
        }
        let folder = match path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            Some(folder) => folder,
            None => bail!("{}: it is not a regular file", shown()),
        };
        let file = builder().tempfile_in(folder).map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow!("{}: no folder {}", shown(), folder.display()),
            // The error itself names the temporary file, which would only confuse.
            kind => anyhow!("{}: {kind}", shown()),
        })?;
        Ok(Self { path, file })
    }

    /// Writes header and tensors, and gives the file its name.
    pub fn write(
        mut self,
        like: &Input,
        buckets: &Buckets,
        result: &[u8],
        interrupt: &Interrupt,
    ) -> Result<()> {
        let shown = format!("writing {}", self.path.display());
        let mut tensors: Vec<_> = like.tensors.iter().collect();
        // As in rank 0's file, so that its header fits.
        tensors.sort_by_key(|(_, tensor)| tensor.start);
        // To the file itself: errors of the temporary file name a path that nobody knows.
        let file = self.file.as_file_mut();
        file.write_all(&like.header).with_context(|| shown.clone())?;
        for (name, _) in tensors {
            let Some(place) = buckets.places.get(name) else { continue };
            for block in result[place.clone()].chunks(BLOCK) {
                interrupt.check()?;
                file.write_all(block).with_context(|| shown.clone())?;
            }
        }
        // The name must not outlive a power cut that the bytes do not.
        file.sync_all().with_context(|| shown.clone())?;
        interrupt.check()?;
        self.file.persist(&self.path).map_err(|error| error.error).context(shown)?;
        Ok(())
    }
}

/// Hidden, and as readable as any file that the user makes.
fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".unisono-").suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The umask takes away what it should.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder
}
