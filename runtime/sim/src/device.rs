//! A device that takes virtual time and computes by the scalar reference.

use crate::check::access::{Access, User};
use crate::hub::{Event, Hub};
use crate::memory::{Mem, MemoryMap};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use unisono_core::numeric;
use unisono_core::{DType, Finish, ReduceOp, Source};
use unisono_driver::{Copy, Device, DeviceCaps, Done, Fold, Token};

/// What a device is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    /// What it says of itself.
    pub caps: DeviceCaps,
    /// Jobs that it works on at a time.
    pub jobs_max: usize,
    /// Nanoseconds that every job takes, and picoseconds for every byte that it reads.
    pub start_ns: u64,
    /// See `start_ns`.
    pub ps_per_byte: u64,
    /// A job takes longer by up to so many nanoseconds: jobs overtake each other.
    pub jitter_ns: u64,
    /// It gathers jobs until it is told to start them.
    pub gathers: bool,
    /// Inputs and outputs of its member lie where only it reaches them.
    pub private: [bool; 2],
    /// The job with this number fails: when it is started, or when it should be finished.
    pub fails: Option<(u64, FailsAt)>,
}

/// When a job fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailsAt {
    /// It cannot be started.
    Start,
    /// It is started but completes with an error.
    End,
}

/// The simulated device has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// Because the scenario says so.
    #[error("the scenario lets job {0} fail")]
    Scenario(u64),
    /// The job was not possible; the simulator has complained about it.
    #[error("the job broke a rule")]
    Rule,
}

#[derive(Debug)]
enum Work {
    Copy { from: Mem, to: Mem, bytes: usize },
    Fold(FoldWork),
}

#[derive(Debug)]
struct FoldWork {
    dtype: DType,
    op: Option<ReduceOp>,
    finish: Finish,
    sources: Vec<(Source<Mem>, usize)>,
    dests: Vec<Mem>,
    bytes: usize,
}

#[derive(Debug)]
struct Job {
    serial: u32,
    token: Token,
    work: Work,
    fails: bool,
}

/// The inside of a device, which the event loop shares with the engine's handle on it.
#[derive(Debug)]
pub struct Inside {
    hub: Rc<Hub>,
    member: usize,
    model: DeviceModel,
    started: u64,
    running: Vec<Job>,
    /// Jobs that wait to be started, and how long each takes.
    gathered: Vec<(u32, u64)>,
    done: VecDeque<Done<DeviceError>>,
}

/// A member's device.
#[derive(Debug)]
pub struct SimDevice(Rc<RefCell<Inside>>);

impl SimDevice {
    /// A device of `member`, and its inside for the event loop.
    #[must_use]
    pub fn new(hub: Rc<Hub>, member: usize, model: DeviceModel) -> (Self, Rc<RefCell<Inside>>) {
        let (running, done) = (Vec::new(), VecDeque::new());
        let gathered = Vec::new();
        let inside = Inside { hub, member, model, started: 0, running, gathered, done };
        let inside = Rc::new(RefCell::new(inside));
        (Self(inside.clone()), inside)
    }
}

impl Work {
    fn reads(&self) -> Vec<(Mem, usize)> {
        match self {
            Self::Copy { from, bytes, .. } => vec![(*from, *bytes)],
            Self::Fold(fold) => fold.sources.iter().map(|(s, len)| (s.mem, *len)).collect(),
        }
    }

    fn writes(&self) -> Vec<(Mem, usize)> {
        match self {
            Self::Copy { to, bytes, .. } => vec![(*to, *bytes)],
            Self::Fold(fold) => fold.dests.iter().map(|mem| (*mem, fold.bytes)).collect(),
        }
    }

    fn perform(&self, memory: &mut MemoryMap) -> Result<(), String> {
        match self {
            Self::Copy { from, to, bytes } => {
                let content = memory.read(*from, *bytes)?.to_vec();
                memory.write(*to, &content)
            }
            Self::Fold(fold) => {
                let mut result = vec![0; fold.bytes];
                let mut sources = Vec::new();
                for (s, len) in &fold.sources {
                    let Source { form, weight, merges, .. } = *s;
                    sources.push(Source { mem: memory.read(s.mem, *len)?, form, weight, merges });
                }
                numeric::fold(fold.dtype, fold.op, fold.finish, &sources, &mut result)
                    .map_err(|e| format!("a fold that is none: {e}"))?;
                fold.dests.iter().try_for_each(|dest| memory.write(*dest, &result))
            }
        }
    }
}

impl Inside {
    const fn user(&self, serial: u32) -> User {
        User::Job { member: self.member as u16, serial }
    }

    fn start(&mut self, work: Work, token: Token) -> Result<(), DeviceError> {
        assert!(self.running.len() < self.model.jobs_max, "a job without room for it");
        let serial = self.started as u32;
        self.started += 1;
        let failure = self.model.fails.filter(|(nth, _)| *nth == u64::from(serial));
        if let Some((nth, FailsAt::Start)) = failure {
            self.note_failure(token);
            return Err(DeviceError::Scenario(nth));
        }
        let (reads, writes) = (work.reads(), work.writes());
        let user = self.user(serial);
        for (access, spans) in [(Access::Read, &reads), (Access::Write, &writes)] {
            for (mem, len) in spans {
                let claim = self.hub.memory.borrow_mut().claim(user, access, *mem, *len as u64);
                self.hub.check(claim);
            }
        }
        self.hub.note(&[7, self.member as u64, u64::from(token)], || {
            format!("{} works, token {token:x}: {reads:?} to {writes:?}", self.member)
        });
        let bytes: usize = reads.iter().map(|(_, len)| len).sum();
        let late = self.hub.rng.borrow_mut().below(self.model.jitter_ns + 1);
        let takes = self.model.start_ns + self.model.ps_per_byte * bytes as u64 / 1000 + late;
        self.gathered.push((serial, takes));
        self.running.push(Job { serial, token, work, fails: failure.is_some() });
        if !self.model.gathers {
            self.flush();
        }
        Ok(())
    }

    fn flush(&mut self) {
        for (serial, takes) in self.gathered.drain(..) {
            let member = self.member;
            self.hub.at(self.hub.now() + takes, Event::Job { member, serial });
        }
    }

    /// What the device is like.
    #[must_use]
    pub const fn model(&self) -> &DeviceModel {
        &self.model
    }

    fn note_failure(&self, token: Token) {
        self.hub.device_failures.borrow_mut().push((self.member, token));
    }

    /// The time of a job has come.
    pub fn finish(&mut self, serial: u32) {
        let Some(at) = self.running.iter().position(|job| job.serial == serial) else { return };
        let job = self.running.swap_remove(at);
        let result = if job.fails {
            self.note_failure(job.token);
            Err(DeviceError::Scenario(u64::from(serial)))
        } else {
            let done = job.work.perform(&mut self.hub.memory.borrow_mut());
            done.map_err(|why| {
                self.hub.complain(format!("the device of {}: {why}", self.member));
                DeviceError::Rule
            })
        };
        self.let_go(&job);
        let (member, token) = (self.member, job.token);
        self.hub.note(&[8, member as u64, u64::from(token)], || {
            format!("{member} has worked, token {token:x}: {result:?}")
        });
        self.done.push_back(Done { token: job.token, result });
        self.hub.wake(self.member);
    }

    fn let_go(&self, job: &Job) {
        let user = self.user(job.serial);
        for (mem, _) in job.work.reads().into_iter().chain(job.work.writes()) {
            self.hub.memory.borrow_mut().release(user, mem);
        }
    }

    /// The member is gone; what its device was doing is not finished.
    pub fn kill(&mut self) {
        self.gathered.clear();
        for job in core::mem::take(&mut self.running) {
            self.let_go(&job);
        }
    }
}

impl Device for SimDevice {
    type Mem = Mem;
    type Error = DeviceError;

    fn caps(&self) -> DeviceCaps {
        self.0.borrow().model.caps
    }

    fn has_room(&self) -> bool {
        let inside = self.0.borrow();
        inside.running.len() < inside.model.jobs_max
    }

    unsafe fn fold(&mut self, work: &Fold<'_, Mem>, token: Token) -> Result<(), DeviceError> {
        let Fold { dtype, op, count, sources, dests, finish } = *work;
        let size = |s: &Source<Mem>| count * numeric::form_size(dtype, s.form);
        let bytes = count * numeric::dest_size(dtype, op, finish, sources);
        let sources = sources.iter().map(|s| (*s, size(s))).collect();
        let dests = dests.to_vec();
        let fold = FoldWork { dtype, op, finish, sources, dests, bytes };
        self.0.borrow_mut().start(Work::Fold(fold), token)
    }

    unsafe fn copy(&mut self, work: &Copy<Mem>, token: Token) -> Result<(), DeviceError> {
        let Copy { from, to, bytes } = *work;
        self.0.borrow_mut().start(Work::Copy { from, to, bytes }, token)
    }

    fn flush(&mut self) {
        self.0.borrow_mut().flush();
    }

    fn is_shared(&self, mem: Mem) -> bool {
        self.0.borrow().hub.memory.borrow().is_shared(mem)
    }

    fn poll_done(&mut self) -> Option<Done<DeviceError>> {
        self.0.borrow_mut().done.pop_front()
    }
}
