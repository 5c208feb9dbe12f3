//! What a loader is going to do, step by step.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use unisono_offload_dpu::Machine;

/// All that is going to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The loader, as after `--to`.
    pub to: String,
    /// Is the device there?
    pub device: Device,
    /// In their order; the first that fails is the last.
    pub steps: Vec<Step>,
}

/// What is known of a device before anything is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// It is there; what it says of itself.
    Seen(String),
    /// Only the steps themselves find out whether it is there.
    Unseen(String),
    /// It, or a program that is needed, is not here: what was looked for, and what to do. The steps
    /// are then those for a device that is there and does nothing.
    Missing {
        /// What was looked for.
        what: String,
        /// What to do.
        help: String,
    },
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seen(what) => write!(f, "seen: {what}"),
            Self::Unseen(what) => write!(f, "not seen yet: {what}"),
            Self::Missing { what, help } => write!(f, "not here: {what} ({help})"),
        }
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What is done.
    pub act: Act,
    /// What for.
    pub why: String,
    /// What the device is left in if this step fails.
    pub left: String,
}

impl Step {
    /// A step; the texts say what for, and what the device is left in if it fails.
    pub(crate) fn new(act: Act, why: impl Into<String>, left: impl Into<String>) -> Self {
        Self { act, why: why.into(), left: left.into() }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.act, self.why)
    }
}

/// What is done in a step.
#[derive(Clone, Debug)]
pub enum Act {
    /// Writes the payload into a temporary folder, which is gone at the end.
    Unpack {
        /// Name of the file there.
        name: String,
    },
    /// Writes a line into a control file, which must exist.
    Write {
        /// The file.
        path: PathBuf,
        /// The line, without its end.
        line: String,
    },
    /// Writes the payload into a device, which must exist.
    Stream {
        /// The device.
        path: PathBuf,
        /// Bytes of the payload.
        bytes: u64,
    },
    /// Makes or replaces a file with the payload as its content; it is complete or not there.
    Install {
        /// The file.
        path: PathBuf,
        /// Bytes of the payload.
        bytes: u64,
    },
    /// Waits until a control file says something.
    Await {
        /// The file.
        path: PathBuf,
        /// What it has to say.
        line: String,
        /// How long it may take.
        patience: Duration,
    },
    /// Runs a program, which must end with exit code 0.
    Run {
        /// Which program.
        program: PathBuf,
        /// Its arguments.
        args: Vec<Arg>,
        /// What it must begin its output with; empty if it may say anything.
        says: String,
    },
    /// Starts a machine with the unpacked image, asks it what it is, and ends it.
    Boot {
        /// Which machine.
        machine: &'static Machine,
    },
}

impl PartialEq for Act {
    /// Steps are the same if they read the same: nothing of what is done is not said.
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

/// An argument of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// As it is.
    Text(String),
    /// Path of the unpacked image.
    Image,
}

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // What a shell would take apart is shown as it would have to be written there.
            Self::Text(text) if text.contains(char::is_whitespace) => write!(f, "'{text}'"),
            Self::Text(text) => f.write_str(text),
            Self::Image => f.write_str("IMAGE"),
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpack { name } => {
                write!(f, "unpack the payload as IMAGE, file {name} in a temporary folder")
            }
            Self::Write { path, line } => write!(f, "write `{line}` into {}", path.display()),
            Self::Stream { path, bytes } => {
                write!(f, "write the payload ({bytes} bytes) into {}", path.display())
            }
            Self::Install { path, bytes } => {
                write!(f, "make the file {} of the payload ({bytes} bytes)", path.display())
            }
            Self::Await { path, line, patience } => {
                write!(f, "wait until {} says `{line}`, at most {patience:?}", path.display())
            }
            Self::Run { program, args, says } => {
                write!(f, "run `{}", program.display())?;
                args.iter().try_for_each(|arg| write!(f, " {arg}"))?;
                match says.trim_end() {
                    "" => f.write_str("`"),
                    says => write!(f, "`, which must say `{says}`"),
                }
            }
            Self::Boot { machine } => write!(f, "start {} with IMAGE and greet it", machine.name),
        }
    }
}
