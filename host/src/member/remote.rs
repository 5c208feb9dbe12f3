//! A member whose engine is on a board: this end of it makes the board's calls.

use super::{Memory, Shared};
use crate::call::Call;
use crate::device::dpu::{Taken, memory_per_call};
use crate::error::Error;
use crate::planner::Plan;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};
use unisono_core::wire::board::{self, Role};
use unisono_core::wire::frame::Abort;
use unisono_core::{DType, Kind, Schedule};

/// Between two looks at the board: it is slower than this process.
const NAP: Duration = Duration::from_micros(200);

/// How much later than the ranks here a board may hear that they have given a call up.
const HEARSAY: Duration = Duration::from_millis(500);

/// A part that every board refuses, and tells the ranks that it does: no memory reaches so far.
const IMPOSSIBLE: Role = Role::Rank { input: u32::MAX, output: u32::MAX, in_place: false };

/// A call in flight.
struct Flight {
    op_id: u64,
    /// Where the result goes, of a rank.
    output: Option<Output>,
    /// Why the board has been told to refuse it.
    refused: Option<Error>,
    cancelled: bool,
    result: Option<Result<(), Error>>,
}

/// A result to be fetched from the board's memory.
#[derive(Clone, Copy)]
struct Output {
    to: *mut u8,
    bytes: usize,
    at: u32,
}

// SAFETY: the pointer is used by whoever has the member, while the caller's promise holds.
unsafe impl Send for Flight {}

/// The board's end here.
pub(crate) struct Remote {
    rank: u16,
    shared: Arc<Shared>,
    /// Which one of the group's boards.
    board: usize,
    name: String,
    /// Chunks that it may have in flight, and bytes of its tensor memory.
    window: u16,
    memory: u32,
    next_op: u64,
    /// The call that the board expects next.
    expected: u64,
    calls: usize,
    flights: Vec<Flight>,
    /// When something was last seen to happen in the group, and its number.
    stir: (Instant, u64),
}

impl Remote {
    pub fn new(rank: u16, shared: Arc<Shared>, board: usize) -> Self {
        let (name, window, memory) = {
            let taken = shared.boards.taken(board);
            let identity = taken.identity();
            (taken.home.spec().place.to_string(), identity.window, identity.memory)
        };
        let calls = shared.boards.calls;
        let (stir, flights) = ((Instant::now(), 0), Vec::new());
        let (next_op, expected) = (0, 0);
        Self { rank, shared, board, name, window, memory, next_op, expected, calls, flights, stir }
    }

    fn board(&self) -> MutexGuard<'_, Taken> {
        self.shared.boards.taken(self.board)
    }

    pub const fn next_op(&self) -> u64 {
        self.next_op
    }

    pub fn rejoin(&mut self, next: u64) {
        self.next_op = self.next_op.max(next);
    }

    pub const fn calls_max(&self) -> usize {
        self.calls
    }

    pub fn has_channel(&self) -> bool {
        // A call's channel is its number modulo their count, so the oldest one has the next.
        let oldest = self.flights.iter().map(|flight| flight.op_id).min();
        oldest.is_none_or(|oldest| self.next_op - oldest < self.calls as u64)
    }

    pub fn is_over(&self, op_id: u64) -> bool {
        self.flights.iter().any(|f| f.op_id == op_id && f.result.is_some())
    }

    pub fn rest() {
        std::thread::sleep(NAP);
    }

    /// Begins a call.
    ///
    /// # Safety
    /// As for [`super::Local::begin`].
    pub unsafe fn begin(&mut self, call: &Call, memory: Memory) -> Result<u64, Error> {
        let op_id = self.next_op;
        // Every member comes to the same plan, or to the same error.
        let plan = match self.shared.plans.now().plan_of(call) {
            Ok(plan) => plan,
            Err(error) => {
                self.next_op += 1;
                return Err(error);
            }
        };
        let (output, refused, cancelled) = (None, None, false);
        let mut flight = Flight { op_id, output, refused, cancelled, result: None };
        if self.rank >= plan.schedule.members(self.shared.ranks) {
            // The board has no part in it.
            flight.result = Some(Ok(()));
        } else {
            // SAFETY: the caller's promise.
            let role = match unsafe { self.place(call, memory) } {
                Ok((role, output)) => {
                    flight.output = output;
                    role
                }
                Err(error) => {
                    flight.refused = Some(error);
                    IMPOSSIBLE
                }
            };
            let told = self.tell(&self.boards_call(op_id, role, call, plan));
            flight.result = told.err().map(Err);
        }
        self.next_op += 1;
        self.flights.push(flight);
        self.stirred();
        Ok(op_id)
    }

    /// A call in the words of a board.
    fn boards_call(&self, op_id: u64, role: Role, call: &Call, plan: Plan) -> board::Call {
        board::Call {
            op_id,
            role,
            kind: call.kind,
            ranks: self.shared.ranks,
            count: call.count,
            chunk: plan.chunk,
            root: call.agreed_root(),
            dtype: call.dtype,
            op: call.op,
            weight: call.weight,
            window: plan.window.min(self.window),
            eager: plan.eager,
            slots: 0,
            // The ranks give the call up in time, and the board hears of it.
            timeout_ms: 0,
            schedule: plan.schedule,
        }
    }

    /// Tells the board of a call. Numbers that it is not told of may only be left out while it has
    /// no call.
    fn tell(&mut self, call: &board::Call) -> Result<(), Error> {
        while call.op_id != self.expected && self.flights.iter().any(|f| f.result.is_none()) {
            self.progress();
            Self::rest();
        }
        self.expected = call.op_id + 1;
        Ok(self.board().begin(call)?)
    }

    /// Brings the tensor of a rank into the board's memory.
    ///
    /// # Safety
    /// As for [`Remote::begin`].
    unsafe fn place(
        &mut self,
        call: &Call,
        memory: Memory,
    ) -> Result<(Role, Option<Output>), Error> {
        let ranks = self.shared.ranks;
        if self.rank >= ranks {
            return Ok((Role::Aggregator, None));
        }
        let size = call.dtype.size() as u64;
        let (input, output) = call.lengths(self.rank, ranks);
        let (input, output) = ((input * size) as usize, (output * size) as usize);
        let room = memory_per_call(self.memory, self.calls);
        let base = room * (self.next_op % self.calls as u64) as usize;
        // In place the two overlap, and lie on the board as they do here.
        let start = memory.input.addr().min(memory.output.addr());
        let (from, to) = if memory.in_place {
            (memory.input.addr() - start, memory.output.addr() - start)
        } else {
            (0, input.next_multiple_of(64))
        };
        let needed = (from + input).max(to + output);
        if needed > room {
            let name = &self.name;
            return Err(Error::Board(format!(
                "board {name}: its tensor memory has {room} bytes for each call in flight, and \
                 this one needs {needed}; as an aggregator it takes tensors of any size"
            )));
        }
        if input > 0 {
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(memory.input, input) };
            self.board().write((base + from) as u32, bytes)?;
        }
        let at = |offset: usize| (base + offset) as u32;
        let role = Role::Rank { input: at(from), output: at(to), in_place: memory.in_place };
        Ok((role, Some(Output { to: memory.output, bytes: output, at: at(to) })))
    }

    /// Waits for a call.
    pub fn finish(&mut self, op_id: u64) -> Result<(), Error> {
        loop {
            if let Some(result) = self.poll(op_id) {
                return result;
            }
            Self::rest();
        }
    }

    /// Does what can be done now; the call's result if it is over.
    pub fn poll(&mut self, op_id: u64) -> Option<Result<(), Error>> {
        self.progress();
        let at = self.flights.iter().position(|f| f.op_id == op_id && f.result.is_some());
        if let Some(at) = at {
            return self.flights.remove(at).result;
        }
        if !self.flights.iter().any(|flight| flight.op_id == op_id) {
            return Some(Err(Error::NoSuchCall));
        }
        let interrupt = self.shared.interrupt.as_ref();
        if interrupt.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            self.cancel(op_id);
        }
        // The ranks here give up first; the board, and so this end, only hears of it.
        let timeout = self.shared.timeout;
        let patience = timeout.saturating_add((timeout / 4).min(HEARSAY));
        if self.stir.0.elapsed() > patience {
            self.cancel(op_id);
            let name = &self.name;
            let text = format!("board {name}: nothing has happened in the call for {patience:?}");
            self.end(op_id, Error::Board(text));
        }
        None
    }

    /// Asks the board for every call in flight.
    pub fn progress(&mut self) {
        if self.shared.boards.stirs.load(Ordering::Relaxed) != self.stir.1 {
            self.stirred();
        }
        for at in 0..self.flights.len() {
            let Flight { op_id, output, ref result, .. } = self.flights[at];
            if result.is_some() {
                continue;
            }
            let polled = self.board().poll(op_id);
            let result = match polled {
                Ok(None) => continue,
                Ok(Some(Ok(()))) => self.fetch(output),
                Ok(Some(Err(why))) => Err(self.verdict(op_id, why)),
                Err(error) => Err(error.into()),
            };
            let refused = self.flights[at].refused.take();
            self.flights[at].result = Some(refused.map_or(result, Err));
        }
    }

    /// Brings a result from the board's memory.
    fn fetch(&mut self, output: Option<Output>) -> Result<(), Error> {
        let Some(Output { to, bytes: bytes @ 1.., at }) = output else { return Ok(()) };
        // SAFETY: the promise of `begin` holds until the call is over.
        let bytes = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
        Ok(self.board().read(at, bytes)?)
    }

    fn verdict(&self, op_id: u64, why: Abort) -> Error {
        let text = match why {
            Abort::DeviceFailed { rank } if rank == self.rank => {
                let text = format!("see the log of board {}", self.name);
                self.shared.failures.say(op_id, rank, text)
            }
            Abort::DeviceFailed { rank } => self.shared.failures.hear(op_id, rank),
            _ => String::new(),
        };
        self.shared.error(why, text)
    }

    /// Gives a call up on all members.
    pub fn cancel(&mut self, op_id: u64) {
        let flight = self.flights.iter_mut().find(|flight| flight.op_id == op_id);
        if flight.is_some_and(|flight| !std::mem::replace(&mut flight.cancelled, true)) {
            // If the board cannot be told, it is gone, and the ranks know that.
            let _ = self.board().cancel(op_id);
        }
    }

    /// Counts a call that was refused here, and has the board refuse it, so that the ranks know.
    pub fn counted<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() {
            if !self.has_channel() {
                return Err(Error::Busy(self.calls));
            }
            let call = Call::new(Kind::Barrier, DType::U8, 0);
            let (schedule, print) = (Schedule::Ring, Schedule::Ring.fingerprint());
            let plan = Plan { schedule, print, chunk: 1, window: 1, eager: 0 };
            // If the board cannot be told, it is gone, and the ranks know that.
            let _ = self.tell(&self.boards_call(self.next_op, IMPOSSIBLE, &call, plan));
            self.next_op += 1;
        }
        result
    }

    fn end(&mut self, op_id: u64, error: Error) {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.op_id == op_id) {
            let error = flight.refused.take().unwrap_or(error);
            flight.result.get_or_insert(Err(error));
        }
    }

    fn stirred(&mut self) {
        self.stir = (Instant::now(), self.shared.boards.stirs.load(Ordering::Relaxed));
    }
}
