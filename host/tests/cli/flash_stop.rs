//! `unisono flash` is ended while it waits for somebody else.

use crate::image::{AARCH64, image};
use crate::interrupt::{command, ended, signal};
use crate::tool::{folder, names};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A program that writes its process id and that of one that it runs, and sleeps.
const SLEEPS: &str = "sleep 1000 & echo $$ $! > pids.part && mv pids.part pids; wait";

/// A folder with a program of this name, an image for this board, and a place for temporary files.
fn desk(program: &str, script: &str, board: &str) -> tempfile::TempDir {
    let folder = folder();
    let path = folder.path();
    for sub in ["bin", "tmp"] {
        fs::create_dir(path.join(sub)).expect("a folder");
    }
    let file = path.join("bin").join(program);
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a program");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a program");
    fs::write(path.join("image"), image(AARCH64, board, true)).expect("an image");
    folder
}

/// Starts the tool and waits until its program sleeps; the program's ids.
fn start(folder: &Path, args: &[&str]) -> (Child, Vec<String>) {
    let mut run = command(folder, &[]);
    let path = std::env::var("PATH").expect("a path");
    run.env("PATH", format!("{}:{path}", folder.join("bin").display()));
    run.env("TMPDIR", folder.join("tmp")).args(["flash", "image"]).args(args);
    let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool");
    let (started, file) = (Instant::now(), folder.join("pids"));
    while !file.exists() {
        assert!(started.elapsed() < Duration::from_secs(20), "the program was not started");
        sleep(Duration::from_millis(5));
    }
    let pids = fs::read_to_string(&file).expect("a file");
    fs::remove_file(&file).expect("a file");
    (child, pids.split_whitespace().map(str::to_owned).collect())
}

/// Has it ended? A zombie has.
fn is_over(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

/// What is killed ends a moment later.
#[track_caller]
fn all_end(pids: &[String]) {
    let started = Instant::now();
    while !pids.iter().all(|pid| is_over(pid)) {
        assert!(started.elapsed() < Duration::from_secs(20), "{pids:?} live on");
        sleep(Duration::from_millis(5));
    }
}

/// A host that says nothing for ever: the copy, and what it runs, end with the tool.
#[test]
fn a_program_that_hangs_ends_with_the_tool() {
    // It does not hear the first signal, as programs that are stuck do not.
    let script = format!("trap '' TERM; {SLEEPS}");
    for (script, name, code) in [(SLEEPS, "TERM", 143), (SLEEPS, "INT", 130), (&script, "INT", 130)]
    {
        let folder = desk("ssh", script, "dpu_linux");
        fs::copy(folder.path().join("bin/ssh"), folder.path().join("bin/scp")).expect("scp");
        let (child, pids) = start(folder.path(), &["--to", "ssh:h"]);
        assert_eq!(names(&folder.path().join("tmp")).len(), 1);
        signal(&child, name);
        let (ended, error) = ended(child);
        assert_eq!(ended, Some(code), "{error}");
        let cause = "): it was interrupted, and the program ended; done before: unpack the payload";
        assert!(error.contains("step 2 of 5 failed") && error.contains(cause), "{error}");
        assert!(error.ends_with("; now h is as before\n"), "{error}");
        all_end(&pids);
        assert_eq!(names(&folder.path().join("tmp")), [""; 0]);
    }
}

/// A machine that is mute would have been waited for half a minute.
#[test]
fn a_mute_machine_ends_with_the_tool() {
    let script = "[ \"$1\" = --version ] && exit; echo $$ > pids.part; mv pids.part pids; \
                  exec sleep 1000";
    let folder = desk("qemu-system-aarch64", script, "qemu_virt_aarch64");
    let (child, pids) = start(folder.path(), &["--to", "qemu:aarch64"]);
    signal(&child, "TERM");
    let (ended, error) = ended(child);
    assert_eq!(ended, Some(143), "{error}");
    assert!(error.contains("qemu-aarch64: interrupted before it answered a greeting"), "{error}");
    all_end(&pids);
    assert_eq!(names(&folder.path().join("tmp")), [""; 0]);
}

/// Ctrl-C at a terminal goes to all that belong to the tool, but its machine is not among them: the
/// tool ends it, and does not take its end for a fault.
#[test]
fn a_machine_does_not_hear_the_terminal() {
    let script = "read -r _ _ _ _ group _ < /proc/$$/stat; echo \"$group\" >> groups; \
                  [ \"$1\" = --version ] && exit; echo $$ > pids.part; mv pids.part pids; \
                  exec sleep 1000";
    let folder = desk("qemu-system-aarch64", script, "qemu_virt_aarch64");
    let (child, pids) = start(folder.path(), &["--to", "qemu:aarch64"]);
    // Of the machine, and before it of its program, which is asked whether it starts.
    let groups = fs::read_to_string(folder.path().join("groups")).expect("a file");
    let groups: Vec<&str> = groups.lines().collect();
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it runs");
    let own = stat.split(' ').nth(4).expect("a group");
    assert_eq!((groups.len(), groups[1]), (2, &*pids[0]));
    assert!(!groups.contains(&own), "{groups:?}");
    signal(&child, "INT");
    let (ended, error) = ended(child);
    assert_eq!(ended, Some(130), "{error}");
    assert!(error.contains("interrupted"), "{error}");
    all_end(&pids);
}

/// What is left by one that was killed goes with the next one.
#[test]
fn the_next_one_removes_what_is_left() {
    let folder = desk("ssh", SLEEPS, "dpu_linux");
    let path = folder.path();
    fs::copy(path.join("bin/ssh"), path.join("bin/scp")).expect("scp");
    let tmp = path.join("tmp");
    let (child, pids) = start(path, &["--to", "ssh:h"]);
    let left = names(&tmp);
    signal(&child, "KILL");
    assert_eq!(ended(child), (None, String::new()));
    assert_eq!(names(&tmp), left);
    // The system ends the program; what that has started is its own.
    all_end(&pids[..1]);
    let kill = Command::new("kill").args(&pids[1..]).status();
    assert!(kill.is_ok_and(|status| status.success()), "{pids:?}");
    let (child, _) = start(path, &["--to", "ssh:h"]);
    let new = names(&tmp);
    assert!(new.len() == 1 && new != left, "{left:?} {new:?}");
    signal(&child, "INT");
    assert_eq!(ended(child).0, Some(130));
    assert_eq!(names(&tmp), [""; 0]);
}

/// So does one that `reduce` starts, without waiting for the time limit.
#[test]
fn a_mute_board_of_a_group_ends_with_the_tool() {
    let folder = folder();
    let path = folder.path();
    fs::File::create(path.join("window")).expect("a file").set_len(8 << 20).expect("room");
    let mut run = command(path, &[]);
    run.args(["bench", "all_reduce", "--on", "cpu,cpu,dpu:file:window", "--timeout", "1h"]);
    let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool");
    // It has the window open.
    let opens = || {
        let open = fs::read_dir(format!("/proc/{}/fd", child.id())).expect("it runs").flatten();
        let mut paths = open.filter_map(|fd| fs::read_link(fd.path()).ok());
        paths.any(|file| file.ends_with("window"))
    };
    let started = Instant::now();
    while !opens() {
        assert!(started.elapsed() < Duration::from_secs(20), "it opens no window");
        sleep(Duration::from_millis(5));
    }
    signal(&child, "INT");
    assert_eq!(ended(child), (Some(130), "error: interrupted\n".to_owned()));
}
