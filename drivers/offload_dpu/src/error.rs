//! What can go wrong with a board; the board's name is in every message.

use std::path::PathBuf;
use std::time::Duration;
use unisono_core::wire::board::Refusal;
use unisono_link_window::RegionError;

/// An error of a board.
#[derive(Debug, thiserror::Error)]
#[error("board {board}: {problem}")]
pub struct BoardError {
    /// Name of the board.
    pub board: String,
    /// What is wrong.
    #[source]
    pub problem: Problem,
}

/// What is wrong with a board.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The image cannot be read, or is none for this machine.
    #[error("{} is no image for it: {why}", .path.display())]
    Image {
        /// The image.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The program that runs the machine does not start.
    #[error("cannot start `{program}`: {error} (Debian's package of it is {package})")]
    Start {
        /// Which program.
        program: &'static str,
        /// Which package has it.
        package: &'static str,
        /// What the system says.
        error: std::io::Error,
    },
    /// The window cannot be made.
    #[error("no window of {bytes} bytes: {why}")]
    Window {
        /// How large it was to be.
        bytes: u64,
        /// Why not.
        why: String,
    },
    /// There is no window to attach to.
    #[error("cannot attach to {}: {why}", .path.display())]
    Attach {
        /// Where it was looked for.
        path: PathBuf,
        /// Why not, and what to do.
        why: String,
    },
    /// The region in the window cannot be used.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// It speaks another version of the messages.
    #[error("it speaks message ABI {theirs}, this host {ours}: build image and host together")]
    Abi {
        /// Its version.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
    /// It runs another image than the one that was started.
    #[error("it runs image {theirs:016x}, not {ours:016x}")]
    Build {
        /// What it runs.
        theirs: u64,
        /// What it should run.
        ours: u64,
    },
    /// Its machine is gone.
    #[error("it is gone: {0}")]
    Gone(String),
    /// The thread that watches it cannot be started.
    #[error("no thread to watch it: {0}")]
    Thread(std::io::Error),
    /// A socket for its links cannot be had.
    #[error("no socket for a link to it: {0}")]
    Socket(std::io::Error),
    /// The line to it is broken.
    #[error("the line to it is broken")]
    Line,
    /// It does not answer.
    #[error("no answer to {to} within {after:?}")]
    Mute {
        /// What was asked.
        to: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// Somebody wants to wait no longer.
    #[error("interrupted before it answered {to}")]
    Interrupted {
        /// What was asked.
        to: &'static str,
    },
    /// It refuses.
    #[error("it refuses: {0}")]
    Refused(Refusal),
    /// It says what makes no sense here.
    #[error("it answers {to} with nonsense")]
    Nonsense {
        /// What was asked.
        to: &'static str,
    },
    /// The tensor does not lie in its memory.
    #[error("{bytes} bytes at {at} are not in its tensor memory of {size} bytes")]
    Memory {
        /// Byte offset.
        at: u64,
        /// Length.
        bytes: usize,
        /// What there is.
        size: u32,
    },
}
