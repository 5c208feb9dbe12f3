//! Calls that go on while the caller does something else.
//!
//! [`Member::start`] begins a call and returns at once; it goes on whenever this member does
//! something ([`Member::is_done`], [`Member::wait`] or any other call). A [`Worker`] owns a member
//! on a thread of its own, so that calls go on by themselves; its results are futures.

use crate::call::Call;
use crate::calls::Output;
use crate::element::Element;
use crate::error::Error;
use crate::member::Member;
use crate::replan::{Replan, Replanned, Watch};
use crate::tensor::BufferMut;
use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A tensor that belongs to a call in flight, and who may ask for it.
pub(crate) struct Held {
    pub op_id: u64,
    pub claim: Weak<()>,
    pub tensor: Box<dyn Any + Send>,
}

/// A call that [`Member::start`] has begun: the claim on its tensor. If it is dropped, the call
/// goes on, and its tensor is freed when it is over.
#[derive(Debug)]
#[must_use = "the tensor comes back from `wait`"]
pub struct Pending<T> {
    op_id: u64,
    claim: Arc<()>,
    tensor: PhantomData<T>,
}

impl Member {
    /// Begins a call in place on a tensor that the member keeps until [`Member::wait`].
    ///
    /// At most four calls are in flight, and each one needs the fourth call before it to have been
    /// waited for, whatever came between; begin them in the same order on all ranks.
    ///
    /// # Errors
    /// [`Error`]; the tensor is dropped then. [`Error::Busy`] is not counted as a call, every other
    /// error is, and the other ranks' calls fail as well.
    pub fn start<T: Element>(&mut self, call: &Call, tensor: Vec<T>) -> Result<Pending<T>, Error> {
        let mut tensor = tensor;
        self.same_type::<T>(call)?;
        let memory = self.memory(call, Output::InPlace(tensor.span_mut()));
        let memory = self.counted(memory)?;
        // SAFETY: the tensor's heap block stays where it is and is kept in `held` until the call
        // is over; nobody can reach it meanwhile.
        let op_id = unsafe { self.begin(call, memory)? };
        let claim = Arc::new(());
        self.hold(Held { op_id, claim: Arc::downgrade(&claim), tensor: Box::new(tensor) });
        Ok(Pending { op_id, claim, tensor: PhantomData })
    }

    /// Is the call over? Does what can be done now, for all calls in flight.
    pub fn is_done<T: Element>(&mut self, pending: &Pending<T>) -> bool {
        self.progress();
        !self.holds(pending.op_id, &Arc::downgrade(&pending.claim)) || self.is_over(pending.op_id)
    }

    /// Waits for a call and returns its tensor.
    ///
    /// # Errors
    /// [`Error`]; the tensor is dropped then. [`Error::NoSuchCall`] for a claim of another member,
    /// or one that [`Group::run`](crate::Group::run) has given up at its end.
    pub fn wait<T: Element>(&mut self, pending: Pending<T>) -> Result<Vec<T>, Error> {
        if !self.holds(pending.op_id, &Arc::downgrade(&pending.claim)) {
            return Err(Error::NoSuchCall);
        }
        let result = self.finish(pending.op_id);
        let tensor = self.unhold(pending.op_id);
        result?;
        tensor.and_then(|t| t.downcast().ok()).map(|t| *t).ok_or(Error::NoSuchCall)
    }
}

/// A result, once it is there, and who wants to know.
struct State<T> {
    result: Option<Result<T, Error>>,
    /// It has been there and was taken.
    taken: bool,
    waker: Option<Waker>,
}

impl<T> State<T> {
    /// The result, once; after that there is none to wait for.
    fn take(&mut self) -> Option<Result<T, Error>> {
        if self.taken {
            return Some(Err(Error::NoSuchCall));
        }
        self.taken = self.result.is_some();
        self.result.take()
    }
}

/// Where a worker leaves a result.
struct Cell<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
}

impl<T> Cell<T> {
    fn put(&self, result: Result<T, Error>) {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.result = Some(result);
            state.waker.take()
        };
        self.ready.notify_all();
        // Not under the lock: a waker may poll at once.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The worker's end of a [`Cell`]: whatever happens to it, the promise is kept.
struct Keeper<T> {
    cell: Arc<Cell<T>>,
    rank: u16,
    kept: bool,
}

impl<T> Keeper<T> {
    fn put(mut self, result: Result<T, Error>) {
        self.kept = true;
        self.cell.put(result);
    }
}

impl<T> Drop for Keeper<T> {
    fn drop(&mut self) {
        if !self.kept {
            self.cell.put(Err(Error::PeerLost(self.rank)));
        }
    }
}

/// The result of a call that a [`Worker`] carries out: a future, or wait for it.
#[must_use = "the tensor comes back from `wait` or `.await`"]
pub struct Promise<T>(Arc<Cell<Vec<T>>>);

impl<T> Promise<T> {
    /// Blocks until the call is over and returns its tensor.
    ///
    /// # Errors
    /// [`Error`] of the call.
    pub fn wait(self) -> Result<Vec<T>, Error> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = state.take() {
                return result;
            }
            state = self.0.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Future for Promise<T> {
    type Output = Result<Vec<T>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// What comes of planning anew on a [`Worker`].
#[must_use = "whether it went well comes from `wait`"]
pub struct Replanning {
    told: mpsc::Receiver<Result<Replanned, Error>>,
    rank: u16,
}

impl Replanning {
    /// Blocks until it is done.
    ///
    /// # Errors
    /// As for [`Member::replan`].
    pub fn wait(self) -> Result<Replanned, Error> {
        self.told.recv().unwrap_or(Err(Error::PeerLost(self.rank)))
    }
}

/// Begins a call on the worker's member, where it may be the only one, and says how to end it.
type Job = Box<dyn FnOnce(&mut Member, bool) -> Option<InFlight> + Send>;

/// Ends a call: takes what has become of it, and its tensor.
type End = Box<dyn FnOnce(Result<(), Error>, Option<Box<dyn Any + Send>>) + Send>;

/// A call that is under way on the worker's thread.
struct InFlight {
    op_id: u64,
    /// Says to the member that somebody waits for the call.
    _claim: Arc<()>,
    /// If it is the only one: others would share its links.
    watch: Option<Watch>,
    end: End,
}

/// A member on a thread of its own: calls overlap with what the caller computes.
pub struct Worker {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<std::thread::JoinHandle<()>>,
    rank: u16,
}

impl Worker {
    /// Moves a member to a thread of its own.
    ///
    /// # Errors
    /// [`Error::Thread`]; the member is gone then, which its peers notice.
    pub fn new(member: Member) -> Result<Self, Error> {
        let rank = member.rank();
        let (jobs, inbox) = mpsc::channel();
        let thread = std::thread::Builder::new().spawn(move || work(member, &inbox));
        let thread = thread.map_err(|error| Error::Thread(error.to_string()))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), rank })
    }

    /// The member's rank.
    #[must_use]
    pub const fn rank(&self) -> u16 {
        self.rank
    }

    /// Queues a call in place; calls are begun in the order of queueing.
    pub fn start<T: Element>(&self, call: Call, tensor: Vec<T>) -> Promise<T> {
        let cell = Arc::new(Cell {
            state: Mutex::new(State { result: None, taken: false, waker: None }),
            ready: Condvar::new(),
        });
        let promise = Promise(cell.clone());
        let keeper = Keeper { cell, rank: self.rank, kept: false };
        let job: Job = Box::new(move |member, alone| {
            let watch = if alone { member.watch(&call) } else { None };
            match member.start(&call, tensor) {
                Err(error) => {
                    keeper.put(Err(error));
                    None
                }
                Ok(pending) => Some(InFlight {
                    op_id: pending.op_id,
                    _claim: pending.claim,
                    watch,
                    end: Box::new(move |result, tensor| {
                        let tensor = tensor.and_then(|t| t.downcast().ok()).map(|t| *t);
                        keeper.put(result.and_then(|()| tensor.ok_or(Error::NoSuchCall)));
                    }),
                }),
            }
        });
        self.queue(job);
        promise
    }

    /// Queues a [`Member::replan`] behind the calls that were queued before, which must have been
    /// waited for.
    pub fn replan(&self, when: Replan) -> Replanning {
        let (tell, told) = mpsc::channel();
        self.queue(Box::new(move |member, _| {
            // Nobody may want to know.
            let _ = tell.send(member.replan(when));
            None
        }));
        Replanning { told, rank: self.rank }
    }

    fn queue(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // If the thread is gone, the job is dropped and keeps its promise on the way.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // What is queued is still carried out.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How long an idle worker sleeps before it looks at its member again.
const NAP: Duration = Duration::from_millis(50);

fn work(mut member: Member, inbox: &mpsc::Receiver<Job>) {
    let mut flying: VecDeque<InFlight> = VecDeque::new();
    let mut open = true;
    let mut idle = 0u32;
    while open || !flying.is_empty() {
        if open && member.has_channel() {
            let next = if flying.is_empty() {
                inbox.recv_timeout(NAP)
            } else {
                inbox.try_recv().map_err(|e| match e {
                    TryRecvError::Empty => RecvTimeoutError::Timeout,
                    TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                })
            };
            match next {
                Ok(job) => {
                    let alone = flying.is_empty();
                    flying.extend(job(&mut member, alone));
                    if let [first, _, ..] = flying.make_contiguous() {
                        first.watch = None;
                    }
                    idle = 0;
                }
                Err(RecvTimeoutError::Disconnected) => open = false,
                // A board may still wait for an answer to what is over here.
                Err(RecvTimeoutError::Timeout) => member.progress(),
            }
        }
        // Calls end in any order; a channel is free only when its call's result was taken.
        for _ in 0..flying.len() {
            let Some(call) = flying.pop_front() else { break };
            match member.poll(call.op_id) {
                Some(result) => {
                    let tensor = member.unhold(call.op_id);
                    member.seen(call.watch.filter(|_| result.is_ok()));
                    (call.end)(result, tensor);
                    idle = 0;
                }
                None => flying.push_back(call),
            }
        }
        idle = idle.saturating_add(1);
        match idle {
            0..100 => {}
            100..2000 => std::thread::yield_now(),
            // The bell of the member also rings when a peer has sent something.
            _ if !flying.is_empty() => member.rest(),
            _ => {}
        }
    }
}
