//! The compiler for bare-metal targets.
//!
//! In this order: targets that the host's Rust toolchain has, targets that rustup adds to it, or
//! Debian's compiler with a `core` built once from Debian's source (see [`debian`]).
//! `UNISONO_TOOLCHAIN=rustup` and `UNISONO_TOOLCHAIN=debian` force one of them.

mod debian;

use crate::cmd;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Targets that core, driver contract, runtime and CPU device must build for.
pub const TARGETS: [&str; 3] =
    ["aarch64-unknown-none", "riscv64imac-unknown-none-elf", "thumbv7em-none-eabihf"];

/// Where the bare-metal compiler may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Whatever works, rustup first.
    Any,
    /// The host's toolchain and rustup only.
    Rustup,
    /// Debian's packages only; rustup downloads nothing.
    Debian,
}

impl Choice {
    /// Reads `UNISONO_TOOLCHAIN`.
    ///
    /// # Errors
    /// If it is set to something unknown.
    pub fn from_env() -> Result<Self> {
        Self::parse(std::env::var_os("UNISONO_TOOLCHAIN").as_deref())
    }

    fn parse(value: Option<&OsStr>) -> Result<Self> {
        match value.map(|v| v.to_str()) {
            None | Some(Some("")) => Ok(Self::Any),
            Some(Some("rustup")) => Ok(Self::Rustup),
            Some(Some("debian")) => Ok(Self::Debian),
            Some(other) => bail!(
                "UNISONO_TOOLCHAIN may be `debian` or `rustup`, not `{}`",
                other.unwrap_or("(not UTF-8)")
            ),
        }
    }
}

/// A usable compiler for [`TARGETS`].
#[derive(Debug)]
pub struct Toolchain {
    cargo: PathBuf,
    /// What has to be set beside cargo: the compiler, each target's flags and linker.
    env: Vec<(String, String)>,
    /// What would lead cargo to the host's compiler again, or hide the targets' flags.
    unset: &'static [&'static str],
}

impl Toolchain {
    /// The host's own toolchain: nothing to set.
    fn host() -> Self {
        let cargo = std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from);
        Self { cargo, env: Vec::new(), unset: &[] }
    }

    /// Cargo for bare-metal targets, started in `folder` (cargo reads its config from there up).
    pub fn cargo(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.cargo);
        command.current_dir(folder);
        for name in self.unset {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command
    }

    /// The environment as lines for a shell.
    pub fn shell(&self) -> String {
        let mut text = String::new();
        for name in self.unset {
            let _ = writeln!(text, "unset {name}");
        }
        let cargo = ("UNISONO_CARGO".to_owned(), self.cargo.to_string_lossy().into_owned());
        for (name, value) in std::iter::once(&cargo).chain(&self.env) {
            let _ = writeln!(text, "export {name}='{}'", value.replace('\'', r"'\''"));
        }
        text
    }
}

/// Makes [`TARGETS`] usable.
///
/// # Errors
/// If that is not possible here; the error says what to install.
pub fn prepare() -> Result<Toolchain> {
    let choice = Choice::from_env()?;
    if choice == Choice::Debian {
        return debian::prepare();
    }
    if installed()? {
        return Ok(Toolchain::host());
    }
    let added = cmd::run_aside(Command::new("rustup").args(["target", "add"]).args(TARGETS));
    match added {
        Ok(()) if installed()? => Ok(Toolchain::host()),
        Ok(()) => bail!("rustup added the targets, but not to the compiler in use"),
        Err(error) if choice == Choice::Rustup => Err(error),
        Err(error) => {
            eprintln!("rustup cannot add the targets ({error:#}): Debian's packages instead");
            debian::prepare()
        }
    }
}

/// Has the host's compiler a `core` for every target?
fn installed() -> Result<bool> {
    let sysroot = cmd::read(Command::new("rustc").args(["--print", "sysroot"]))
        .context("no Rust compiler")?;
    Ok(TARGETS.iter().all(|t| has_core(Path::new(sysroot.trim()), t)))
}

/// Is there a compiled `core` for the target in this sysroot?
fn has_core(sysroot: &Path, target: &str) -> bool {
    let Ok(files) = std::fs::read_dir(libraries(sysroot, target)) else { return false };
    files.flatten().any(|f| {
        let name = f.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libcore-") && name.ends_with(".rlib")
    })
}

/// Where a sysroot keeps a target's libraries.
fn libraries(sysroot: &Path, target: &str) -> PathBuf {
    sysroot.join("lib/rustlib").join(target).join("lib")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choice_is_checked() {
        assert_eq!(Choice::parse(None).unwrap(), Choice::Any);
        assert_eq!(Choice::parse(Some(OsStr::new("debian"))).unwrap(), Choice::Debian);
        assert_eq!(Choice::parse(Some(OsStr::new("rustup"))).unwrap(), Choice::Rustup);
        assert!(Choice::parse(Some(OsStr::new("Debian"))).is_err());
    }

    #[test]
    fn shell_lines_are_quoted() {
        let env = vec![("A".to_owned(), "it's".to_owned())];
        let text = Toolchain { cargo: "c".into(), env, unset: &["B"] }.shell();
        assert_eq!(text, "unset B\nexport UNISONO_CARGO='c'\nexport A='it'\\''s'\n");
    }
}
