//! Links: carry frames between two members.
//!
//! A link has several **channels**, one for each call that may be in flight. Frames of one channel
//! arrive in order; frames of different channels never wait for each other, so a call that a
//! member has not begun yet cannot hold up the ones it has.

use unisono_core::wire::frame::Header;

/// What a link can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCaps {
    /// Payload stays where it is and is read there ([`Arrived::Span`]); otherwise bytes travel and
    /// are received into memory of the receiver ([`Arrived::Stream`]).
    pub spans: bool,
    /// The receiver of a span may write its answer into a window of the sender.
    pub puts: bool,
    /// Payloads up to this many bytes may be copied when they are sent ([`Link::copies`]).
    pub inline_max: usize,
    /// Channels, at least 1.
    pub channels: usize,
}

/// A payload to send.
#[derive(Clone, Copy, Debug)]
pub enum Outgoing<M> {
    /// No payload.
    None,
    /// `bytes` bytes at `mem`; the receiver may write its answer at `window`.
    At {
        /// The bytes.
        mem: M,
        /// How many.
        bytes: usize,
        /// Where the answer may be written.
        window: Option<M>,
    },
    /// The payload already lies in the receiver's window.
    Put,
}

/// A payload that has arrived.
#[derive(Clone, Copy, Debug)]
pub enum Arrived<M> {
    /// No payload.
    None,
    /// It can be read at `mem` between [`Link::enter`] and [`Link::exit`].
    Span {
        /// The bytes.
        mem: M,
        /// Where the sender wants its answer.
        window: Option<M>,
        /// Names the frame until [`Link::release`].
        handle: u32,
    },
    /// The sender has written it into the window that it was offered.
    Put,
    /// Its bytes are still in the link: [`Link::receive`] them.
    Stream,
}

/// A frame at the head of a channel.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<M> {
    /// The frame.
    pub header: Header,
    /// Its payload.
    pub payload: Arrived<M>,
}

/// What can go wrong with a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The other end has closed the link or is gone.
    #[error("the peer has closed the link")]
    Closed,
    /// The other end sent bytes that are no frame.
    #[error("the peer sent bytes that are no frame")]
    Garbage,
    /// The payload lies where the other end cannot read it; nothing was sent.
    #[error("the payload lies where the peer cannot read it")]
    Unreachable,
}

/// One end of a link to one peer.
pub trait Link {
    /// Memory reference, the same as the device's.
    type Mem: Copy;

    /// Fixed properties.
    fn caps(&self) -> LinkCaps;

    /// Does what the link has to do by itself: takes in packets, answers them, sends again what got
    /// lost. The engine calls this once a round; a link that needs nothing of the kind leaves it.
    ///
    /// A peer may need it also when this side's calls are over: a payload whose memory is free
    /// ([`Link::poll_sent`]) may still be on its way, and what has arrived has to be answered. So a
    /// member with such links is polled between its calls, too.
    fn poll(&mut self) {}

    /// Is there room for one more frame on this channel now?
    fn has_room(&mut self, channel: usize) -> bool;

    /// Would a payload of so many bytes, without a window, be copied if it were sent now?
    fn copies(&mut self, channel: usize, bytes: usize) -> bool {
        let _ = channel;
        bytes <= self.caps().inline_max
    }

    /// Sends a frame. Call only after [`Link::has_room`].
    ///
    /// A payload `At` some memory gets exactly one completion by [`Link::poll_sent`]; other frames
    /// get none.
    ///
    /// # Safety
    /// The payload must stay valid and unchanged until its completion, or until
    /// [`Link::withdraw`] has returned true; its window must be valid for writes as long.
    ///
    /// # Errors
    /// If the link is closed; then no completion follows.
    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<Self::Mem>,
        token: u32,
    ) -> Result<(), LinkError>;

    /// Token of the next payload of this channel whose memory is free again. If the peer is gone,
    /// all memory is: whoever waits for nothing but completions has done his part.
    fn poll_sent(&mut self, channel: usize) -> Option<u32>;

    /// The frame at the head of a channel; it stays there until [`Link::take`] or until
    /// [`Link::receive`] has returned true.
    ///
    /// # Errors
    /// If the link is closed and nothing is left to read, or what came is no frame.
    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<Self::Mem>>, LinkError>;

    /// Takes the frame at the head of the channel away. A span stays readable until released.
    fn take(&mut self, channel: usize);

    /// Receives the bytes of the head frame ([`Arrived::Stream`]) into `into`; true once they are
    /// all there and the frame is taken away. `None` throws them away. A frame whose sender has
    /// withdrawn it in the middle goes away without ever giving true.
    ///
    /// # Safety
    /// `into` must be valid for writes of the frame's payload.
    ///
    /// # Errors
    /// If the link breaks before all bytes are there, or they arrive damaged.
    unsafe fn receive(
        &mut self,
        channel: usize,
        into: Option<Self::Mem>,
    ) -> Result<bool, LinkError>;

    /// Locks a span so that its owner cannot take it back; false if it already has.
    fn enter(&mut self, channel: usize, handle: u32) -> bool;

    /// Unlocks a span. `written`: its sender's window, if it has one, holds the answer.
    fn exit(&mut self, channel: usize, handle: u32, written: bool);

    /// Gives a span back for good: the sender's completion.
    fn release(&mut self, channel: usize, handle: u32);

    /// Takes back every payload sent on this channel that is not complete; false while the peer is
    /// still reading one. No completions follow for them. What is complete, because it was copied,
    /// still arrives: it may belong to an earlier call of the channel.
    fn withdraw(&mut self, channel: usize) -> bool;
}
