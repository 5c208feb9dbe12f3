//! A step of a job: what is done in one go, by at most three batches one after the other.
//!
//! ```text
//! host bytes -> slot              at once
//! In:   device memory -> slot     one batch (also copies from buffer to buffer)
//! Run:  the kernel                the next
//! Out:  slot -> device memory     the next
//! slot -> host bytes              when all is complete
//! ```
//!
//! What a step does not need is left out: most have only the kernel.

use crate::backend::Span;
use crate::kernel::{DESTS_MAX, Params, SOURCES_MAX};
use heapless::Vec as Short;
use std::sync::Arc;
use unisono_driver::{HostMemory, HostPtr};

/// Where a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    In,
    Run,
    Out,
    /// The job has failed, and batches may still use the step's memory.
    Failed,
}

/// A place in one of the buffers that a step holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    /// Which of [`Step::held`].
    pub held: usize,
    /// Bytes from the buffer's start.
    pub offset: u64,
}

/// A copy from buffer to buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub from: Spot,
    pub to: Spot,
    pub bytes: usize,
}

/// A copy by the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostMove {
    pub from: HostPtr,
    pub to: HostPtr,
    pub bytes: usize,
}

impl HostMove {
    /// Does it.
    ///
    /// # Safety
    /// Both spans must be valid and apart.
    pub unsafe fn run(&self) {
        let (from, to) = (self.from.as_ptr(), self.to.as_ptr());
        // SAFETY: the caller's promise.
        unsafe { from.copy_to_nonoverlapping(to, self.bytes) };
    }
}

/// An argument of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arg {
    pub spot: Spot,
    pub bytes: u64,
}

/// A step. It is used again and again, so that its lists keep their room.
pub(super) struct Step<B> {
    /// Index of the job; `None` while it is free.
    pub job: Option<usize>,
    pub phase: Phase,
    /// Moves of this phase that are recorded.
    pub recorded: usize,
    /// The last batch that has something of it.
    pub batch: u64,
    /// Index of the slot that it uses.
    pub slot: Option<usize>,
    /// Buffers, kept alive until it is done.
    pub held: Vec<Arc<B>>,
    pub ins: Vec<Move>,
    pub args: Vec<Arg>,
    pub outs: Vec<Move>,
    pub after: Vec<HostMove>,
    pub params: Params,
    pub groups: [u32; 2],
}

impl<B> Step<B> {
    pub fn new() -> Self {
        let spans = SOURCES_MAX + DESTS_MAX;
        Self {
            job: None,
            phase: Phase::In,
            recorded: 0,
            batch: 0,
            slot: None,
            held: Vec::with_capacity(spans + 1),
            ins: Vec::with_capacity(spans),
            args: Vec::with_capacity(spans),
            outs: Vec::with_capacity(spans),
            after: Vec::with_capacity(spans),
            params: Params::new(0, 1),
            groups: [0; 2],
        }
    }

    /// Forgets all that it was about.
    pub fn clear(&mut self) {
        self.job = None;
        (self.recorded, self.batch, self.slot) = (0, 0, None);
        self.held.clear();
        self.ins.clear();
        self.args.clear();
        self.outs.clear();
        self.after.clear();
    }

    /// Keeps a buffer alive until the step is done.
    pub fn hold(&mut self, buffer: Arc<B>) -> usize {
        match self.held.iter().position(|held| Arc::ptr_eq(held, &buffer)) {
            Some(at) => at,
            None => {
                self.held.push(buffer);
                self.held.len() - 1
            }
        }
    }

    /// The phase after this one, if there is one; `None` starts.
    pub fn after(&self, phase: Option<Phase>) -> Option<Phase> {
        let (ins, run, outs) = (!self.ins.is_empty(), !self.args.is_empty(), !self.outs.is_empty());
        match phase {
            None if ins => Some(Phase::In),
            None | Some(Phase::In) if run => Some(Phase::Run),
            None | Some(Phase::In | Phase::Run) if outs => Some(Phase::Out),
            _ => None,
        }
    }

    /// The copies of the present phase.
    pub fn moves(&self) -> &[Move] {
        match self.phase {
            Phase::In => &self.ins,
            Phase::Out => &self.outs,
            Phase::Run | Phase::Failed => &[],
        }
    }

    /// A span of a buffer that it holds.
    pub fn span(&self, spot: Spot, bytes: u64) -> Span<'_, B> {
        Span { buffer: &self.held[spot.held], offset: spot.offset, bytes }
    }

    /// The kernel's arguments.
    pub fn spans(&self) -> Short<Span<'_, B>, { SOURCES_MAX + DESTS_MAX }> {
        self.args.iter().map(|arg| self.span(arg.spot, arg.bytes)).collect()
    }
}
