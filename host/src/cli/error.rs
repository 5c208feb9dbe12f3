//! Errors of commands: who is to blame decides the exit code.

use std::io;

/// The command line itself makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

impl Usage {
    /// Exit code, the same as clap's.
    pub const CODE: u8 = 2;
}

/// The user gave up.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Is the user's command line to blame, here or in the library's eyes?
pub fn is_usage(error: &anyhow::Error) -> bool {
    use unisono::Error::{Build, Gpu, NoPlan, Weight};
    use unisono::device::GpuError;
    let no_device = |e: &GpuError| matches!(e, GpuError::NoDevice { .. });
    let refused = |e: &unisono::Error| match e {
        Build(_) | NoPlan { .. } | Weight(_) => true,
        Gpu(error) => no_device(error),
        _ => false,
    };
    error.chain().any(|cause| {
        cause.is::<Usage>()
            || cause.downcast_ref().is_some_and(refused)
            || cause.downcast_ref().is_some_and(no_device)
    })
}

/// Is a driver missing, or the device that it would have?
pub fn is_missing(error: &anyhow::Error) -> bool {
    use unisono::device::GpuError;
    let missing = |e: &GpuError| matches!(e, GpuError::NoDevice { .. } | GpuError::Missing { .. });
    let of_gpu = |e: &unisono::Error| matches!(e, unisono::Error::Gpu(error) if missing(error));
    error.chain().any(|cause| {
        cause.downcast_ref().is_some_and(missing) || cause.downcast_ref().is_some_and(of_gpu)
    })
}

/// Did the reader of our output go away?
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(closed))
}

/// The whole chain in one line, whatever names from files and paths are in it.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for c in format!("{error:#}").chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}
