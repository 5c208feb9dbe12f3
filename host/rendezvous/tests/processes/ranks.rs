//! Starts ranks and collects what they say.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

/// How a rank ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// Its one line.
    #[track_caller]
    pub fn said(&self) -> &str {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out.trim_end()
    }

    /// Its one error.
    #[track_caller]
    pub fn error(&self) -> &str {
        assert_eq!(self.code, Some(1), "{self:?}");
        let error = self.err.strip_prefix("error: ").expect("an error");
        assert_eq!(error.lines().count(), 1, "{error}");
        error.trim_end()
    }
}

/// The program that is one rank, with nothing of our own environment that means one.
pub fn rank(rank: usize, size: usize, master: &str, job: &str) -> Command {
    let mut command = bare();
    command.env("UNISONO_RANK", rank.to_string()).env("UNISONO_SIZE", size.to_string());
    command.env("UNISONO_MASTER", master).env("UNISONO_JOB", job);
    command
}

/// The program without a seat.
pub fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono-rank"));
    for (name, _) in std::env::vars_os() {
        let launcher = [
            "UNISONO_",
            "SLURM_",
            "OMPI_",
            "PMI",
            "RANK",
            "WORLD_SIZE",
            "MASTER_",
            "LOCAL_",
            "GROUP_",
        ];
        if launcher.iter().any(|l| name.to_string_lossy().starts_with(l)) {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts it; it ends with this object at the latest.
pub fn start(command: &mut Command) -> Running {
    Running(Some(command.spawn().expect("a rank starts")))
}

/// A rank that runs.
pub struct Running(Option<Child>);

impl Running {
    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        let output = self.0.take().expect("runs").wait_with_output().expect("ends");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Has it not ended?
    pub fn runs(&mut self) -> bool {
        self.0.as_mut().expect("runs").try_wait().expect("can be asked").is_none()
    }

    /// Its threads' names.
    pub fn threads(&self) -> Vec<String> {
        let pid = self.0.as_ref().expect("runs").id();
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            // It may have ended meanwhile.
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
    }

    /// Waits until it says that all have come.
    pub fn joined(&mut self) {
        let out = self.0.as_mut().expect("runs").stdout.as_mut().expect("piped");
        let mut line = String::new();
        // Byte by byte: the rest is read when it ends.
        BufReader::with_capacity(1, out).read_line(&mut line).expect("a line");
        assert_eq!(line, "joined\n");
    }

    /// Stops it, or lets it go on.
    #[allow(dead_code, reason = "not all tests that share this file do it")]
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(self.0.as_ref().expect("runs"));
        rustix::process::kill_process(pid, signal).expect("runs");
    }

    /// As by the kernel when memory is short.
    pub fn kill(mut self) {
        let mut child = self.0.take().expect("runs");
        child.kill().expect("can be killed");
        child.wait().expect("ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts all ranks, in no order, and waits for all.
pub fn all(size: usize, make: impl Fn(usize) -> Command) -> Vec<Ended> {
    let mut running: Vec<Option<Running>> = (0..size).map(|_| None).collect();
    for n in 0..size {
        // Rank 0 is not the first.
        let rank = (n + size / 2) % size;
        running[rank] = Some(start(&mut make(rank)));
    }
    running.into_iter().flatten().map(Running::end).collect()
}

/// A port that nobody has.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("an address").port()
}
