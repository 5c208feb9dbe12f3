//! Ctrl-C and `kill`: the tool cleans up and says which signal it was.

use crate::tool::{Tensor, folder, names, write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    let status = Command::new("sh").args(["-c", &kill]).status();
    assert!(status.is_ok_and(|s| s.success()), "{kill}");
}

/// The tool, which finds these signals ignored and the others as they are by default, whatever the
/// tests themselves were started with.
pub fn command(folder: &Path, ignored: &'static [libc::c_int]) -> Command {
    let mut command = crate::tool::command(folder);
    let set = move || {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGXCPU] {
            let action = if ignored.contains(&signal) { libc::SIG_IGN } else { libc::SIG_DFL };
            // SAFETY: neither action runs any code.
            if unsafe { libc::signal(signal, action) } == libc::SIG_ERR {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: `signal` may be called between fork and exec, and nothing is allocated there.
    unsafe { command.pre_exec(set) };
    command
}

/// Has a process opened a file of this folder for its output? Before that is named, it is
/// `.unisono-….part` or has no name.
fn writes(child: &Child, folder: &Path) -> bool {
    let Ok(open) = std::fs::read_dir(format!("/proc/{}/fd", child.id())) else { return false };
    open.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let unnamed = name.ends_with(" (deleted)") || name.ends_with(".part");
        path.starts_with(folder) && unnamed
    })
}

/// Starts a run that takes long, as its chunks have one element; returns when its temporary file is
/// there, which is before the inputs are read.
fn start(folder: &Path, ranks: usize, elements: usize, ignored: &'static [libc::c_int]) -> Child {
    let zeros = vec![0.0; elements];
    write(&folder.join("a.st"), &[Tensor::f32("w", &[elements], &zeros)], None);
    let mut run = command(folder, ignored);
    run.arg("reduce").args(vec!["a.st"; ranks]).args(["-o", "out.st"]);
    run.args(["--chunk", "1", "--window", "1", "--timeout", "1h"]);
    let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool");
    let started = Instant::now();
    while !writes(&child, folder) {
        assert!(started.elapsed() < Duration::from_secs(20), "no temporary file came");
        sleep(Duration::from_millis(5));
    }
    child
}

/// Waits for the end, but not for ever.
pub fn ended(mut child: Child) -> (Option<i32>, String) {
    let started = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if started.elapsed() > Duration::from_secs(60) {
            child.kill().expect("a child");
            panic!("it did not end");
        }
        sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().expect("an end");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), stderr)
}

#[test]
fn a_signal_leaves_nothing_behind() {
    let folder = folder();
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131), ("XCPU", 152)] {
        // This would take minutes; a moment later calls run.
        let child = start(folder.path(), 4, 4 << 20, &[]);
        sleep(Duration::from_millis(300));
        signal(&child, name);
        assert_eq!(ended(child), (Some(code), "error: interrupted\n".to_owned()));
        assert_eq!(names(folder.path()), ["a.st"]);
    }
}

/// Nobody can clean up after this; there is nothing to clean up where files need no name.
#[test]
fn being_killed_leaves_nothing_behind() {
    let folder = folder();
    let child = start(folder.path(), 4, 4 << 20, &[]);
    let before = names(folder.path());
    if before.len() > 1 {
        eprintln!("skipped: no files without a name in {}", folder.path().display());
    }
    signal(&child, "KILL");
    assert_eq!(ended(child), (None, String::new()));
    assert_eq!(names(folder.path()), before);
}

/// As under nohup, and in the background of a script: the run goes on to its end.
#[test]
fn an_ignored_signal_stays_ignored() {
    let folder = folder();
    let child = start(folder.path(), 2, 1 << 17, &[libc::SIGHUP, libc::SIGINT]);
    signal(&child, "HUP");
    signal(&child, "INT");
    assert_eq!(ended(child), (Some(0), String::new()));
    assert_eq!(names(folder.path()), ["a.st", "out.st"]);
}

/// The tool, which waits for somebody to read from its pipe and looks at nothing else.
#[cfg(target_os = "linux")]
fn blocked(folder: &Path) -> (Child, std::io::PipeReader) {
    use std::os::fd::AsRawFd;
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    // SAFETY: an open pipe, and a number.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    assert_eq!(size, 4096, "a script has more");
    let mut run = command(folder, &[]);
    let child = run.args(["completions", "bash"]).stdout(writer).stderr(Stdio::piped()).spawn();
    std::io::Read::read_exact(&mut reader, &mut [0]).expect("it has begun to write");
    (child.expect("the tool"), reader)
}

#[test]
#[cfg(target_os = "linux")]
fn the_second_signal_ends_it_at_once() {
    let folder = folder();
    let (mut child, _reader) = blocked(folder.path());
    signal(&child, "TERM");
    sleep(Duration::from_millis(100));
    assert!(child.try_wait().expect("a child").is_none(), "nothing keeps it");
    signal(&child, "TERM");
    assert_eq!(ended(child), (Some(143), String::new()));
}

#[test]
#[cfg(target_os = "linux")]
fn what_does_not_end_is_ended() {
    let folder = folder();
    let (child, _reader) = blocked(folder.path());
    signal(&child, "INT");
    let error = "error: interrupted, but something, perhaps a device, did not end for 10 s\n";
    assert_eq!(ended(child), (Some(130), error.to_owned()));
}

/// Also one whose calls are over before anybody looks at a clock.
#[test]
fn a_benchmark_stops() {
    let folder = folder();
    for (ranks, size) in [("3", "1M"), ("2", "8"), ("2", "64K"), ("1", "8")] {
        let mut run = command(folder.path(), &[]);
        run.args(["bench", "-t", ranks, "-b", size, "-e", size, "-n", "100000000"]);
        run.args(["--timeout", "1h"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = run.spawn().expect("the tool");
        sleep(Duration::from_millis(400));
        signal(&child, "INT");
        assert_eq!(ended(child), (Some(130), "error: interrupted\n".to_owned()), "{ranks} {size}");
    }
}
