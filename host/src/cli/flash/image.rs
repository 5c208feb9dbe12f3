//! Image files: read, packed, held against what the user demands.

use super::board_is_usage;
use super::report::Signature;
use anyhow::{Context, Result, anyhow, bail};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use unisono_loader::{
    HEADER_BYTES, Key, PAYLOAD_MAX, Package, PackageError, Trust, Version, has_private_key,
};

/// A key file has some 120 bytes; whoever names a disk image instead gets an error, not a wait.
const KEY_MAX: u64 = 1 << 16;

/// What an image must be.
#[derive(clap::Args, Debug)]
pub struct Demands {
    /// Demand a signature by this public key (PEM), or by one of a folder's *.pub and *.pem files;
    /// may be given more than once
    #[arg(long, value_name = "KEY")]
    trust: Vec<PathBuf>,
    /// Demand an image for this board; one that names no board itself is taken for its image
    #[arg(long, value_name = "NAME")]
    pub board: Option<String>,
}

impl Demands {
    /// Holds the image of this file against them.
    pub fn check(&self, file: &Path, package: &Package) -> Result<Signature> {
        let shown = || file.display().to_string();
        if let Some(board) = &self.board {
            package.must_be_for(board).with_context(shown)?;
        }
        if self.trust.is_empty() {
            let signed = package.signed_by().is_some();
            return Ok(if signed { Signature::Unchecked } else { Signature::None });
        }
        let mut trust = Trust::default();
        for path in &self.trust {
            add_keys(path, &mut trust.0)?;
        }
        trust.check(package).with_context(shown)?;
        Ok(Signature::Checked)
    }
}

/// The key in a file, or all in a folder.
fn add_keys(path: &Path, keys: &mut Vec<Key>) -> Result<()> {
    if !path.is_dir() {
        keys.push(key(path, Key::from_pem)?);
        return Ok(());
    }
    let shown = || path.display().to_string();
    let before = keys.len();
    for entry in fs::read_dir(path).with_context(shown)? {
        let file = entry.with_context(shown)?.path();
        if file.extension().is_some_and(|end| end == "pub" || end == "pem") {
            let bytes = read_at_most(&file, KEY_MAX)?;
            match key_in(&bytes) {
                Ok(key) => keys.push(key),
                Err(why) => tracing::info!("{}: skipped, {why}", file.display()),
            }
        }
    }
    if keys.len() == before {
        bail!("{}: no *.pub or *.pem file with a public ed25519 key in this folder", shown());
    }
    Ok(())
}

/// The public key in a file of a folder that may have others, too: who signs has both halves of a
/// key there, and keys of other programs end with the same letters.
fn key_in(bytes: &[u8]) -> Result<Key, String> {
    let text = str::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
    if has_private_key(text) {
        return Err("it has a private key".to_owned());
    }
    Key::from_pem(text)
}

/// A key of either kind.
pub fn key<K>(path: &Path, parse: impl Fn(&str) -> Result<K, String>) -> Result<K> {
    parsed(path, parse(&key_text(path)?))
}

fn key_text(path: &Path) -> Result<String> {
    let text = String::from_utf8(read_at_most(path, KEY_MAX)?);
    parsed(path, text.map_err(|_| "no text, so no key in PEM".to_owned()))
}

fn parsed<T>(path: &Path, result: Result<T, String>) -> Result<T> {
    result.map_err(|why| anyhow!(why)).with_context(|| path.display().to_string())
}

/// A whole image file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    read_at_most(path, PAYLOAD_MAX + HEADER_BYTES as u64)
}

fn read_at_most(path: &Path, most: u64) -> Result<Vec<u8>> {
    let shown = || path.display().to_string();
    // Opening a pipe would wait for a writer for ever.
    if !fs::metadata(path).with_context(shown)?.is_file() {
        bail!("{}: not a regular file", shown());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(shown)?;
    file.take(most + 1).read_to_end(&mut bytes).with_context(shown)?;
    if bytes.len() as u64 > most {
        bail!("{}: more than {most} bytes", shown());
    }
    Ok(bytes)
}

/// Packs a file without header. Whose image it is, it says itself, or else the user, or else its
/// name; the user's word has to be true.
pub fn pack(path: &Path, bytes: Vec<u8>, board: Option<&str>, version: Version) -> Result<Package> {
    let shown = || path.display().to_string();
    if Package::is_package(&bytes) {
        bail!("{}: it has a header already", shown());
    }
    let own = Package::board_in(&bytes).with_context(shown)?;
    let file = path.file_stem().map(|stem| stem.to_string_lossy());
    let name = board.or(own.as_deref()).or(file.as_deref()).unwrap_or_default();
    let packed: Result<Package, PackageError> = Package::new(bytes, name, version);
    packed.map_err(|error| board_is_usage(error, board.is_some())).with_context(shown)
}
