//! What goes into a machine and what comes out of it.

use crate::fold::Form;
use crate::route::Rank;
use crate::wire::frame::{Body, Data};

/// Where bytes are, as far as the core knows. `M` is the driver's own memory reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<M> {
    /// This member's input buffer, at a byte offset.
    Input(u64),
    /// This member's output buffer, at a byte offset.
    Output(u64),
    /// A scratch slot: number `slot`, each [`super::Config::slot_bytes`] long.
    Slot(u32),
    /// Memory of a peer (or of the link) that may be read, or written if it is a window.
    Peer(M),
}

/// What the caller has to do next. Every action but `Control` gets exactly one completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<M> {
    /// Send a frame without payload. No completion.
    Control {
        /// The receiver.
        to: Rank,
        /// What it says.
        body: Body,
    },
    /// Send a chunk's value; complete with [`super::Machine::handle_sent`] once its memory may be
    /// changed again.
    Send {
        /// The receiver.
        to: Rank,
        /// The frame's body.
        data: Data,
        /// Where the value is; `None` if it already lies in the receiver's window.
        payload: Option<Place<M>>,
        /// Where the receiver may write its answer (the result of the same chunk).
        window: Option<Place<M>>,
        /// Comes back in the completion.
        token: u32,
    },
    /// Fold the sources of a lane ([`super::Machine::fold_job`]); complete with
    /// [`super::Machine::handle_done`].
    Fold {
        /// The lane.
        lane: u16,
    },
    /// Copy; complete with [`super::Machine::handle_done`].
    Copy {
        /// The lane.
        lane: u16,
        /// Bytes from here,
        from: Place<M>,
        /// to here,
        to: Place<M>,
        /// this many.
        bytes: u64,
    },
}

/// A payload as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<M> {
    /// The link has received it into the place that [`super::Machine::placement`] named.
    Placed,
    /// The sender has written it into the window that this member had offered.
    Put,
    /// It can be read at `mem` until [`Released`] says otherwise.
    At {
        /// The sender's memory (or the link's).
        mem: M,
        /// Where the sender wants its answer written.
        window: Option<M>,
        /// The link's name for the frame, to be released.
        handle: u32,
    },
}

/// A frame whose memory this member has finished with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The sender.
    pub from: Rank,
    /// The link's name for the frame.
    pub handle: u32,
}

/// What has become of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No call.
    Idle,
    /// Under way.
    Running,
    /// Given up; peers are still being told.
    Failing(crate::wire::frame::Abort),
    /// Given up, everybody has been told.
    Failed(crate::wire::frame::Abort),
    /// All results are in place.
    Done,
}

/// One value that has come in for a chunk and waits for its move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<M> {
    pub from: Rank,
    pub form: Form,
    pub weight: crate::dtype::Scalar,
    pub place: Place<M>,
    pub window: Option<M>,
    pub handle: Option<u32>,
    /// The window has been written: the answer needs no payload.
    pub put: bool,
    /// The memory has been given back.
    pub spent: bool,
}

impl<M> Arrival<M> {
    /// Has it been received into a slot that is not free yet?
    pub const fn takes_slot(&self) -> bool {
        matches!(self.place, Place::Slot(_)) && !self.spent
    }
}
