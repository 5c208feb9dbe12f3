//! Bare-metal targets from Debian's packages alone.
//!
//! Debian ships a current compiler (`rustc-web`, made for its browsers) and the matching source of
//! the standard library (`rust-web-src`), but no bare-metal target. So `core` and `alloc` are built
//! once from that source (cargo's `-Zbuild-std`) and kept in a sysroot of our own: from then on a
//! plain `cargo build --target` with `--sysroot` works, without unstable flags.
//! Compiler and source must be of one version; that is why the host's compiler cannot be used.

use super::{TARGETS, Toolchain, has_core, libraries};
use crate::{cmd, install};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CARGO: &str = "/usr/bin/cargo";
const RUSTC: &str = "/usr/bin/rustc";
/// Part of the lock file that `-Zbuild-std` resolves; the source package brings it.
const SOURCE: &str = "/usr/lib/rustlib/src/rust/library/Cargo.lock";
/// Installed if there is no `ld.lld` of any version.
const LINKER_PACKAGE: &str = "lld-22";
/// The oldest compiler taken: `rust-version` of the workspace.
const VERSION_MIN: (u32, u32) = (1, 90);
/// Counts up when the way of building changes, so that no sysroot built in the old way is used.
const RECIPE: u32 = 1;

/// Variables of the calling cargo and rustup that would lead to the host's compiler, and flags that
/// would take the place of the targets' own.
const UNSET: &[&str] = &[
    "CARGO",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "LD_LIBRARY_PATH",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
];

/// Installs the packages that are missing, builds the sysroot if it is not there.
///
/// # Errors
/// If packages are missing and cannot be installed, or if the build fails.
pub fn prepare() -> Result<Toolchain> {
    let missing = missing_packages();
    if !missing.is_empty() {
        install::apt(&missing).context("bare-metal targets from Debian's packages")?;
    }
    let linker = linker().context("no ld.lld in /usr/bin")?;
    let version = version().with_context(|| format!("{RUSTC} does not tell its version"))?;
    if !new_enough(&version) {
        bail!("{RUSTC} is {version}; at least {}.{} is needed", VERSION_MIN.0, VERSION_MIN.1);
    }
    let known = cmd::read(rustc().args(["--print", "target-list"]))?;
    if let Some(unknown) = TARGETS.iter().find(|t| !known.lines().any(|k| k == **t)) {
        bail!("{RUSTC} {version} does not know the target {unknown}");
    }
    let sysroot = cache()?.join(format!("sysroot-{version}-{RECIPE}"));
    if !complete(&sysroot) {
        build(&sysroot)?;
    }
    toolchain(&sysroot, &linker)
}

/// Packages to install, none if all is there.
fn missing_packages() -> Vec<&'static str> {
    let mut packages = Vec::new();
    if !version().is_some_and(|v| new_enough(&v)) {
        packages.push("rustc-web");
    }
    if !Path::new(CARGO).exists() {
        packages.push("cargo-web");
    }
    if !Path::new(SOURCE).exists() {
        packages.push("rust-web-src");
    }
    if linker().is_none() {
        packages.push(LINKER_PACKAGE);
    }
    packages
}

/// Debian's `ld.lld-N` with the largest N, or a plain `ld.lld`.
fn linker() -> Option<PathBuf> {
    let names = fs::read_dir("/usr/bin").ok()?.flatten().map(|f| f.file_name());
    let versioned = names.filter_map(|name| {
        let number: u32 = name.to_str()?.strip_prefix("ld.lld-")?.parse().ok()?;
        Some((number, Path::new("/usr/bin").join(&name)))
    });
    let plain = PathBuf::from("/usr/bin/ld.lld");
    versioned.max().map(|(_, path)| path).or_else(|| plain.exists().then_some(plain))
}

/// Release of Debian's compiler, as in `1.96.0`.
fn version() -> Option<String> {
    if !Path::new(RUSTC).exists() {
        return None;
    }
    let text = cmd::read(rustc().arg("-vV")).ok()?;
    text.lines().find_map(|l| l.strip_prefix("release: ")).map(str::to_owned)
}

fn rustc() -> Command {
    let mut command = Command::new(RUSTC);
    // The calling cargo points it at the libraries of another compiler.
    command.env_remove("LD_LIBRARY_PATH");
    command
}

fn new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= VERSION_MIN
}

/// Folder for what is built once per machine.
fn cache() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|h| h.join(".cache")));
    let folder = base.context("neither XDG_CACHE_HOME nor HOME is set")?.join("unisono");
    // Cargo splits the flags that carry the path at white space.
    if folder.to_string_lossy().contains(char::is_whitespace) {
        bail!("the cache folder must not have white space in its path: {}", folder.display());
    }
    Ok(folder)
}

fn complete(sysroot: &Path) -> bool {
    TARGETS.iter().all(|t| has_core(sysroot, t))
}

/// Builds `core` and `alloc` for all targets into `sysroot`.
///
/// It is made beside its final place and then renamed: two builds at once, or one that was stopped,
/// never leave half a sysroot.
fn build(sysroot: &Path) -> Result<()> {
    eprintln!("building core and alloc for {} (once, minutes)", TARGETS.join(", "));
    let mut work = sysroot.as_os_str().to_owned();
    work.push(format!("-part{}", std::process::id()));
    let work = PathBuf::from(work);
    fs::create_dir_all(work.join("src"))?;
    fs::write(work.join("src/lib.rs"), "#![no_std]\n")?;
    fs::write(
        work.join("Cargo.toml"),
        "[package]\nname = \"sysroot\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [profile.release]\npanic = \"abort\"\ndebug = false\n[workspace]\n",
    )?;
    let mut cargo = bare(&work);
    cargo.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", work.join("target"));
    // Without bitcode beside the object code, firmware could not be built with link-time
    // optimisation.
    cargo.env("RUSTFLAGS", "-Cembed-bitcode=yes");
    cargo.args(["build", "--release", "-Zbuild-std=core,alloc,compiler_builtins"]);
    cargo.arg("-Zbuild-std-features=compiler-builtins-mem");
    cargo.args(TARGETS.iter().flat_map(|t| ["--target", t]));
    let built = cmd::run_aside(&mut cargo).and_then(|()| collect(&work, sysroot));
    // Also after a failure: the work folder is of no use to anybody.
    fs::remove_dir_all(&work)?;
    built
}

/// Moves the built libraries into the form of a sysroot.
fn collect(work: &Path, sysroot: &Path) -> Result<()> {
    let done = work.join("sysroot");
    for target in TARGETS {
        let to = libraries(&done, target);
        fs::create_dir_all(&to)?;
        for file in fs::read_dir(work.join("target").join(target).join("release/deps"))? {
            let (path, name) = file.map(|f| (f.path(), f.file_name()))?;
            let wanted = ["libcore-", "liballoc-", "libcompiler_builtins-"];
            let text = name.to_string_lossy();
            if wanted.iter().any(|w| text.starts_with(w)) && text.ends_with(".rlib") {
                fs::rename(path, to.join(&name))?;
            }
        }
        if !has_core(&done, target) {
            bail!("the build left no libcore for {target}");
        }
    }
    if complete(sysroot) {
        // Another build was faster, and somebody may already be using its result.
        return Ok(());
    }
    if sysroot.exists() {
        fs::remove_dir_all(sysroot)?;
    }
    fs::rename(&done, sysroot).with_context(|| format!("making {}", sysroot.display()))
}

/// Debian's cargo and compiler, free of the calling toolchain's variables.
fn bare(folder: &Path) -> Command {
    let env = vec![("RUSTC".to_owned(), RUSTC.to_owned())];
    Toolchain { cargo: CARGO.into(), env, unset: UNSET }.cargo(folder)
}

fn toolchain(sysroot: &Path, linker: &Path) -> Result<Toolchain> {
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not UTF-8");
    let mut env = vec![("RUSTC".to_owned(), RUSTC.to_owned())];
    for target in TARGETS {
        let prefix = format!("CARGO_TARGET_{}", target.to_uppercase().replace('-', "_"));
        env.push((format!("{prefix}_LINKER"), text(linker)?));
        env.push((format!("{prefix}_RUSTFLAGS"), format!("--sysroot={}", text(sysroot)?)));
    }
    Ok(Toolchain { cargo: CARGO.into(), env, unset: UNSET })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert!(new_enough("1.96.0") && new_enough("1.90.0") && new_enough("2.0.0"));
        assert!(!new_enough("1.85.1") && !new_enough("1.9.0") && !new_enough(""));
    }

    #[test]
    fn every_target_gets_flags_and_linker() {
        let made = toolchain(Path::new("/s"), Path::new("/l")).unwrap();
        let text = made.shell();
        assert!(text.contains("export CARGO_TARGET_THUMBV7EM_NONE_EABIHF_LINKER='/l'"));
        assert_eq!(text.matches("--sysroot=/s").count(), TARGETS.len());
    }
}
