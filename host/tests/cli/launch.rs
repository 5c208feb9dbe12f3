//! `unisono launch`: what ranks are told, and how they end together.

use crate::tool::{Ended, command, folder, run, succeed};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Starts the tool with its output in pipes.
fn start(folder: &Path, args: &[&str], rsh: Option<&Path>) -> Child {
    let mut command = command(folder);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(rsh) = rsh {
        command.env("UNISONO_RSH", rsh);
    }
    command.spawn().expect("the tool starts")
}

fn end(child: Child) -> Ended {
    let output = child.wait_with_output().expect("ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn kill(signal: &str, pid: u32) {
    let done = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(done.expect("kill runs").success());
}

/// Waits until something is so; a guard against waiting for ever.
#[track_caller]
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The process whose id stands in a file, once it does.
fn pid_in(folder: &Path, name: &str) -> u32 {
    let read = || fs::read_to_string(folder.join(name)).ok().filter(|t| t.ends_with('\n'));
    until(&format!("{name} is never written"), || read().is_some());
    read().expect("just read").trim().parse().expect("a process id")
}

fn is_there(pid: u32) -> bool {
    // One that waits for its parent to look is no longer there.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// A remote shell that never leaves this host: notes how it was called, then does as ssh would.
fn rsh(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("rsh");
    let mut options = fs::OpenOptions::new();
    let mut file = options.create(true).write(true).truncate(true).mode(0o755).open(&path);
    let script = "#!/bin/sh\necho \"$*\" >> rsh.args\nshift\nexec sh -c \"$*\"\n";
    file.as_mut().expect("a file").write_all(script.as_bytes()).expect("can be written");
    path
}

const TELL: &str = "echo $UNISONO_RANK/$UNISONO_SIZE $UNISONO_LOCAL_RANK/$UNISONO_LOCAL_SIZE \
                    ${#UNISONO_JOB} ${UNISONO_MASTER%:*} ${#UNISONO_SECRET} $UNISONO_INTERFACE";

#[test]
fn ranks_are_told_their_places() {
    let folder = folder();
    let said = succeed(folder.path(), &["launch", "-n", "2", "--", "sh", "-c", TELL]);
    assert_eq!(lines(&said), ["[0] 0/2 0/2 16 local 64", "[1] 1/2 1/2 16 local 64"]);
    let args = ["launch", "-n16", "--no-prefix", "--interface", "eth7", "--", "sh", "-c", TELL];
    let said = succeed(folder.path(), &args);
    assert_eq!(said.lines().count(), 16);
    assert!(said.contains("15/16 15/16 16 local 64 eth7\n"), "{said}");
}

#[test]
fn output_is_marked_line_by_line() {
    let folder = folder();
    let script = "printf 'a\\n\\nb'; echo e >&2";
    let ended = run(folder.path(), &["launch", "-n", "2", "--", "sh", "-c", script]);
    assert_eq!(lines(&ended.out), ["[0] ", "[0] a", "[0] b", "[1] ", "[1] a", "[1] b"]);
    assert_eq!(lines(&ended.err), ["[0] e", "[1] e"]);
    assert_eq!(ended.code, Some(0));
}

#[test]
fn the_first_failure_ends_all_and_is_the_exit_code() {
    let folder = folder();
    let with = |last: &str| {
        let script = format!("if [ $UNISONO_RANK = 1 ]; then {last}; fi; exec sleep 1000");
        run(folder.path(), &["launch", "-n", "3", "--", "sh", "-c", &script])
    };
    let ended = with("exit 7");
    assert_eq!(
        (ended.code, ended.err.as_str()),
        (Some(7), "error: rank 1 ended with exit code 7\n")
    );
    let ended = with("kill -9 $$");
    let wanted = (Some(137), "error: rank 1 was ended by signal 9\n");
    assert_eq!((ended.code, ended.err.as_str()), wanted);
}

/// Rank 0 fails first, and only because rank 1 is about to die. The launcher is stopped meanwhile,
/// so that it learns of both at once.
#[test]
fn a_rank_that_a_signal_ended_is_blamed_before_those_that_noticed() {
    let folder = folder();
    let script = "echo $$ > pid$UNISONO_RANK; if [ $UNISONO_RANK = 0 ]; then \
                  while [ ! -e go ]; do sleep 0.01; done; exit 1; fi; exec sleep 1000";
    let tool = start(folder.path(), &["launch", "-n3", "--", "sh", "-c", script], None);
    let pids = ["pid0", "pid1", "pid2"].map(|name| pid_in(folder.path(), name));
    kill("-STOP", tool.id());
    fs::write(folder.path().join("go"), "").expect("a file");
    until("rank 0 does not end", || !is_there(pids[0]));
    kill("-SEGV", pids[1]);
    until("rank 1 does not end", || !is_there(pids[1]));
    kill("-CONT", tool.id());
    let ended = end(tool);
    let wanted = (Some(128 + 11), "error: rank 1 was ended by signal 11\n");
    assert_eq!((ended.code, ended.err.as_str()), wanted);
    assert_eq!(pids.map(is_there), [false; 3]);
}

#[test]
fn ranks_read_nothing_from_standard_input() {
    let folder = folder();
    let args = ["launch", "-n", "2", "--", "sh", "-c", "readlink /proc/self/fd/0; cat"];
    let mut command = command(folder.path());
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tool = command.spawn().expect("the tool starts");
    // Its ranks end although this end of its own input stays open.
    let input = tool.stdin.take();
    let ended = end(tool);
    drop(input);
    assert_eq!(lines(&ended.out), ["[0] /dev/null", "[1] /dev/null"]);
    assert_eq!(ended.code, Some(0));
}

#[cfg(feature = "etcd")]
#[test]
fn ranks_are_told_of_an_etcd_in_place_of_an_address() {
    const TELL: &str = "echo ${UNISONO_MASTER-none} $UNISONO_RENDEZVOUS $UNISONO_ETCD_PASSWORD";
    let folder = folder();
    let rsh = rsh(folder.path());
    let place = "etcd://me@h:1/p";
    for (hosts, option, variable) in [
        (None, Some(place), None),
        (None, None, Some(place)),
        // The option comes first.
        (Some("--hosts=a:1"), Some(place), Some("etcd://other:1/p")),
    ] {
        let mut command = command(folder.path());
        command.args(["launch", "-n1", "--no-prefix"]).args(hosts);
        command.args(option.map(|place| format!("--rendezvous={place}")));
        command.args(["--", "sh", "-c", TELL]).env("UNISONO_RSH", &rsh);
        command.env("UNISONO_MASTER", "outer:1").env("UNISONO_ETCD_PASSWORD", "password");
        command.envs(variable.map(|place| ("UNISONO_RENDEZVOUS", place)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = end(command.spawn().expect("the tool starts"));
        assert_eq!((ended.out.as_str(), ended.code), ("none etcd://me@h:1/p password\n", Some(0)));
    }
    let called = fs::read_to_string(folder.path().join("rsh.args")).expect("how it was called");
    assert!(!called.contains("password"), "{called}");
}

#[test]
fn an_interrupt_ends_all_and_what_they_have_started() {
    let folder = folder();
    // Rank 0 ends when asked, rank 1 does not listen; both have a child of their own.
    let script = "sleep 1000 & echo $! > child$UNISONO_RANK; \
                  if [ $UNISONO_RANK = 0 ]; then trap 'echo bye; exit' TERM; \
                  else trap '' TERM; fi; \
                  echo $$ > rank$UNISONO_RANK; while :; do wait; sleep 0.1; done";
    let args = ["launch", "-n", "2", "--", "sh", "-c", script];
    let tool = start(folder.path(), &args, None);
    let names = ["rank0", "rank1", "child0", "child1"];
    let pids = names.map(|name| pid_in(folder.path(), name));
    kill("-INT", tool.id());
    let ended = end(tool);
    assert_eq!((ended.code, ended.out.as_str()), (Some(130), "[0] bye\n"));
    assert_eq!(ended.err, "error: interrupted\n");
    assert_eq!(pids.map(is_there), [false; 4]);
}

#[test]
fn ranks_do_not_outlive_a_launcher_that_is_killed() {
    let folder = folder();
    let rsh = rsh(folder.path());
    for (hosts, rsh) in [(None, None), (Some("--hosts=a:1,b:1"), Some(rsh.as_path()))] {
        let script = "echo $$ > pid$UNISONO_RANK; exec sleep 1000";
        let args: Vec<&str> =
            ["launch", "-n2"].into_iter().chain(hosts).chain(["--", "sh", "-c", script]).collect();
        let mut tool = start(folder.path(), &args, rsh);
        let pids = ["pid0", "pid1"].map(|name| pid_in(folder.path(), name));
        assert_eq!(pids.map(is_there), [true; 2]);
        tool.kill().expect("can be killed");
        tool.wait().expect("ends");
        until("a rank is left", || pids.map(is_there) == [false; 2]);
        for name in ["pid0", "pid1"] {
            fs::remove_file(folder.path().join(name)).expect("is there");
        }
    }
}

#[test]
fn other_hosts_get_everything_but_the_secret_on_the_command_line() {
    let folder = folder();
    let rsh = rsh(folder.path());
    let script =
        format!("{TELL}; echo \"$0\" \"$PWD\"; printf %s $UNISONO_SECRET > s$UNISONO_RANK");
    let hosts = "me@a:1,b:2";
    let args = ["launch", "--hosts", hosts, "--", "sh", "-c", &script, "it's $HOME \"x\""];
    let ended = end(start(folder.path(), &args, Some(&rsh)));
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let place = fs::canonicalize(folder.path()).expect("a path").display().to_string();
    let told = ["0/3 0/1 16 a 64", "1/3 0/2 16 a 64", "2/3 1/2 16 a 64"];
    let mut wanted = Vec::new();
    for (rank, told) in told.iter().enumerate() {
        wanted.push(format!("[{rank}] {told}"));
        wanted.push(format!("[{rank}] it's $HOME \"x\" {place}"));
    }
    wanted.sort();
    assert_eq!(lines(&ended.out), wanted);
    let secret = fs::read_to_string(folder.path().join("s2")).expect("a secret");
    let called = fs::read_to_string(folder.path().join("rsh.args")).expect("how it was called");
    assert_eq!(secret.len(), 64);
    assert!(called.contains("UNISONO_RANK=2") && !called.contains(&secret), "{called}");
}

#[test]
fn other_hosts_end_with_an_interrupt_and_tell_their_exit_code() {
    let folder = folder();
    let rsh = rsh(folder.path());
    let script = "if [ $UNISONO_RANK = 1 ]; then exit 9; fi; exec sleep 1000";
    let args = ["launch", "-n2", "--hosts=a,b", "--", "sh", "-c", script];
    let ended = end(start(folder.path(), &args, Some(&rsh)));
    assert_eq!(
        (ended.code, ended.err.as_str()),
        (Some(9), "error: rank 1 ended with exit code 9\n")
    );
    // This one does not listen.
    let script = "trap '' TERM; sleep 1000 & echo $! > child; echo $$ > pid; \
                  while :; do wait; sleep 0.1; done";
    let args = ["launch", "--hosts=a:1", "--", "sh", "-c", script];
    let tool = start(folder.path(), &args, Some(&rsh));
    let pids = ["pid", "child"].map(|name| pid_in(folder.path(), name));
    kill("-INT", tool.id());
    let ended = end(tool);
    assert_eq!((ended.code, ended.err.as_str()), (Some(130), "error: interrupted\n"));
    until("something is left", || pids.map(is_there) == [false; 2]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = folder();
    let refused = |args: &[&str], code: i32, words: &str| {
        let ended = run(folder.path(), &[&["launch"], args].concat());
        assert_eq!(ended.code, Some(code), "{args:?}: {}", ended.err);
        assert!(ended.err.contains(words), "{args:?}: {}", ended.err);
    };
    refused(&["--", "true"], 2, "how many ranks?");
    refused(&["-n", "2"], 2, "COMMAND");
    refused(&["-n", "0", "--", "true"], 2, "1 to 4096 ranks");
    refused(&["-n", "3", "--hosts", "a:1,b:1", "--", "true"], 2, "does not fit");
    refused(&["-n", "2", "--hosts", "a,a", "--", "true"], 2, "names a twice");
    refused(&["-n", "1", "--interface", "10.0.0.0/99", "--", "true"], 2, "0 to 32 bits");
    refused(&["-n", "1", "--rendezvous", "redis://h:1/p", "--", "true"], 2, "wanted is etcd://");
    let both = ["-n", "1", "--master", "h:1", "--rendezvous", "etcd://h:1/p", "--", "true"];
    refused(&both, 2, if cfg!(feature = "etcd") { "--master" } else { "without etcd" });
    refused(&["-n", "1", "--", "./no-such-program"], 1, "rank 0: starting ./no-such-program");
    refused(&["-n", "1", "--secret-file", "none", "--", "true"], 1, "reading the secret in none");
}
