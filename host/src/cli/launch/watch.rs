//! Waits for all ranks, and ends them together.

use super::output::Output;
use super::places::Place;
use super::start::Job;
use crate::cli::interrupt::Interrupt;
use anyhow::{Context, Result};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

/// The others hear of a lost rank by themselves, and say so; then they are ended.
const MOMENT: Duration = Duration::from_secs(3);
/// From SIGTERM to SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);
/// Who fails within this time of the first failure may be the reason for it.
const BLAME: Duration = Duration::from_millis(100);
/// How often ranks and signals are looked at.
const TICK: Duration = Duration::from_millis(10);

/// The first rank that failed.
#[derive(Debug, thiserror::Error)]
#[error("rank {rank} {how}")]
pub struct RankFailed {
    rank: usize,
    how: String,
    /// Exit code for this process.
    pub code: u8,
}

/// A rank that runs. When it is dropped, it and all that it has started are killed.
struct Running {
    rank: usize,
    remote: bool,
    child: Child,
    pid: Pid,
    ended: bool,
}

impl Running {
    /// To the rank and what it has started. Nothing else can have its number: the rank has not been
    /// waited for.
    fn signal(&mut self, signal: Signal) {
        if self.ended {
            return;
        }
        if self.remote && signal == Signal::TERM {
            // The shell over there takes the end of its input for this signal.
            drop(self.child.stdin.take());
        } else {
            // It may have ended just now.
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// How it ended, once it has. What is left of its group ends with it.
    fn poll(&mut self) -> Result<Option<Result<(), RankFailed>>> {
        if self.ended {
            return Ok(None);
        }
        // Not reaped yet: as long as it is a zombie, nobody else can have its number.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.pid), options);
        let Some(status) = status.with_context(|| format!("waiting for rank {}", self.rank))?
        else {
            return Ok(None);
        };
        self.signal(Signal::KILL);
        self.ended = true;
        self.child.wait().with_context(|| format!("waiting for rank {}", self.rank))?;
        Ok(Some(self.verdict(&status)))
    }

    fn verdict(&self, status: &WaitIdStatus) -> Result<(), RankFailed> {
        let rank = self.rank;
        match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => Ok(()),
            (Some(code), _) => {
                let how = format!("ended with exit code {code}");
                Err(RankFailed { rank, how, code: code as u8 })
            }
            (None, signal) => {
                let signal = signal.unwrap_or_default();
                let how = format!("was ended by signal {signal}");
                Err(RankFailed { rank, how, code: 128 + signal as u8 })
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.signal(Signal::KILL);
            // Killed: this does not wait long.
            let _ = self.child.wait();
        }
    }
}

/// How the end goes on.
#[derive(Clone, Copy)]
enum Stage {
    /// All run.
    Running,
    /// One has failed; the others are told at this time.
    Failed(Instant),
    /// They have been told, and are killed at this time.
    Told(Instant),
    /// They have been killed.
    Killed,
}

/// Starts all ranks and waits for their end.
pub fn run(job: &Job<'_>, places: &[Place], interrupt: &Interrupt) -> Result<()> {
    let mut output = Output::new();
    let mut ranks = Vec::new();
    for (rank, place) in places.iter().enumerate() {
        let mut child = job.start(rank, place)?;
        let pid = Pid::from_child(&child);
        let passed_on = output.pass_on(rank, &mut child);
        ranks.push(Running { rank, remote: place.host.is_some(), child, pid, ended: false });
        passed_on.with_context(|| format!("reading what rank {rank} prints"))?;
    }
    let ended = wait(&mut ranks, &mut output, interrupt);
    drop(ranks);
    let printed = output.finish();
    interrupt.check()?;
    ended?;
    Ok(printed?)
}

/// Ranks that have failed since the last look.
fn failures(ranks: &mut [Running]) -> Result<Vec<RankFailed>> {
    let mut failed = Vec::new();
    for rank in ranks {
        failed.extend(rank.poll()?.and_then(Result::err));
    }
    Ok(failed)
}

fn wait(ranks: &mut [Running], output: &mut Output, interrupt: &Interrupt) -> Result<()> {
    let mut result = Ok(());
    let mut stage = Stage::Running;
    while ranks.iter().any(|rank| !rank.ended) {
        let mut failed = failures(ranks)?;
        if result.is_ok() && !failed.is_empty() {
            // The others notice at once that a signal ends a rank, and may be gone before it is.
            thread::sleep(BLAME);
            failed.extend(failures(ranks)?);
        }
        let first = failed.into_iter().min_by_key(|failed| failed.code < 128);
        if let Some(failed) = first.filter(|_| result.is_ok()) {
            tracing::info!("{failed}; the others are ended");
            result = Err(failed.into());
        }
        let printed = output.check();
        let stop = interrupt.check().is_err() || printed.is_err();
        if result.is_ok() {
            result = printed.map_err(Into::into);
        }
        stage = next(stage, ranks, result.is_err(), stop);
        thread::sleep(TICK);
    }
    result
}

/// The next stage, with what it does to the ranks.
fn next(stage: Stage, ranks: &mut [Running], failed: bool, stop: bool) -> Stage {
    let now = Instant::now();
    let mut all = |signal| ranks.iter_mut().for_each(|rank| rank.signal(signal));
    match stage {
        Stage::Running if failed && !stop => Stage::Failed(now + MOMENT),
        Stage::Running | Stage::Failed(_) if stop => {
            all(Signal::TERM);
            Stage::Told(now + PATIENCE)
        }
        Stage::Failed(at) if now >= at => {
            all(Signal::TERM);
            Stage::Told(now + PATIENCE)
        }
        Stage::Told(at) if now >= at => {
            all(Signal::KILL);
            Stage::Killed
        }
        stage => stage,
    }
}
