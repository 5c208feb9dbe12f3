//! A test that needs processes of its own starts itself once more in each of them.

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Which of the processes this is.
const RANK: &str = "UNISONO_TEST_RANK";
/// What all of them have in common, and no other test has.
const JOB: &str = "UNISONO_TEST_JOB";

/// Number and job of this process, if a test has started it.
pub fn place() -> Option<(usize, String)> {
    let rank = std::env::var(RANK).ok()?.parse().expect("a number");
    Some((rank, std::env::var(JOB).expect("a job")))
}

/// Runs a test in so many processes; how they ended.
pub fn start(test: &str, processes: usize, variables: &[(&str, &str)]) -> Vec<Output> {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    let job = format!("again-{}-{number}", std::process::id());
    let one = |rank: usize| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", test, "--nocapture"]);
        command.env(RANK, rank.to_string()).env(JOB, &job).envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("this program starts")
    };
    let children: Vec<_> = (0..processes).map(one).collect();
    children.into_iter().map(|child| child.wait_with_output().expect("its output")).collect()
}

/// It has run the test, and that passed.
pub fn succeeded(output: Output) {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
}
