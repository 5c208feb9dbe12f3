//! A device on two cores: the front takes work on the core that drives the links, the back does it
//! on another.

use crate::probe;
use core::cell::RefCell;
use heapless::Vec;
use heapless::spsc::{Consumer, Producer, Queue};
use unisono_core::{DType, Finish, ReduceOp, Source};
use unisono_driver::{Copy, Device, DeviceCaps, Done, Fold, HostPtr, Token};

/// Most sources and destinations of a fold.
pub const SPANS: usize = 8;
/// Jobs on their way, less one.
const JOBS: usize = 8;

/// One piece of work, with everything that it names.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lies in a queue of fixed size")]
enum Job {
    Fold {
        dtype: DType,
        op: Option<ReduceOp>,
        count: usize,
        sources: Vec<Source<HostPtr>, SPANS>,
        dests: Vec<HostPtr, SPANS>,
        finish: Finish,
    },
    Copy(Copy<HostPtr>),
}

/// The two queues between the cores. `E` is the error of the device behind.
#[derive(Debug)]
pub struct Queues<E> {
    jobs: Queue<(Job, Token), JOBS>,
    done: Queue<Done<E>, JOBS>,
}

impl<E> Queues<E> {
    /// Empty queues.
    #[must_use]
    pub const fn new() -> Self {
        Self { jobs: Queue::new(), done: Queue::new() }
    }

    /// The ends for the two cores.
    pub fn split(&mut self) -> (Ends<'_, E>, Back<'_, E>) {
        let (to, jobs) = self.jobs.split();
        let (done, from) = self.done.split();
        (Ends(RefCell::new((to, from, 0))), Back { jobs, done })
    }
}

impl<E> Default for Queues<E> {
    fn default() -> Self {
        Self::new()
    }
}

/// The front's ends and the number of its jobs under way.
type FrontEnds<'a, E> = (Producer<'a, (Job, Token)>, Consumer<'a, Done<E>>, usize);

/// The front's ends of the queues; [`Front`]s are made of them.
pub struct Ends<'a, E>(RefCell<FrontEnds<'a, E>>);

/// The back's ends of the queues.
pub struct Back<'a, E> {
    jobs: Consumer<'a, (Job, Token)>,
    done: Producer<'a, Done<E>>,
}

/// The device that the engine sees.
#[derive(Clone, Copy)]
pub struct Front<'a, E>(&'a Ends<'a, E>);

impl<'a, E> Front<'a, E> {
    /// A device whose work goes through these ends.
    #[must_use]
    pub const fn new(ends: &'a Ends<'a, E>) -> Self {
        Self(ends)
    }

    fn push(&self, job: Job, token: Token) -> Result<(), DuoError<E>> {
        let mut ends = self.0.0.try_borrow_mut().map_err(|_| DuoError::Room)?;
        ends.0.enqueue((job, token)).map_err(|_| DuoError::Room)?;
        ends.2 += 1;
        Ok(())
    }
}

/// What can go wrong with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DuoError<E> {
    /// More jobs, or more spans, than there is room for.
    #[error("the job does not fit the queue between the cores")]
    Room,
    /// The device behind could not do it.
    #[error(transparent)]
    Behind(E),
}

impl<E: core::error::Error + 'static> Device for Front<'_, E> {
    type Mem = HostPtr;
    type Error = DuoError<E>;

    fn caps(&self) -> DeviceCaps {
        DeviceCaps { sources_max: SPANS, dests_max: SPANS }
    }

    fn has_room(&self) -> bool {
        // Every job has room for its completion.
        self.0.0.try_borrow().is_ok_and(|ends| ends.0.ready() && ends.2 < JOBS - 1)
    }

    unsafe fn fold(&mut self, work: &Fold<'_, HostPtr>, token: Token) -> Result<(), DuoError<E>> {
        let Fold { dtype, op, count, finish, .. } = *work;
        let sources = Vec::from_slice(work.sources).map_err(|_| DuoError::Room)?;
        let dests = Vec::from_slice(work.dests).map_err(|_| DuoError::Room)?;
        self.push(Job::Fold { dtype, op, count, sources, dests, finish }, token)
    }

    unsafe fn copy(&mut self, work: &Copy<HostPtr>, token: Token) -> Result<(), DuoError<E>> {
        self.push(Job::Copy(*work), token)
    }

    fn poll_done(&mut self) -> Option<Done<DuoError<E>>> {
        let mut ends = self.0.0.try_borrow_mut().ok()?;
        let Done { token, result } = ends.1.dequeue()?;
        ends.2 = ends.2.saturating_sub(1);
        Some(Done { token, result: result.map_err(DuoError::Behind) })
    }
}

impl<E> Back<'_, E> {
    /// Does the next job with `device`, to its end; true if there was one.
    pub fn turn<D: Device<Mem = HostPtr, Error = E>>(&mut self, device: &mut D) -> bool {
        let worked = self.job(device);
        probe::round_is_over(worked);
        worked
    }

    fn job<D: Device<Mem = HostPtr, Error = E>>(&mut self, device: &mut D) -> bool {
        let Some((job, token)) = self.jobs.dequeue() else { return false };
        // SAFETY: what the front's caller has promised holds until the completion.
        let started = unsafe {
            match &job {
                Job::Fold { dtype, op, count, sources, dests, finish } => {
                    let (dtype, op, count, finish) = (*dtype, *op, *count, *finish);
                    device.fold(&Fold { dtype, op, count, sources, dests, finish }, token)
                }
                Job::Copy(copy) => device.copy(copy, token),
            }
        };
        let done = match started {
            Err(error) => Done { token, result: Err(error) },
            Ok(()) => loop {
                if let Some(done) = device.poll_done() {
                    break done;
                }
                core::hint::spin_loop();
            },
        };
        // There is room: the front has fewer jobs under way than fit.
        let _ = self.done.enqueue(done);
        true
    }
}
