//! Files that are complete or not there: written without a name, or under another one, first.

use anyhow::{Context, Result, anyhow, bail};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Links that lead to links: as many as Linux follows.
const LINKS_MAX: usize = 40;

/// A temporary file in the folder of the one that it becomes; gone again unless it is kept. Where
/// the file system has files without a name it has none until then, so that nothing stays behind
/// even when this process is killed.
pub struct Staged {
    /// As the user calls it.
    name: PathBuf,
    /// What takes its place.
    path: PathBuf,
    to: To,
}

enum To {
    #[cfg(target_os = "linux")]
    Nameless(File),
    New(NamedTempFile),
    /// A pipe or a device is no file that could be replaced.
    Direct(File),
}

impl Staged {
    /// Makes sure, before any work is done, that the file can be written.
    ///
    /// Through a symbolic link, the file that it points to is replaced or made.
    pub fn create(name: &Path) -> Result<Self> {
        let shown = || format!("cannot write {}", name.display());
        if name == Path::new("-") {
            bail!("{}: results go to files (`./-` is one)", shown());
        }
        // Before links are followed: those of open pipes in /proc lead to names that do not exist.
        if fs::metadata(name).is_ok_and(|about| !about.is_file()) {
            bail!("{}: it is not a regular file", shown());
        }
        let path = behind_links(name).with_context(shown)?;
        // Neither `folder/` nor `folder/.` ends with the last name in it.
        let whole = path.as_os_str().as_encoded_bytes();
        if !path.file_name().is_some_and(|last| whole.ends_with(last.as_encoded_bytes())) {
            bail!("{}: that is the name of a folder", shown());
        }
        let folder = folder_of(&path);
        let old = fs::metadata(&path).ok();
        #[cfg(target_os = "linux")]
        if let Some(file) = nameless::create(folder) {
            old.map_or(Ok(()), |about| resemble(&file, &about)).with_context(shown)?;
            return Ok(Self { name: name.to_owned(), path, to: To::Nameless(file) });
        }
        // Made here, it is as readable as any file that the user makes, and an error names no
        // temporary file, which would only confuse.
        let file = builder().make_in(folder, |path| File::create_new(path)).map_err(|error| {
            let folder_shown = folder.display();
            match error.kind() {
                ErrorKind::NotFound if !folder.exists() => {
                    anyhow!("{}: no folder {folder_shown}", shown())
                }
                // What is not found here is a way to make files, as in /proc.
                ErrorKind::NotFound => {
                    anyhow!("{}: the folder {folder_shown} takes no new file", shown())
                }
                _ => anyhow!("{}: the folder {folder_shown} takes no new file: {error}", shown()),
            }
        })?;
        old.map_or(Ok(()), |about| resemble(file.as_file(), &about)).with_context(shown)?;
        Ok(Self { name: name.to_owned(), path, to: To::New(file) })
    }

    /// Like [`Self::create`], but a pipe or a device is written directly.
    pub fn create_or_open(name: &Path) -> Result<Self> {
        if !fs::metadata(name).is_ok_and(|about| !about.is_file() && !about.is_dir()) {
            return Self::create(name);
        }
        let file = File::options().write(true).open(name);
        let file = file.with_context(|| format!("cannot write {}", name.display()))?;
        Ok(Self { name: name.to_owned(), path: name.to_owned(), to: To::Direct(file) })
    }

    /// The file that is replaced; where it exists, free of links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let wrote = match &mut self.to {
            #[cfg(target_os = "linux")]
            To::Nameless(file) => file.write_all(bytes),
            // To the file inside: errors of the temporary file name a path that nobody knows.
            To::New(file) => file.as_file_mut().write_all(bytes),
            To::Direct(file) => file.write_all(bytes),
        };
        wrote.with_context(|| self.writing())
    }

    /// Waits until the bytes are stored: the name must not outlive a power cut that they do not.
    pub fn sync(&self) -> Result<()> {
        match &self.to {
            #[cfg(target_os = "linux")]
            To::Nameless(file) => file.sync_all().with_context(|| self.writing()),
            To::New(file) => file.as_file().sync_all().with_context(|| self.writing()),
            To::Direct(_) => Ok(()),
        }
    }

    /// Gives the file its name.
    pub fn keep(self) -> Result<()> {
        let writing = self.writing();
        match self.to {
            #[cfg(target_os = "linux")]
            To::Nameless(file) => {
                // Only a file with a name can replace another one.
                let named = builder()
                    .make_in(folder_of(&self.path), |as_| nameless::name(&file, as_))
                    .with_context(|| writing.clone())?;
                named.persist(&self.path).map_err(|error| error.error).context(writing)
            }
            To::New(file) => {
                file.persist(&self.path).map(drop).map_err(|error| error.error).context(writing)
            }
            To::Direct(_) => Ok(()),
        }
    }

    fn writing(&self) -> String {
        format!("writing {}", self.name.display())
    }
}

/// Makes temporary names.
fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".unisono-").suffix(".part");
    builder
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Files without a name.
#[cfg(target_os = "linux")]
mod nameless {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::path::Path;

    /// How the kernel calls an open file, which is how it can be named later.
    fn open_file(file: &File) -> String {
        format!("/proc/self/fd/{}", file.as_raw_fd())
    }

    /// `None` where there are none, or none that could be named later.
    pub fn create(folder: &Path) -> Option<File> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = File::from(open(folder, flags, Mode::from_raw_mode(0o666)).ok()?);
        Path::new(&open_file(&file)).try_exists().is_ok_and(|there| there).then_some(file)
    }

    pub fn name(file: &File, path: &Path) -> io::Result<()> {
        Ok(linkat(CWD, open_file(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }
}

/// Gives a file owner and mode of the one that it replaces; who may not give files away keeps his.
#[cfg(unix)]
fn resemble(file: &File, about: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    if fchown(file, Some(about.uid()), Some(about.gid())).is_err() {
        return Ok(());
    }
    // What runs as its owner is not made here.
    file.set_permissions(fs::Permissions::from_mode(about.mode() & 0o777))
}

/// Elsewhere files have what their folder gives them.
#[cfg(not(unix))]
fn resemble(_: &File, _: &fs::Metadata) -> io::Result<()> {
    Ok(())
}

/// The file that a name leads to, even if there is none yet.
fn behind_links(name: &Path) -> io::Result<PathBuf> {
    let mut path = name.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::canonicalize(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            found => return found,
        }
        let Ok(target) = fs::read_link(&path) else { return Ok(path) };
        // From the link's own folder, unless it is absolute.
        path = path.parent().unwrap_or_else(|| Path::new("")).join(target);
    }
    Err(io::Error::other("too many links one behind the other"))
}
