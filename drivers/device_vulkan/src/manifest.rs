//! Manifests: the JSON files from which the loader learns of drivers.

use std::env::{split_paths, var_os};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Variables whose files are the only ones; the second is the first one's old name.
const INSTEAD: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];
/// Files before those of the system.
const BESIDES: &str = "VK_ADD_DRIVER_FILES";
/// Where each folder below has them.
const FOLDER: &str = "vulkan/icd.d";
/// Most bytes of one; the loader has no limit, but a manifest has some hundred.
const BYTES_MAX: u64 = 1 << 20;

/// The manifests that the loader reads on this system, in its order: those that variables name, or
/// those in the folders that the loader's documentation lists for Linux.
#[must_use]
pub fn manifests() -> Vec<PathBuf> {
    if let Some((_, only)) = variable() {
        return files(&only);
    }
    let mut all = set(BESIDES).map_or_else(Vec::new, |more| files(&more));
    for root in roots() {
        all.extend(inside(&root.join(FOLDER)));
    }
    all
}

/// What leads the loader elsewhere, and where to.
pub(crate) fn variable() -> Option<(&'static str, OsString)> {
    INSTEAD.into_iter().find_map(|name| Some((name, set(name)?)))
}

fn set(name: &str) -> Option<OsString> {
    var_os(name).filter(|value| !value.is_empty())
}

/// Those among them that are no JSON, and why.
pub(crate) fn unreadable() -> Vec<String> {
    let why = |path: &PathBuf| {
        // A file that is not there, or not for us, does no harm.
        let length = path.metadata().ok()?.len();
        if length > BYTES_MAX {
            return Some(format!("{} is no manifest: it has {length} bytes", path.display()));
        }
        let text = std::fs::read(path).ok()?;
        // An empty one is passed over.
        let read = serde_json::from_slice::<serde_json::Value>(&text);
        let error = read.err().filter(|_| !text.is_empty())?;
        Some(format!("{} is no manifest: {error}", path.display()))
    };
    manifests().iter().filter_map(why).collect()
}

/// The library that a manifest names, as the system's loader takes it; `None` if it names none for
/// this machine.
#[must_use]
pub fn library(manifest: &Path) -> Option<PathBuf> {
    let text = std::fs::read(manifest).ok()?;
    let value: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let icd = value.get("ICD")?;
    let bits = icd.get("library_arch").and_then(serde_json::Value::as_str);
    let named = Path::new(icd.get("library_path")?.as_str()?);
    let other = bits.is_some_and(|bits| bits != usize::BITS.to_string());
    let bare = named.is_absolute() || named.components().count() == 1;
    let found = || if bare { named.to_owned() } else { manifest.with_file_name("").join(named) };
    (!other).then(found)
}

/// Files, and what is in folders, with colons between them.
fn files(list: &OsStr) -> Vec<PathBuf> {
    let one = |path: PathBuf| if path.is_dir() { inside(&path) } else { vec![path] };
    split_paths(list).flat_map(one).collect()
}

/// The manifests in a folder, by name, so that the order is the same each time.
fn inside(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else { return Vec::new() };
    let mut all: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    all.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    all.sort();
    all
}

/// The folders that may have [`FOLDER`].
fn roots() -> Vec<PathBuf> {
    let or = |name: &str, default: &str| set(name).unwrap_or_else(|| default.into());
    let home = var_os("HOME").map(PathBuf::from);
    let user = |name: &str, folder: &str| {
        let own = set(name).map(PathBuf::from);
        own.or_else(|| home.as_ref().map(|home| home.join(folder)))
    };
    let mut roots: Vec<PathBuf> = user("XDG_CONFIG_HOME", ".config").into_iter().collect();
    roots.extend(split_paths(&or("XDG_CONFIG_DIRS", "/etc/xdg")));
    roots.extend(["/usr/local/etc", "/etc"].map(PathBuf::from));
    roots.extend(user("XDG_DATA_HOME", ".local/share"));
    roots.extend(split_paths(&or("XDG_DATA_DIRS", "/usr/local/share:/usr/share")));
    roots
}
