//! Ctrl-C and `kill`: the tool cleans up and says which signal it was.

use crate::tool::{Tensor, command, folder, names, write};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    let status = Command::new("sh").args(["-c", &kill]).status();
    assert!(status.is_ok_and(|s| s.success()), "{kill}");
}

/// Waits for the end, but not for ever.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let started = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if started.elapsed() > Duration::from_secs(20) {
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
    let zeros = vec![0.0; 4 << 20];
    write(&folder.path().join("a.st"), &[Tensor::f32("w", &[4 << 20], &zeros)], None);
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        // Chunks of one element: this takes minutes.
        let mut run = command(folder.path());
        run.args(["reduce", "a.st", "a.st", "a.st", "a.st", "-o", "out.st"]);
        run.args(["--chunk", "1", "--window", "1", "--timeout", "1h"]);
        let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool");
        let started = Instant::now();
        while names(folder.path()).len() < 2 {
            assert!(started.elapsed() < Duration::from_secs(20), "no temporary file came");
            sleep(Duration::from_millis(5));
        }
        // The temporary file is there before the inputs are read; a moment later calls run.
        sleep(Duration::from_millis(300));
        let seen = names(folder.path());
        assert!(seen[0].starts_with(".unisono-") && seen[0].ends_with(".part"), "{seen:?}");
        signal(&child, name);
        assert_eq!(ended(child), (Some(code), "error: interrupted\n".to_owned()));
        assert_eq!(names(folder.path()), ["a.st"]);
    }
}

#[test]
fn a_benchmark_stops() {
    let folder = folder();
    let mut run = command(folder.path());
    run.args(["bench", "-t", "3", "-b", "1M", "-e", "1M", "-n", "100000000", "--timeout", "1h"]);
    let child = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the tool");
    sleep(Duration::from_millis(400));
    signal(&child, "INT");
    assert_eq!(ended(child), (Some(130), "error: interrupted\n".to_owned()));
}
