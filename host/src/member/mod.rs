//! One rank of a group: makes calls, drives the engine.

mod local;
mod remote;
mod replan;
pub(crate) mod seat;
mod wait;
mod ways;

use crate::call::Call;
use crate::device::Opened;
use crate::device::dpu::Taken;
use crate::error::Error;
use crate::failures::Failures;
use crate::memory::Pool;
use crate::pending::Held;
use crate::planner::Plan;
use crate::relay::Relay;
use crate::replan::{Gauge, Plans, Replanner};
use crate::stuck::OnStuck;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use unisono_core::wire::frame::Abort;
use unisono_link_shm::Guard;
use unisono_planner::Cut;

pub(crate) use local::{AnyLink, FarLink, Local, Parts};
pub(crate) use remote::Remote;

/// Calls in flight on one member.
pub(crate) const CALLS_MAX: usize = 4;
/// Largest group of threads.
pub(crate) const MEMBERS_MAX: usize = 64;

/// Ends the process if a bug unwinds out of a call: the tensors that peers are still reading would
/// be freed on the way.
struct NoUnwind;

impl Drop for NoUnwind {
    fn drop(&mut self) {
        eprintln!("unisono: a bug in a call whose memory other ranks are using; aborting");
        std::process::abort();
    }
}

/// The memory of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub input: *mut u8,
    pub output: *mut u8,
    /// The result replaces the input (of an all-gather and a reduce-scatter: in its own block).
    pub in_place: bool,
}

/// What all members of a group know.
pub(crate) struct Shared {
    /// What carries frames between boards of this process and members of others. First: while it
    /// ends, the other processes must not take this one for dead.
    pub _relay: Option<Relay>,
    /// Ranks with data.
    pub ranks: u16,
    pub plans: Plans,
    /// What plans anew, or why nothing can.
    pub replanner: Result<Replanner, String>,
    pub timeout: Duration,
    pub started: Instant,
    pub pool: Pool,
    /// Members on this machine.
    pub near: usize,
    /// Notices when a process on this machine dies.
    pub _watch: Option<Guard>,
    pub failures: Failures,
    /// Cancels the calls that are waited for.
    pub interrupt: Option<Arc<AtomicBool>>,
    pub on_stuck: OnStuck,
    pub boards: Boards,
}

/// What members have to know if some of them are boards.
#[derive(Default)]
pub(crate) struct Boards {
    /// Those of this process. They go back where they came from once all members, and so their
    /// links, are gone.
    pub taken: Vec<Mutex<Taken>>,
    /// Which members they are.
    pub own: Vec<u16>,
    /// Which members of the group are boards, and what they are called.
    pub names: Vec<(u16, String)>,
    /// Calls in flight that all of them have room for.
    pub calls: usize,
    /// Some links carry packets, which have to be looked after between calls.
    pub packets: bool,
    /// Epoch of the group: what a board still hears from an earlier one is not mistaken for this.
    pub epoch: u32,
    /// Grows whenever something happens on a member of this process: a board cannot be asked.
    pub stirs: Arc<AtomicU64>,
    /// Members whose work is not done.
    pub working: AtomicU64,
}

impl Boards {
    pub const fn any(&self) -> bool {
        !self.names.is_empty()
    }

    fn taken(&self, board: usize) -> MutexGuard<'_, Taken> {
        self.taken[board].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// What is said of a call that the group has given up; `text`: the words of a device that has
    /// failed.
    fn error(&self, why: Abort, text: String) -> Error {
        let mut error = Error::from_abort(why, self.timeout, text);
        let named = |member: u16| {
            let mut names = self.boards.names.iter();
            names.find(|(board, _)| *board == member).map(|(_, name)| name.clone())
        };
        match &mut error {
            Error::Deadline { waiting_for, board, .. } => *board = named(*waiting_for),
            // Its own process says more.
            Error::PeerLost(rank) if !self.boards.own.contains(rank) => {
                let gone = "is gone: it has ended, or the process that has it";
                let board = named(*rank).map(|name| format!("{name} {gone}"));
                return board.map_or(error, Error::Board);
            }
            _ => {}
        }
        error
    }
}

/// Who does the work of a member.
#[expect(clippy::large_enum_variant, reason = "nearly all are local, and each is there once")]
enum Body {
    /// An engine here.
    Local(Local),
    /// An engine on a board.
    Remote(Remote),
}

/// One rank of a [`Group`](crate::Group); belongs to one thread at a time.
// On lines of its own: members of a group lie side by side and are used by different threads.
#[repr(align(128))]
pub struct Member {
    rank: u16,
    shared: Arc<Shared>,
    body: Body,
    held: Vec<Held>,
    /// What says when to plan anew, where that can be done.
    gauge: Option<Gauge>,
}

macro_rules! on_body {
    ($self:ident, $body:ident => $call:expr) => {
        match &mut $self.body {
            Body::Local($body) => $call,
            Body::Remote($body) => $call,
        }
    };
}

impl Member {
    pub(crate) fn local(rank: u16, shared: Arc<Shared>, parts: Parts) -> Self {
        let body = Body::Local(Local::new(rank, shared.clone(), parts));
        let gauge = shared.replanner.is_ok().then(Gauge::default);
        Self { rank, shared, body, held: Vec::new(), gauge }
    }

    pub(crate) fn remote(rank: u16, shared: Arc<Shared>, remote: Remote) -> Self {
        Self { rank, shared, body: Body::Remote(remote), held: Vec::new(), gauge: None }
    }

    /// The GPU that this rank is on; `None` for the CPU and for boards.
    #[must_use]
    pub const fn device(&self) -> Option<&Opened> {
        match &self.body {
            Body::Local(local) => local.device(),
            Body::Remote(_) => None,
        }
    }

    /// How calls of the group are cut.
    pub(crate) fn cut(&self) -> Cut {
        self.shared.plans.now().cut()
    }

    /// Is this rank on that GPU?
    pub(crate) fn is_on(&self, device: &Opened) -> bool {
        self.device().is_some_and(|own| own.is(device))
    }

    /// Where this member's memory comes from.
    pub(crate) fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    /// This member's rank.
    #[must_use]
    pub const fn rank(&self) -> u16 {
        self.rank
    }

    /// Ranks with data in the group.
    #[must_use]
    pub fn ranks(&self) -> u16 {
        self.shared.ranks
    }

    /// Number of the next call.
    pub(crate) const fn next_op(&self) -> u64 {
        match &self.body {
            Body::Local(local) => local.engine.next_op(),
            Body::Remote(remote) => remote.next_op(),
        }
    }

    /// Comes back to the group for calls from number `next` on.
    pub(crate) fn rejoin(&mut self, next: u64) {
        on_body!(self, body => body.rejoin(next));
        self.shared.boards.working.fetch_add(1, Ordering::Relaxed);
    }

    /// Leaves a core that another member is on.
    pub(crate) fn settle(&mut self) {
        if let Body::Local(Local { seat: Some(seat), .. }) = &mut self.body {
            seat.settle();
        }
    }

    /// Ends what is still in flight and tells the others that no more calls will come for now.
    pub(crate) fn leave(&mut self) {
        self.drain();
        let boards = &self.shared.boards;
        boards.working.fetch_sub(1, Ordering::Relaxed);
        let Body::Local(local) = &mut self.body else { return };
        local.leave();
        // A board may still wait for an answer, or for what was lost on the way to it.
        while boards.packets && boards.working.load(Ordering::Relaxed) > 0 {
            local.progress();
            local.sleep();
        }
    }

    /// The plan that a call gets in this group.
    ///
    /// # Errors
    /// [`Error::NoPlan`].
    pub fn plan(&self, call: &Call) -> Result<Plan, Error> {
        self.shared.plans.now().plan_of(call)
    }

    /// Begins a call.
    ///
    /// # Safety
    /// `memory` must be valid for the call's lengths on this rank, and used by nobody else, until
    /// the call is over (`finish` has returned a result, or this member has been dropped).
    pub(crate) unsafe fn begin(&mut self, call: &Call, memory: Memory) -> Result<u64, Error> {
        if !self.make_room() {
            return Err(Error::Busy(self.calls_max()));
        }
        // SAFETY: the caller's promise.
        on_body!(self, body => unsafe { body.begin(call, memory) })
    }

    /// Runs a call to its end.
    ///
    /// # Safety
    /// As for [`Member::begin`].
    pub(crate) unsafe fn run(&mut self, call: &Call, memory: Memory) -> Result<(), Error> {
        if !self.make_room() {
            return Err(Error::Busy(self.calls_max()));
        }
        let watch = self.watch(call);
        let guard = NoUnwind;
        let result = match &mut self.body {
            // SAFETY: the caller's promise.
            Body::Local(local) => unsafe { local.run(call, memory) },
            Body::Remote(remote) => {
                // SAFETY: the caller's promise.
                unsafe { remote.begin(call, memory) }.and_then(|op_id| remote.finish(op_id))
            }
        };
        std::mem::forget(guard);
        self.seen(watch.filter(|_| result.is_ok()));
        result
    }

    /// Waits for a call.
    pub(crate) fn finish(&mut self, op_id: u64) -> Result<(), Error> {
        on_body!(self, body => body.finish(op_id))
    }

    /// Does what can be done now; the call's result if it is over.
    pub(crate) fn poll(&mut self, op_id: u64) -> Option<Result<(), Error>> {
        on_body!(self, body => body.poll(op_id))
    }

    /// Does what can be done now.
    pub(crate) fn progress(&mut self) {
        on_body!(self, body => body.progress());
    }

    /// Has the call's result come?
    pub(crate) fn is_over(&self, op_id: u64) -> bool {
        match &self.body {
            Body::Local(local) => local.engine.is_over(op_id),
            Body::Remote(remote) => remote.is_over(op_id),
        }
    }

    /// Counts a call that was refused before it began, as the other ranks count it, and lets them
    /// know; passes the error on.
    pub(crate) fn counted<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        on_body!(self, body => body.counted(result))
    }

    /// Can one more call begin now?
    pub(crate) fn has_channel(&self) -> bool {
        match &self.body {
            Body::Local(local) => local.engine.has_channel(),
            Body::Remote(remote) => remote.has_channel(),
        }
    }

    /// Calls that may be in flight.
    fn calls_max(&self) -> usize {
        match &self.body {
            Body::Local(local) => local.engine.channels(),
            Body::Remote(remote) => remote.calls_max(),
        }
    }

    /// Sleeps until something may have happened.
    pub(crate) fn rest(&self) {
        match &self.body {
            Body::Local(local) => local.sleep(),
            Body::Remote(_) => Remote::rest(),
        }
    }

    /// Keeps a tensor for a call in flight.
    pub(crate) fn hold(&mut self, held: Held) {
        self.held.push(held);
    }

    /// Does this member keep a tensor for this claim?
    pub(crate) fn holds(&self, op_id: u64, claim: &Weak<()>) -> bool {
        self.held.iter().any(|h| h.op_id == op_id && h.claim.ptr_eq(claim))
    }

    /// Takes a call's tensor out again; only once the call is over.
    pub(crate) fn unhold(&mut self, op_id: u64) -> Option<Box<dyn std::any::Any + Send>> {
        let at = self.held.iter().position(|h| h.op_id == op_id)?;
        Some(self.held.swap_remove(at).tensor)
    }

    /// Is there a channel for one more call? The call that has it may be one that nobody can ask
    /// for any more: then that one is waited for here.
    fn make_room(&mut self) -> bool {
        if self.has_channel() {
            return true;
        }
        let oldest = self.next_op() - self.calls_max() as u64;
        let dropped = |h: &Held| h.op_id == oldest && h.claim.strong_count() == 0;
        let Some(at) = self.held.iter().position(dropped) else { return false };
        // Its caller has dropped the claim, and with it the result.
        let _ = self.finish(oldest);
        self.held.swap_remove(at);
        true
    }

    /// Gives up every call that nobody has waited for.
    fn drain(&mut self) {
        while let Some(held) = self.held.pop() {
            on_body!(self, body => body.cancel(held.op_id));
            // Whatever becomes of the call, its memory must not go before it is over.
            let _ = self.finish(held.op_id);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.drain();
    }
}
