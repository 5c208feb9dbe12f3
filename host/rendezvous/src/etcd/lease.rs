//! A rank's lease, as the rest of this crate sees it: a thread keeps it, calls ask how it is.

use super::card::Card;
use super::keeper;
use super::{Etcd, LEASE};
use crate::error::{Error, Failure};
use crate::handshake::Identity;
use crate::hub::Lapsed;
use crate::place;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often a wait looks at the wish to stop.
const STEP: Duration = Duration::from_millis(50);

/// How far this rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Others are awaited: their keys are watched.
    Joining,
    /// All have come.
    Member,
    /// The key is to be removed.
    Leaving,
}

/// What thread and calls know together.
pub struct Desk {
    pub etcd: Etcd,
    /// The key of rank 0 is `FOLDER000000`.
    pub folder: String,
    pub rank: u32,
    pub card: String,
    /// Told which ranks' leases have ended, at rank 0.
    pub lapsed: Option<Lapsed>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub struct State {
    /// Until when etcd keeps the key if it hears nothing more; `None` before there is one.
    pub valid: Option<Instant>,
    /// The revision of etcd that this rank's key was made by.
    pub made: i64,
    /// Why there is no lease any more, and none will be.
    pub ended: Option<String>,
    /// The value of rank 0's key.
    pub root: Option<Vec<u8>>,
    /// It was there, and is not any more.
    pub root_gone: bool,
    /// What the last try said.
    pub last: String,
}

impl Desk {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something, and wakes who waits.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Notes what is wrong for now.
    pub fn say(&self, why: String) {
        tracing::debug!("etcd at {}: {why}", self.etcd);
        self.change(|state| state.last = why);
    }

    /// Is this rank still a member, as far as it can know? Once it is not, it never is again.
    pub fn holds(&self) -> Result<(), String> {
        let mut state = self.state();
        if state.ended.is_none() && state.valid.is_some_and(|until| Instant::now() >= until) {
            let last = std::mem::take(&mut state.last);
            let silent = format!("it has not renewed this rank's lease for {} s", LEASE.as_secs());
            state.ended = Some(if last.is_empty() { silent } else { format!("{silent} ({last})") });
        }
        match &state.ended {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }
}

/// A key at etcd that this process keeps alive. Dropping it removes the key.
pub(crate) struct Lease {
    desk: Arc<Desk>,
    phase: watch::Sender<Phase>,
    thread: Option<JoinHandle<()>>,
}

impl Lease {
    /// Registers a rank, which may take until etcd is there. Rank 0 gives the port of its hub and
    /// what hears of ranks that die. `times`: how long this rank waits in all, and until when.
    pub fn take(
        etcd: &Etcd,
        me: &Identity,
        hub: Option<(u16, Lapsed)>,
        times: (Duration, Instant),
        stop: &AtomicBool,
    ) -> Result<Self, Error> {
        let card = Card::new(hub.as_ref().map(|(port, _)| *port))?.text()?;
        let desk = Arc::new(Desk {
            etcd: etcd.clone(),
            folder: folder(&etcd.prefix, &me.job),
            rank: me.rank,
            card,
            lapsed: hub.map(|(_, lapsed)| lapsed),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let (phase, heard) = watch::channel(Phase::Joining);
        let doing = || Error::io("starting the thread that talks to etcd");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(doing())?;
        let own = desk.clone();
        let thread = thread::Builder::new().name("unisono etcd".into());
        let thread = thread.spawn(move || runtime.block_on(keeper::run(&own, heard)));
        let lease = Self { desk, phase, thread: Some(thread.map_err(doing())?) };
        lease.wait(times, stop)?;
        Ok(lease)
    }

    fn wait(&self, (waited, until): (Duration, Instant), stop: &AtomicBool) -> Result<(), Error> {
        let mut state = self.desk.state();
        while state.valid.is_none() && state.ended.is_none() {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if Instant::now() >= until {
                let rank = self.desk.rank;
                let last = if state.last.is_empty() { "no answer" } else { &state.last };
                let why = format!("rank {rank} has no place there after {waited:?}: {last}");
                return Err(self.error(why));
            }
            let woken = self.desk.changed.wait_timeout(state, STEP);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        self.check()
    }

    fn error(&self, why: String) -> Error {
        Error::Etcd { at: self.desk.etcd.to_string(), why }
    }

    /// An error if this rank is no member any more.
    pub fn check(&self) -> Result<(), Error> {
        self.desk.holds().map_err(|why| self.error(why))
    }

    /// The same of a rank that waits at rank 0's hub, where that one's lease may end, too.
    pub fn awaits_root(&self) -> Result<(), Error> {
        self.check()?;
        match self.desk.state().root_gone {
            true => Err(Error::Group(Failure::Lapsed { rank: 0, refused: Vec::new() })),
            false => Ok(()),
        }
    }

    /// Where rank 0's hub may be, in the order to try; or why that is not known.
    pub fn root(&self) -> Result<Vec<SocketAddr>, String> {
        let state = self.desk.state();
        let Some(card) = &state.root else {
            let last = if state.last.is_empty() { "" } else { &format!(" ({})", state.last) };
            return Err(format!("no rank 0 has come to {}{last}", self.desk.folder));
        };
        let own = place::addresses().unwrap_or_default();
        Card::hub(card, &own).ok_or_else(|| format!("{} is no rank 0", Card::who(card)))
    }

    /// The group is complete: nobody's key has to be watched any more.
    pub fn complete(&self) {
        self.phase.send_replace(Phase::Member);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.phase.send_replace(Phase::Leaving);
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, the process has said so.
            let _ = thread.join();
        }
    }
}

/// Of a job's keys. A job may be called anything, and must not lie within another one.
fn folder(prefix: &str, job: &str) -> String {
    let mut folder = String::new();
    if !prefix.is_empty() {
        folder += prefix;
        folder.push('/');
    }
    for byte in job.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                folder.push(byte.into());
            }
            _ => folder += &format!("%{byte:02x}"),
        }
    }
    folder.push('/');
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_never_lie_within_each_other() {
        assert_eq!(folder("a/b", "job-1.x"), "a/b/job-1.x/");
        assert_eq!(folder("", "a/b %"), "a%2fb%20%25/");
    }
}
