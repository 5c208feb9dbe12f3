//! Starts the processes of a job, as a launcher does.

use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A hang guard.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the shipped gradients are.
pub const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/digits-mlp");

/// Hash of their canonical sum.
pub const SUM: &str = "f451e8b1803300b6496b8170de51a7e4af53f4e2f2f2266ced7beefe4c47741a";

/// Processes of one job that run `unisono`.
pub struct Job {
    pub children: Vec<Child>,
}

impl Job {
    /// One process for each line of arguments.
    pub fn start(lines: &[Vec<String>]) -> Self {
        static JOBS: AtomicU32 = AtomicU32::new(0);
        let job = JOBS.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{}-{job}", std::process::id());
        let size = lines.len().to_string();
        let one = |(rank, line): (usize, &Vec<String>)| {
            let (rank, mut command) =
                (rank.to_string(), Command::new(env!("CARGO_BIN_EXE_unisono")));
            command.args(line).envs([
                ("UNISONO_RANK", rank.as_str()),
                ("UNISONO_SIZE", &size),
                ("UNISONO_LOCAL_RANK", &rank),
                ("UNISONO_LOCAL_SIZE", &size),
                ("UNISONO_JOB", &name),
            ]);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("the program starts")
        };
        Self { children: lines.iter().enumerate().map(one).collect() }
    }

    /// Waits for all; what they said.
    pub fn end(self) -> Vec<Output> {
        let wait = |child: Child| child.wait_with_output().expect("its output");
        // Pipes are read one after the other: what a process says fits them.
        self.children.into_iter().map(wait).collect()
    }

    /// Waits until this condition holds.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(self) {
            if Instant::now() > end {
                self.children.iter_mut().for_each(|child| drop(child.kill()));
                panic!("{what}: not within {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Words of a line.
pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The same line for so many processes.
pub fn all(processes: usize, line: &str) -> Vec<Vec<String>> {
    vec![words(line); processes]
}

/// A command line for each of these processes, which have these devices.
pub fn lines(command: &str, on: &[&str]) -> Vec<Vec<String>> {
    on.iter().map(|on| words(&format!("{command} --on {on}"))).collect()
}

/// What process 0 said, if all succeeded.
pub fn succeed(lines: &[Vec<String>]) -> String {
    let outputs = Job::start(lines).end();
    // What one says is often only what it has heard of another.
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let all: Vec<String> = outputs.iter().map(said).collect();
    assert!(outputs.iter().all(|output| output.status.success()), "{lines:?}: {all:#?}");
    String::from_utf8_lossy(&outputs[0].stdout).into_owned()
}

/// What all said in their errors, if all failed with this code.
pub fn fail(lines: &[Vec<String>], code: i32) -> Vec<String> {
    let outputs = Job::start(lines).end();
    let one = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        text
    };
    outputs.iter().map(one).collect()
}

/// The shipped files, for a command line.
pub fn files() -> String {
    (0..4).map(|rank| format!(" {DATA}/rank{rank}.safetensors")).collect()
}
