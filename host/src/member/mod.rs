//! One rank of a group: makes calls, drives the engine.

pub(crate) mod seat;
mod wait;

use crate::call::Call;
use crate::device::Opened;
use crate::device::any::AnyDevice;
use crate::error::Error;
use crate::failures::Failures;
use crate::memory::Slots;
use crate::pending::Held;
use crate::planner::{Plan, PlanOptions, WINDOW_MAX};
use seat::Seat;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use unisono_core::Layout;
use unisono_core::machine::Config;
use unisono_driver::{Device, HostPtr};
use unisono_link_span::{Bell, SpanLink};
use unisono_runtime::{BeginError, Buffers, Engine};
use wait::Patience;

/// Calls in flight on one member.
pub(crate) const CALLS_MAX: usize = 4;
/// Longest route: a direct schedule over [`MEMBERS_MAX`] ranks.
const ROUTE: usize = 132;
/// Largest group of threads.
pub(crate) const MEMBERS_MAX: usize = 64;

type HostEngine = Engine<AnyDevice, SpanLink<HostPtr>, CALLS_MAX, WINDOW_MAX, ROUTE, MEMBERS_MAX>;

/// Ends the process if a bug unwinds out of a call: the tensors that peers are still reading would
/// be freed on the way.
struct NoUnwind;

impl Drop for NoUnwind {
    fn drop(&mut self) {
        eprintln!("unisono: a bug in a call whose memory other ranks are using; aborting");
        std::process::abort();
    }
}

/// What a prepared call depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Key {
    call: Call,
    in_place: bool,
    /// Peers cannot reach the input, the output.
    private: [bool; 2],
}

/// The last call, ready to be made again: training makes the same ones over and over.
struct Prepared {
    key: Key,
    call: unisono_runtime::Call<HostPtr>,
    /// Bytes of scratch that it needs.
    scratch: usize,
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
    pub options: PlanOptions,
    pub timeout: Duration,
    pub started: Instant,
    /// All open GPUs of the group, each once.
    pub devices: Vec<Opened>,
    pub failures: Failures,
    /// Cancels the calls that are waited for.
    pub interrupt: Option<Arc<AtomicBool>>,
}

/// One rank of a [`Group`](crate::Group); belongs to one thread at a time.
// On lines of its own: members of a group lie side by side and are used by different threads.
#[repr(align(128))]
pub struct Member {
    rank: u16,
    shared: Arc<Shared>,
    /// The GPU that this rank is on.
    device: Option<Opened>,
    bell: Arc<Bell>,
    patience: Patience,
    seat: Option<Seat>,
    engine: Box<HostEngine>,
    // Behind the engine, which waits for its device when it is dropped.
    scratch: [Slots; CALLS_MAX],
    last: Option<Prepared>,
    /// Something has happened since the last look at the clock.
    worked: bool,
    /// The call that has a deadline.
    armed: Option<u64>,
    held: Vec<Held>,
}

impl Member {
    pub(crate) fn new(
        rank: u16,
        shared: Arc<Shared>,
        (device, on): (AnyDevice, Option<Opened>),
        (links, bell): (Vec<Option<SpanLink<HostPtr>>>, Arc<Bell>),
        seat: Option<Seat>,
    ) -> Self {
        let patience = Patience::new(links.len(), on.as_ref().is_some_and(Opened::is_software));
        let links = links.into_iter().collect();
        Self {
            rank,
            shared,
            device: on,
            bell,
            patience,
            seat,
            engine: Box::new(Engine::new(rank, 0, device, links)),
            scratch: [const { Slots::empty() }; CALLS_MAX],
            last: None,
            worked: false,
            armed: None,
            held: Vec::new(),
        }
    }

    /// The GPU that this rank is on; `None` for the CPU.
    #[must_use]
    pub const fn device(&self) -> Option<&Opened> {
        self.device.as_ref()
    }

    /// Is this rank on that GPU?
    pub(crate) fn is_on(&self, device: &Opened) -> bool {
        self.device.as_ref().is_some_and(|own| own.is(device))
    }

    /// All GPUs of the group.
    pub(crate) fn devices(&self) -> &[Opened] {
        &self.shared.devices
    }

    /// This member's rank.
    #[must_use]
    pub const fn rank(&self) -> u16 {
        self.rank
    }

    /// Ranks with data in the group.
    #[must_use]
    pub fn ranks(&self) -> u16 {
        self.shared.options.ranks
    }

    /// Number of the next call.
    pub(crate) const fn next_op(&self) -> u64 {
        self.engine.next_op()
    }

    /// Comes back to the group for calls from number `next` on.
    pub(crate) fn rejoin(&mut self, next: u64) {
        self.engine.skip_to(next);
        self.engine.links().iter().flatten().for_each(SpanLink::rejoin);
    }

    /// Leaves a core that another member is on.
    pub(crate) fn settle(&mut self) {
        if let Some(seat) = &mut self.seat {
            seat.settle();
        }
    }

    /// Ends what is still in flight and tells the others that no more calls will come for now.
    pub(crate) fn leave(&mut self) {
        self.drain();
        self.engine.links().iter().flatten().for_each(SpanLink::leave);
    }

    /// The plan that a call gets in this group.
    ///
    /// # Errors
    /// [`Error::NoPlan`].
    pub fn plan(&self, call: &Call) -> Result<Plan, Error> {
        self.shared.options.plan(call.kind, call.dtype, call.op, call.count)
    }

    /// Begins a call.
    ///
    /// # Safety
    /// `memory` must be valid for the call's lengths on this rank, and used by nobody else, until
    /// the call is over (`finish` has returned a result, or this member has been dropped).
    pub(crate) unsafe fn begin(&mut self, call: &Call, memory: Memory) -> Result<u64, Error> {
        if !self.make_room() {
            return Err(Error::Busy(CALLS_MAX));
        }
        let private = [memory.input, memory.output].map(|at| self.is_private(at));
        let key = Key { call: *call, in_place: memory.in_place, private };
        if self.last.as_ref().is_none_or(|last| last.key != key) {
            let prepared = self.prepare(key);
            self.last = Some(self.counted(prepared)?);
        }
        let Some(Prepared { call, scratch, .. }) = &mut self.last else {
            // It has just been filled.
            return Err(Error::NoPlan { kind: key.call.kind, ranks: 0, why: String::new() });
        };
        let channel = (self.engine.next_op() % CALLS_MAX as u64) as usize;
        // The channel is free, so nobody uses its scratch.
        let (device, peers) = (self.device.as_ref(), &self.shared.devices);
        let slots = match self.scratch[channel].at_least(*scratch, device, peers) {
            Ok(slots) => slots,
            Err(error) => return self.counted(Err(error)),
        };
        let (input, output) = (HostPtr::new(memory.input), HostPtr::new(memory.output));
        call.buffers = Buffers { input, output, scratch: slots };
        // SAFETY: the caller's promise.
        unsafe { self.engine.begin(call) }.map_err(|error| match error {
            BeginError::Busy(most) => Error::Busy(most),
            BeginError::Config(error) => Error::Config(error),
        })
    }

    fn is_private(&self, at: *mut u8) -> bool {
        !self.engine.device().is_shared(HostPtr::new(at))
    }

    /// Everything about a call but its memory.
    fn prepare(&self, key: Key) -> Result<Prepared, Error> {
        let plan = self.plan(&key.call)?;
        let Call { kind, dtype, op, weight, count, root } = key.call;
        // A root that means nothing is no reason to disagree.
        let root = if kind.is_rooted() { root } else { 0 };
        let ranks = self.ranks();
        let [input_private, output_private] = key.private;
        let mut config = Config {
            epoch: 0,
            op_id: 0,
            rank: self.rank,
            schedule: plan.schedule,
            schedule_print: plan.print,
            layout: Layout { kind, ranks, count, chunk: plan.chunk, root },
            dtype,
            op,
            weight,
            window: plan.window,
            eager: u64::from(plan.window),
            slots: 0,
            by_bytes: 0,
            puts: 0,
            in_place: key.in_place,
            input_private,
            output_private,
            sources_max: 0,
            dests_max: 0,
            deadline: None,
        };
        self.engine.fit(&mut config)?;
        // Checked: a slot has at most 2^32 bytes, and there are at most 31 a lane.
        let lanes = config.layout.chunks().min(u64::from(config.window));
        let scratch = (config.slot_bytes() * u64::from(config.slots) * lanes) as usize;
        let nowhere = HostPtr::new(std::ptr::null_mut());
        let buffers = Buffers { input: nowhere, output: nowhere, scratch: nowhere };
        let call = unisono_runtime::Call { config, buffers, source_ready: u64::MAX };
        Ok(Prepared { key, call, scratch })
    }

    /// Runs a call to its end.
    ///
    /// # Safety
    /// As for [`Member::begin`].
    pub(crate) unsafe fn run(&mut self, call: &Call, memory: Memory) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let op_id = unsafe { self.begin(call, memory)? };
        let guard = NoUnwind;
        let result = self.finish(op_id);
        std::mem::forget(guard);
        result
    }

    /// Counts a call that was refused before it began, as the other ranks count it, and lets them
    /// know; passes the error on.
    pub(crate) fn counted<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() && !self.engine.refuse() {
            // Not counted: the caller has to wait for a call and make this one again.
            return Err(Error::Busy(CALLS_MAX));
        }
        result
    }

    /// Can one more call begin now?
    pub(crate) fn has_channel(&self) -> bool {
        self.engine.has_channel()
    }

    /// This member's bell.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
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
        if self.engine.has_channel() {
            return true;
        }
        let oldest = self.engine.next_op() - CALLS_MAX as u64;
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
            self.engine.cancel(held.op_id);
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
