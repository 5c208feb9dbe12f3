//! Programs that a step runs, until they end or somebody asks to stop.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use unisono_offload_dpu::end_with_parent;

/// Between two looks at the program.
const NAP: Duration = Duration::from_millis(5);
/// How long a program that was asked to end may take to clean up.
const GRACE: Duration = Duration::from_secs(1);

/// How a program has ended, and what it said, without empty lines at the end.
pub struct Output {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

/// Runs a program; `None` if `stopped` said so before it ended, which it has then.
pub fn run(mut command: Command, stopped: &dyn Fn() -> bool) -> io::Result<Option<Output>> {
    // Files without a name: whoever keeps a pipe open, such as a helper that a program leaves
    // behind, would have to be waited for, and a pipe that nobody reads fills up.
    let (out, err) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(err.try_clone()?);
    lead(&mut command);
    // Somebody may kill this process, which then cannot end it. This thread waits for its end.
    end_with_parent(&mut command);
    let mut child = command.spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(Output { status, out: text(out)?, err: text(err)? }));
        }
        if stopped() {
            end(&mut child)?;
            return Ok(None);
        }
        std::thread::sleep(NAP);
    }
}

/// Asks a program and those that it runs to end; ends them if they do not.
fn end(child: &mut Child) -> io::Result<()> {
    signal(child, false)?;
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > GRACE {
            signal(child, true)?;
            child.wait()?;
            break;
        }
        std::thread::sleep(NAP);
    }
    Ok(())
}

/// Puts it at the head of a process group, so that those that it runs end with it.
#[cfg(unix)]
fn lead(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

/// Other systems have no such groups.
#[cfg(not(unix))]
const fn lead(_: &mut Command) {}

/// To a program that has not been waited for, so that the number is still its own.
#[cfg(unix)]
fn signal(child: &Child, must: bool) -> io::Result<()> {
    use rustix::process::{Pid, Signal, kill_process_group};
    let signal = if must { Signal::KILL } else { Signal::TERM };
    match Pid::from_raw(child.id() as i32) {
        Some(group) => Ok(kill_process_group(group, signal)?),
        None => Ok(()),
    }
}

/// Other systems have one way only.
#[cfg(not(unix))]
fn signal(child: &mut Child, _: bool) -> io::Result<()> {
    child.kill()
}

fn text(mut file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(format!("{}\n", String::from_utf8_lossy(&bytes).trim_end()))
}
