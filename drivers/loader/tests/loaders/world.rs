//! A folder that stands for the system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tempfile::TempDir;
use unisono_loader::{LoadError, Package, Plan, Quiet, Step, Version, Watch, World, loader};

/// A hang guard, nothing more.
const PATIENCE: Duration = Duration::from_secs(60);

/// The folder.
pub struct Root(TempDir);

impl Root {
    pub fn new() -> Self {
        let root = Self(tempfile::tempdir().expect("a temporary folder"));
        fs::create_dir(root.path("bin")).expect("a folder");
        root
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Makes a file and its folders.
    pub fn file(&self, path: &str, content: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(&path, content).expect("a file");
        path
    }

    /// Makes a pipe in place of a file: whoever writes into it waits for whoever reads, so a fake
    /// device sees every write by itself, in its order.
    pub fn pipe(&self, path: &str) {
        let path = self.path(path);
        fs::remove_file(&path).expect("a file to replace");
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
    }

    /// Makes a program of the shell which records its arguments, and then does `script`.
    pub fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.path(&format!("bin/{name}"));
        let log = self.path("log");
        let text = format!(
            "#!/bin/sh\n{{ printf %s {name}; printf ' <%s>' \"$@\"; echo; }} >> '{}'\n{script}\n",
            log.display()
        );
        // Written by another process: a copy of its open file in a child of another test's thread
        // would keep the system from running it.
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", &text]);
        assert!(shell.arg(&path).status().expect("a shell").success());
        path
    }

    /// What programs have recorded, a line a call.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub fn world(&self) -> World {
        World::below(self.0.path())
    }

    /// All files below a folder with their content, to see that nothing was changed.
    pub fn content(&self) -> Vec<(PathBuf, Vec<u8>)> {
        fn add(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    add(&path, files);
                } else {
                    files.push((path.clone(), fs::read(path).expect("a file")));
                }
            }
        }
        let mut files = Vec::new();
        add(self.0.path(), &mut files);
        files.sort();
        files
    }
}

const VERSION: Version = Version([0, 1, 0]);

/// An image that is an ELF file: this very test.
pub fn elf() -> Package {
    let own = std::fs::read(std::env::current_exe().expect("a path")).expect("this very test");
    Package::new(own, "m4", VERSION).expect("packed")
}

/// An image that is an ELF file for this CPU, of so many bits, and nothing but a header.
pub fn elf_for(board: &str, machine: u16, bits: u8) -> Package {
    let (class, len) = if bits == 64 { (2, 64) } else { (1, 52) };
    let mut bytes = vec![0; len];
    bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
    bytes[16] = 2;
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes[20] = 1;
    Package::new(bytes, board, VERSION).expect("packed")
}

/// An image for a microcontroller.
pub fn micro() -> Package {
    elf_for("m4", EM_ARM, 32)
}

/// ELF numbers of CPUs.
pub const EM_ARM: u16 = 40;
pub const EM_X86_64: u16 = 62;
pub const EM_AARCH64: u16 = 183;
pub const EM_RISCV: u16 = 243;

/// An image that begins as a boot stream and is longer than a block and a pipe.
pub fn boot_stream() -> Package {
    let bytes = 0x1302_6642_u32.to_le_bytes().into_iter().chain((0..700_000).map(|i| i as u8));
    Package::new(bytes.collect(), "bluefield", VERSION).expect("packed")
}

pub fn raw() -> Package {
    Package::new(b"raw".to_vec(), "raw", VERSION).expect("packed")
}

pub fn plan(root: &Root, to: &str, package: &Package) -> Result<Plan, LoadError> {
    loader(to).expect("a loader").plan(&root.world(), package)
}

/// The acts of a plan, with the root left out.
pub fn acts(root: &Root, plan: &Plan) -> Vec<String> {
    let text = |step: &Step| step.act.to_string();
    plan.steps.iter().map(|step| relative(root, &text(step))).collect()
}

/// A text with the root left out.
pub fn relative(root: &Root, text: &str) -> String {
    text.replace(&root.0.path().display().to_string(), "")
}

/// Remembers the steps that were begun.
#[derive(Default)]
pub struct Seen {
    pub steps: Vec<Step>,
    pub wrote: u64,
    /// Stop after so many bytes.
    pub stop_after: Option<u64>,
}

impl Watch for Seen {
    fn begin(&mut self, number: usize, step: &Step) {
        self.steps.push(step.clone());
        assert_eq!(self.steps.len(), number);
    }

    fn wrote(&mut self, bytes: u64) {
        self.wrote += bytes;
    }

    fn stopped(&self) -> bool {
        self.stop_after.is_some_and(|limit| self.wrote >= limit)
    }
}

/// Carries a plan out while a device does its part; both have to come to an end.
pub fn run_with<T: Send + 'static>(
    plan: Plan,
    package: Package,
    device: impl FnOnce() -> T + Send + 'static,
) -> (Result<Vec<String>, LoadError>, T) {
    let device = in_time(device);
    let host = in_time(move || plan.run(&package, &mut Quiet));
    (host(), device())
}

/// Starts a thread; what is returned waits for its result.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> impl FnOnce() -> T {
    let (send, receive) = mpsc::channel();
    let thread: JoinHandle<()> = thread::spawn(move || {
        let done = work();
        // Whoever no longer waits has failed already.
        let _ = send.send(done);
    });
    move || {
        let done = receive.recv_timeout(PATIENCE);
        assert!(done.is_ok() || !thread.is_finished(), "the fake device or the loader panicked");
        done.expect("done in time: something is waited for that never comes")
    }
}
