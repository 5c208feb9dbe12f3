//! What came out of a run, and the table over many.

use crate::hub::Hub;
use crate::member::{KIND_NAMES, Member, kind_code};
use crate::net::Counts;
use crate::trace::Trace;
use core::fmt;

/// What came out of one seed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Calls on members: ended well.
    pub done: u64,
    /// Calls on members that failed, by kind; see [`KIND_NAMES`].
    pub failed: [u64; KIND_NAMES.len()],
    /// Calls, each counted once.
    pub calls: u64,
    /// Frames sent.
    pub frames: u64,
    /// What the network did.
    pub packets: Counts,
    /// Fragments sent again.
    pub resent: u64,
    /// Virtual nanoseconds.
    pub virtual_ns: u64,
    /// Hash of everything that happened.
    pub hash: u64,
    /// Rules that were broken; empty if all is well.
    pub complaints: Vec<String>,
    /// The readable trace, if it was asked for.
    pub trace: Vec<String>,
}

impl Report {
    pub(crate) fn new(seed: u64, hub: &Hub, members: &[Member], resent: u64) -> Self {
        let outcomes = members.iter().flat_map(|m| &m.calls).filter_map(|c| c.outcome.as_ref());
        let (mut done, mut failed) = (0, [0; KIND_NAMES.len()]);
        for result in outcomes.filter_map(|outcome| outcome.result) {
            match result {
                Ok(()) => done += 1,
                Err(why) => failed[usize::from(kind_code(&why))] += 1,
            }
        }
        Self {
            seed,
            done,
            failed,
            calls: members.iter().map(|m| m.calls.len()).max().unwrap_or(0) as u64,
            frames: hub.frames.get(),
            packets: hub.net.borrow().counts(),
            resent,
            virtual_ns: hub.now(),
            hash: hub.trace.borrow().hash(),
            complaints: hub.complaints.borrow().clone(),
            trace: hub.trace.borrow().clone().lines(),
        }
    }

    /// A run that ended before its time. Nothing may be borrowed that the panic has left borrowed.
    pub(crate) fn broken(seed: u64, hub: &Hub, what: String) -> Self {
        let trace = hub.trace.try_borrow().map(|t| t.clone()).unwrap_or_else(|_| Trace::new(false));
        Self {
            seed,
            done: 0,
            failed: [0; KIND_NAMES.len()],
            calls: 0,
            frames: hub.frames.get(),
            packets: Counts::default(),
            resent: 0,
            virtual_ns: hub.now(),
            hash: trace.hash(),
            complaints: vec![format!("at {:.3} us: {what}", hub.now() as f64 / 1e3)],
            trace: trace.lines(),
        }
    }

    /// Is everything as it must be?
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.complaints.is_empty()
    }

    /// The one command that shows this run again.
    #[must_use]
    pub fn replay(&self) -> String {
        format!("cargo run -p unisono-sim -- --seed {}", self.seed)
    }
}

/// Sums over many seeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Runs.
    pub seeds: u64,
    /// Runs in which a rule was broken.
    pub bad: u64,
    /// See [`Report`].
    pub calls: u64,
    /// See [`Report`].
    pub done: u64,
    /// See [`Report`].
    pub failed: [u64; KIND_NAMES.len()],
    /// See [`Report`].
    pub frames: u64,
    /// See [`Report`].
    pub packets: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// See [`Report`].
    pub resent: u64,
    /// See [`Report`].
    pub virtual_ns: u64,
}

impl Summary {
    /// Adds one run.
    pub fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.bad += u64::from(!report.is_good());
        self.calls += report.calls;
        self.done += report.done;
        self.failed.iter_mut().zip(report.failed).for_each(|(sum, one)| *sum += one);
        self.frames += report.frames;
        self.packets += report.packets.sent;
        self.lost += report.packets.lost;
        self.resent += report.resent;
        self.virtual_ns += report.virtual_ns;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, number: u64| writeln!(f, "{name:<32}{number:>14}");
        row("seeds", self.seeds)?;
        row("  with a broken rule", self.bad)?;
        row("calls", self.calls)?;
        row("calls of members: done", self.done)?;
        for (name, number) in KIND_NAMES.iter().zip(self.failed) {
            row(&format!("  {name}"), number)?;
        }
        row("frames", self.frames)?;
        row("packets", self.packets)?;
        row("  lost", self.lost)?;
        row("fragments sent again", self.resent)?;
        row("virtual milliseconds", self.virtual_ns / 1_000_000)
    }
}
