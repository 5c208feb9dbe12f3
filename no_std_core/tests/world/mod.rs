//! A world of machines in one thread: symbolic memory, links that delay and devices that take their
//! time, driven one enabled step at a time.
//!
//! A value is an expression over the ranks' contributions, so a fold really runs its program, and
//! what a rank ends up with can be compared with the tree that it should be. Locks on every cell
//! find memory that is overwritten while somebody reads it; cells that hold nothing are poison.

// Each test binary uses its own part of this module.
#![allow(dead_code, unused_imports)]

mod again;
pub mod case;
mod check;
mod frames;
mod jobs;
mod links;
pub mod memory;
pub mod shapes;
pub mod space;

pub use case::{Case, Join, Joins, P, R, Turns, W};

use links::{Link, Sending};
use memory::{Memory, Ref};
use shapes::{Rng, Shapes};
use std::collections::{BTreeMap, VecDeque};
use unisono_core::machine::{Config, Machine, Status};
use unisono_core::time::Instant;

pub type Rank = u16;
pub type Tested = Machine<Ref, W, R, P>;

/// A step that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The rank makes its call.
    Start(Rank),
    /// Ask a machine what to do next.
    Poll(Rank),
    /// Look at the frame at the head of a channel.
    Deliver(Rank, Rank),
    /// The payload of the head frame has been received.
    Placed(Rank, Rank),
    /// A device has finished the job of a lane.
    Job(Rank, u16),
    /// A link has copied a payload.
    Copied(u32),
    /// A payload's memory is free again.
    Sent(u32),
    /// More of a rank's input is there.
    Grow(Rank),
}

/// One member.
pub struct Member {
    pub machine: Box<Tested>,
    pub memory: Memory,
    pub config: Option<Config>,
    /// Number of the call that it is in; 0 before the first one.
    pub op: u64,
    dirty: bool,
    jobs: Vec<Option<jobs::Running>>,
    busy: usize,
    /// A frame waits for a place.
    later: bool,
    /// Elements of the input that are there, and of the output that are final.
    pub ready: u64,
    pub progress: u64,
    pub sent: u128,
    pub received: u128,
    pub frames: u64,
    /// Where a peer was last allowed to write its answer to a chunk.
    windows: BTreeMap<(Rank, u64), Ref>,
}

pub struct World {
    pub case: Case,
    pub members: Vec<Member>,
    pub shapes: Shapes,
    pub now: Instant,
    links: Vec<Link>,
    sends: Vec<Option<Sending>>,
    free: Vec<u32>,
    /// Payloads that were taken back.
    lost: Vec<u32>,
    events: VecDeque<Event>,
    rng: Rng,
    /// Longest path that any value has come.
    deepest: u16,
    pub steps: u64,
    /// Results that were written where they belong instead of being sent.
    pub puts: u64,
    /// Inputs grow only when the test says so.
    pub dry: bool,
    /// Pairs of ranks between which nothing is delivered.
    pub cut: Vec<(Rank, Rank)>,
}

impl World {
    pub fn new() -> Self {
        Self {
            case: Case::new(unisono_core::Schedule::Ring, unisono_core::Kind::Barrier, 1, 0),
            members: Vec::new(),
            shapes: Shapes::new(),
            now: Instant::ZERO,
            links: Vec::new(),
            sends: Vec::new(),
            free: Vec::new(),
            lost: Vec::new(),
            events: VecDeque::new(),
            rng: Rng(0),
            deepest: 0,
            steps: 0,
            puts: 0,
            dry: false,
            cut: Vec::new(),
        }
    }

    /// Prepares a call; no member has made it yet.
    pub fn set_up(&mut self, case: &Case) {
        self.case = case.clone();
        self.rng = Rng(case.seed);
        self.now = Instant::ZERO;
        self.events.clear();
        self.sends.clear();
        self.free.clear();
        self.lost.clear();
        self.cut.clear();
        self.deepest = 0;
        let n = usize::from(case.members());
        self.links.iter_mut().for_each(Link::clear);
        self.links.resize_with(n * n, Link::default);
        while self.members.len() < n {
            self.members.push(Member::new());
        }
        self.members.truncate(n);
        for rank in 0..case.members() {
            self.members[usize::from(rank)].reset();
            let config = case.config(rank, 1);
            self.prepare(rank, config);
        }
    }

    /// Runs a whole call and checks everything about it.
    pub fn run(&mut self, case: &Case) {
        let _note = Note(case);
        self.set_up(case);
        for rank in 0..case.members() {
            self.events.push_back(Event::Start(rank));
        }
        self.drain();
        self.check_done();
    }

    /// Makes steps until none is enabled.
    pub fn drain(&mut self) {
        while self.step() {}
    }

    /// Makes one enabled step; false if there is none.
    pub fn step(&mut self) -> bool {
        if self.case.turns == Turns::Random && self.events.len() > 1 {
            let other = self.rng.below(self.events.len() as u64) as usize;
            self.events.swap(0, other);
        }
        let Some(event) = self.events.pop_front() else { return false };
        self.steps += 1;
        match event {
            Event::Start(rank) => self.start(rank),
            Event::Poll(rank) => self.poll(rank),
            Event::Deliver(from, to) => self.deliver(from, to),
            Event::Placed(from, to) => self.placed(from, to),
            Event::Job(rank, lane) => self.finish_job(rank, lane),
            Event::Copied(send) => self.copied(send),
            Event::Sent(send) => self.sent(send),
            Event::Grow(rank) => self.grow(rank),
        }
        true
    }

    pub fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub fn member(&mut self, rank: Rank) -> &mut Member {
        &mut self.members[usize::from(rank)]
    }

    pub fn status(&self, rank: Rank) -> Status {
        self.members[usize::from(rank)].machine.status()
    }

    /// The machine may want something: ask it.
    pub fn touch(&mut self, rank: Rank) {
        let member = self.member(rank);
        if !member.dirty && member.op > 0 {
            member.dirty = true;
            self.events.push_back(Event::Poll(rank));
        }
    }
}

impl Member {
    fn new() -> Self {
        Self {
            machine: Box::default(),
            memory: Memory::default(),
            config: None,
            op: 0,
            dirty: false,
            jobs: (0..W).map(|_| None).collect(),
            busy: 0,
            later: false,
            ready: 0,
            progress: 0,
            sent: 0,
            received: 0,
            windows: BTreeMap::new(),
            frames: 0,
        }
    }

    fn reset(&mut self) {
        self.op = 0;
        self.windows.clear();
        self.dirty = false;
        self.busy = 0;
        self.later = false;
        self.jobs.fill_with(|| None);
        (self.sent, self.received, self.frames) = (0, 0, 0);
    }
}

/// Says which case it was if a check fails.
pub struct Note<'a>(pub &'a Case);

impl Drop for Note<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("case: {:?}", self.0);
        }
    }
}
