//! One call in flight.

use unisono_core::machine::{Config, Machine, Place};
use unisono_core::time::Instant;
use unisono_core::wire::frame::Abort;
use unisono_driver::Memory;

/// The memory of one call.
#[derive(Clone, Copy, Debug)]
pub struct Buffers<M> {
    /// Input of the collective.
    pub input: M,
    /// Output of the collective; the same as `input` in place.
    pub output: M,
    /// Scratch: `window * slots` slots of [`Config::slot_bytes`] each.
    pub scratch: M,
}

impl<M: Memory> Buffers<M> {
    /// The memory behind a place.
    pub(crate) fn at(&self, place: Place<M>, slot_bytes: u64) -> M {
        match place {
            Place::Input(at) => self.input.offset(at),
            Place::Output(at) => self.output.offset(at),
            Place::Slot(slot) => self.scratch.offset(u64::from(slot) * slot_bytes),
            Place::Peer(mem) => mem,
        }
    }
}

/// A call to begin. The engine fills in epoch, operation id, rank and what links and device allow.
#[derive(Clone, Debug)]
pub struct Call<M> {
    /// What to do.
    pub config: Config,
    /// On which memory.
    pub buffers: Buffers<M>,
    /// Elements of the input that are final already; `u64::MAX` for all.
    pub source_ready: u64,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The channel is free.
    Free,
    /// The machine runs.
    Running,
    /// The machine has failed; peers are being told, memory is being taken back. Since when is
    /// known from the first look at a clock after that.
    Failing(Option<Instant>),
    /// Over; the caller has not asked yet.
    Over(Result<(), Abort>),
}

/// A channel of the engine and the call on it.
pub(crate) struct Slot<M, const W: usize, const R: usize, const P: usize> {
    pub machine: Machine<M, W, R, P>,
    pub state: State,
    /// The last call on this channel has failed, so frames of it may still come in.
    pub failed: bool,
    pub op_id: u64,
    pub buffers: Option<Buffers<M>>,
    pub slot_bytes: u64,
    /// Jobs that the device has not completed.
    pub jobs: u32,
    /// Peers that have taken back memory which the call needs: bit r is rank r.
    pub refused: u128,
    /// Something has changed since the machine was last asked, or room was lacking then.
    pub stirred: bool,
    /// Where the head frame of each peer is being received.
    pub receiving: [Option<Place<M>>; P],
}

impl<M: Copy, const W: usize, const R: usize, const P: usize> Slot<M, W, R, P> {
    pub const fn new() -> Self {
        Self {
            machine: Machine::new(),
            state: State::Free,
            failed: false,
            op_id: 0,
            buffers: None,
            slot_bytes: 0,
            jobs: 0,
            refused: 0,
            stirred: false,
            receiving: [None; P],
        }
    }
}
