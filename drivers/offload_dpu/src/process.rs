//! A machine that was started here, and that ends with this process, whatever ends that.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};

/// Bytes of a machine's own error output that are told.
const TAIL: usize = 400;

/// A machine that was started here; it ends with this.
pub struct Process {
    pub child: Child,
    /// Where its error output goes.
    stderr: PathBuf,
    /// Its parent in the eyes of the system, a thread, lives as long as this.
    _parent: Sender<Infallible>,
}

impl Process {
    /// Starts a machine, whose error output goes to this file.
    ///
    /// It gets a thread of its own for a parent: the system ends it with the thread that has
    /// started it, and groups are built on threads that end long before the board.
    pub fn start(mut command: Command, stderr: PathBuf) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&stderr)?);
        lead(&mut command);
        end_with_parent(&mut command);
        let (tell, told) = channel();
        let (parent, end) = channel();
        std::thread::Builder::new().name("parent of a machine".to_owned()).spawn(move || {
            // If nobody is left to be told, nobody has `parent` either.
            let _ = tell.send(command.spawn());
            // Nothing is ever sent: this is an error once `parent` is dropped.
            let _: Result<Infallible, _> = end.recv();
        })?;
        let child = told.recv().map_err(io::Error::other)??;
        Ok(Self { child, stderr, _parent: parent })
    }

    /// What the machine has last said on its error output.
    pub fn said(&self) -> String {
        let stderr = std::fs::read(&self.stderr).unwrap_or_default();
        let tail = &stderr[stderr.len().saturating_sub(TAIL)..];
        String::from_utf8_lossy(tail).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already gone, or to be ended now; either way it is waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Puts it into a process group of its own: Ctrl-C at a terminal reaches this process alone, which
/// then ends the machine and says that it was interrupted, and not that its board is gone.
#[cfg(unix)]
pub fn lead(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

/// Other systems have no such groups.
#[cfg(not(unix))]
pub const fn lead(_: &mut Command) {}

/// Has the system end the program with its parent, the thread that starts it: one that is killed
/// cannot do it.
#[cfg(target_os = "linux")]
pub fn end_with_parent(command: &mut Command) {
    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
    use std::os::unix::process::CommandExt;
    let parent = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before it could be asked for.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: system calls that may be made between fork and exec, and nothing is allocated.
    unsafe { command.pre_exec(ask) };
}

/// Other systems do not do that.
#[cfg(not(target_os = "linux"))]
pub const fn end_with_parent(_: &mut Command) {}
