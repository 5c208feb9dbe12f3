//! Programs with a time limit: what they have printed until then is kept.

use crate::cmd::shown;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What has become of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ended with success.
    Passed,
    /// It did not, and how.
    Failed(String),
    /// Its time was over.
    Stopped,
    /// There was no time left to start it.
    NotRun,
}

/// A program to run.
#[derive(Debug)]
pub struct Job {
    /// What it checks.
    pub what: String,
    /// The program.
    pub command: Command,
}

/// A job that is over.
#[derive(Debug)]
pub struct Done {
    /// What it checked.
    pub what: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Seconds that it took.
    pub seconds: f64,
    /// What it printed to stdout.
    pub out: String,
    /// All lines that it printed, in the order of their arrival.
    pub lines: Vec<String>,
}

/// Less is not worth starting a program for.
const LEAST: Duration = Duration::from_secs(1);

/// How long output is waited for when its program is gone: children of it may hold the pipe.
const REST: Duration = Duration::from_millis(500);

/// One line, and whether it was printed to stdout.
type Line = (bool, String);

impl Job {
    /// Runs to the end, or until `deadline`. `echo` shows lines as they come.
    pub fn run(mut self, deadline: Instant, echo: bool) -> Done {
        let started = Instant::now();
        let mut done = Done {
            what: self.what,
            outcome: Outcome::NotRun,
            seconds: 0.0,
            out: String::new(),
            lines: Vec::new(),
        };
        if deadline.saturating_duration_since(started) < LEAST {
            return done;
        }
        let piped = self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        let mut child = match piped.spawn() {
            Ok(child) => child,
            Err(error) => {
                let command = shown(&self.command);
                done.outcome = Outcome::Failed(format!("cannot start `{command}`: {error}"));
                return done;
            }
        };
        let (sender, lines) = channel();
        pass_on(child.stdout.take(), true, sender.clone());
        pass_on(child.stderr.take(), false, sender);
        let over = done.collect(&lines, deadline, echo);
        if over {
            // It may have ended meanwhile.
            let _ = child.kill();
            done.collect(&lines, Instant::now() + REST, echo);
        }
        done.outcome = match child.wait() {
            _ if over => Outcome::Stopped,
            Ok(status) if status.success() => Outcome::Passed,
            Ok(status) => Outcome::Failed(status.to_string()),
            Err(error) => Outcome::Failed(error.to_string()),
        };
        done.seconds = started.elapsed().as_secs_f64();
        done
    }
}

impl Done {
    /// Takes lines until there will be no more, or until `deadline`: then it is true.
    fn collect(&mut self, lines: &Receiver<Line>, deadline: Instant, echo: bool) -> bool {
        use std::sync::mpsc::RecvTimeoutError::Timeout;
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok((out, line)) => {
                    if echo {
                        println!("{line}");
                    }
                    if out {
                        self.out += &line;
                        self.out.push('\n');
                    }
                    self.lines.push(line);
                }
                Err(error) => return error == Timeout,
            }
        }
    }
}

/// Sends the lines of a program's output, from a thread of its own.
fn pass_on(from: Option<impl Read + Send + 'static>, out: bool, to: Sender<Line>) {
    let Some(from) = from else { return };
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n') {
            let Ok(line) = line else { return };
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if to.send((out, line)).is_err() {
                return;
            }
        }
    });
}

/// Runs jobs, `width` at a time, until `deadline`: each has its share of the time that is left when
/// it begins. `see` hears of each when it is over. In the order of the jobs.
pub fn side_by_side(
    jobs: Vec<Job>,
    width: usize,
    deadline: Instant,
    see: impl Fn(&Done) + Sync,
) -> Vec<Done> {
    let waiting: Mutex<VecDeque<_>> = Mutex::new(jobs.into_iter().enumerate().collect());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..width.max(1) {
            scope.spawn(|| {
                loop {
                    let mut queue = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    let rounds = queue.len().div_ceil(width.max(1)).max(1);
                    let next = queue.pop_front();
                    drop(queue);
                    let Some((place, job)) = next else { return };
                    let now = Instant::now();
                    let share = deadline.saturating_duration_since(now) / rounds as u32;
                    let over = job.run(now + share, false);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    see(&over);
                    done.push((place, over));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { what: script.into(), command }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn output_and_outcome_are_kept() {
        let done = shell("echo a; echo b >&2; printf c").run(soon(), false);
        assert_eq!((done.outcome, done.out.as_str()), (Outcome::Passed, "a\nc\n"));
        assert_eq!(done.lines.len(), 3);
        let Outcome::Failed(how) = shell("exit 3").run(soon(), false).outcome else { panic!() };
        assert!(how.contains('3'), "{how}");
        let nothing = Job { what: String::new(), command: Command::new("no-such-program-xyz") };
        let Outcome::Failed(how) = nothing.run(soon(), false).outcome else { panic!() };
        assert!(how.contains("cannot start `no-such-program-xyz`"), "{how}");
    }

    #[test]
    fn a_stopped_job_has_told_something() {
        let limit = Instant::now() + Duration::from_secs(2);
        let done = shell("echo first; exec sleep 1000").run(limit, false);
        assert_eq!((done.outcome, done.lines), (Outcome::Stopped, vec!["first".to_owned()]));
        assert!(done.seconds < 500.0);
        let late = shell("echo never").run(Instant::now(), false);
        assert_eq!((late.outcome, late.lines.len()), (Outcome::NotRun, 0));
    }

    #[test]
    fn jobs_keep_their_order() {
        let jobs = ["sleep 0.2", "exit 1", "true"].map(shell).into();
        let seen = Mutex::new(0);
        let done = side_by_side(jobs, 3, soon(), |_| *seen.lock().unwrap() += 1);
        let passed: Vec<_> = done.iter().map(|done| done.outcome == Outcome::Passed).collect();
        assert_eq!((passed, seen.into_inner().unwrap()), (vec![true, false, true], 3));
    }

    #[test]
    fn a_long_job_leaves_time_for_the_next() {
        let jobs = ["exec sleep 1000", "true"].map(shell).into();
        let limit = Instant::now() + Duration::from_secs(8);
        let done = side_by_side(jobs, 1, limit, |_| {});
        let outcomes = [&done[0].outcome, &done[1].outcome];
        assert_eq!(outcomes, [&Outcome::Stopped, &Outcome::Passed]);
    }
}
