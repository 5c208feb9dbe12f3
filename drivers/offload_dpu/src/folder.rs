//! Folders for what a board and its host share. They are locked while they are in use: who can lock
//! one knows that its owner has ended without deleting it.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What the names of those of boards begin with.
const PREFIX: &str = "unisono-board-";
/// Another process may take a folder for a stale one before it is locked.
const TRIES: u32 = 100;

/// A folder that goes when this does.
#[derive(Debug)]
pub struct Folder {
    folder: TempDir,
    /// Unlocked after the folder is gone.
    _lock: File,
}

impl Folder {
    /// A board's, in memory if there is such a place.
    pub(crate) fn new() -> io::Result<Self> {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Self::new_in(&place, PREFIX)
    }

    /// One in this place, whose name begins so; those of processes that were killed go.
    ///
    /// # Errors
    /// The system's.
    pub fn new_in(place: &Path, prefix: &str) -> io::Result<Self> {
        for stale in stale(place, prefix) {
            let path = stale.0.display().to_string();
            tracing::debug!("{path} was left by a process that was killed");
            // If it does not go, the next one tries again.
            let _ = std::fs::remove_dir_all(&stale.0);
        }
        for _ in 0..TRIES {
            let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(place)?;
            let lock = match File::open(folder.path()) {
                Ok(lock) => lock,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            match lock.try_lock() {
                // Whoever had it locked before has deleted it.
                Ok(()) if folder.path().is_dir() => return Ok(Self { folder, _lock: lock }),
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::other(format!("folders in {} do not stay", place.display())))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Folders whose owners are gone, locked so that nobody takes one meanwhile.
fn stale(place: &Path, prefix: &str) -> Vec<(PathBuf, File)> {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let lock = |entry: std::fs::DirEntry| {
        let named = entry.file_name().to_string_lossy().starts_with(prefix);
        // A link is no folder here: what it leads to belongs to somebody else.
        let folder = named && entry.file_type().is_ok_and(|kind| kind.is_dir());
        let lock = folder.then(|| File::open(entry.path()).ok()).flatten()?;
        lock.try_lock().ok().map(|()| (entry.path(), lock))
    };
    entries.filter_map(lock).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_has_left_goes_and_nothing_else() {
        let place = tempfile::tempdir().expect("a place");
        let in_use = Folder::new_in(place.path(), PREFIX).expect("a folder");
        let left = place.path().join("unisono-board-left");
        let other = place.path().join("another-folder");
        let linked = place.path().join("unisono-board-link");
        for path in [&left, &other] {
            std::fs::create_dir(path).expect("created");
            std::fs::write(path.join("window"), [0; 9]).expect("written");
        }
        std::os::unix::fs::symlink(&other, &linked).expect("linked");
        let new = Folder::new_in(place.path(), PREFIX).expect("a folder");
        assert!(!left.exists());
        assert!(in_use.path().is_dir() && other.join("window").exists() && linked.exists());
        let paths = [in_use.path().to_owned(), new.path().to_owned()];
        drop((in_use, new));
        assert!(paths.iter().all(|path| !path.exists()));
    }
}
