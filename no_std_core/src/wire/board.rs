//! What a host and a board say to each other: a board is a SmartNIC or DPU core that runs firmware
//! with an engine, and the host commands it.
//!
//! The host greets ([`ToBoard::Greet`]) and the board says which version it is
//! ([`FromBoard::Hello`]); these two stay as they are in every version. If the versions agree, the
//! host asks what the board can do ([`Identity`]), lets it join a group, and makes calls. What the
//! board has to say about a call comes when the call is over.
//!
//! Messages have the envelope of [`crate::wire`] with the magic 0xA9; some are followed by bytes
//! ("content"). On byte streams each is wrapped in COBS ([`super::cobs`]).

use super::envelope::{self, DecodeError, EncodeError, PREFIX, TRAILER};
use super::frame::Abort;
use crate::dtype::{DType, ReduceOp, Scalar};
use crate::layout::{Kind, Layout};
use crate::machine::Config;
use crate::route::Rank;
use crate::schedule::Schedule;
use crate::time::Instant;
use core::net::SocketAddrV4;
use core::time::Duration;
use heapless::String;
use serde::{Deserialize, Serialize};

const MAGIC: u8 = 0xa9;

/// Version of these messages, the first two excepted.
pub const ABI: u16 = 1;
/// Most bytes that a message takes beside its content.
pub const MESSAGE_MAX: usize = PREFIX + u8::MAX as usize + TRAILER;
/// Most bytes of content after a message.
pub const CONTENT_MAX: usize = 256;
/// Most bytes of a board's name.
pub const NAME_MAX: usize = 24;

/// What the host says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "a message is read, obeyed and forgotten")]
pub enum ToBoard {
    /// "Who is there?" Ends what an earlier host has begun.
    Greet {
        /// Comes back in the answer, so that older bytes on the line are told from it.
        session: u32,
        /// The host's [`ABI`].
        abi: u16,
    },
    /// Asks for the board's [`Identity`].
    Describe,
    /// Makes the board a member of a group; it leaves the one that it is in.
    Join(Join),
    /// Begins a call.
    Call(Call),
    /// Gives a call up on all members.
    Cancel {
        /// Which one.
        op_id: u64,
    },
    /// Asks for [`FromBoard::Status`].
    Status,
    /// Leaves the group: calls are given up, links closed.
    Leave,
    /// Writes the content that follows into the board's tensor memory.
    Write {
        /// Byte offset.
        at: u32,
    },
    /// Asks for a part of the board's tensor memory.
    Read {
        /// Byte offset.
        at: u32,
        /// Bytes, at most [`CONTENT_MAX`].
        bytes: u16,
    },
    /// Where a member of the next group is reached over UDP. Has no answer: a board that lacks a
    /// member's address, or cannot use it, refuses to join.
    Peer {
        /// The member's rank.
        rank: Rank,
        /// Its address, as the board has to use it.
        at: SocketAddrV4,
    },
}

/// What the board says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromBoard {
    /// Answers [`ToBoard::Greet`].
    Hello {
        /// From the greeting.
        session: u32,
        /// The board's [`ABI`].
        abi: u16,
        /// Names the image: the first bytes of its build id.
        build: u64,
    },
    /// Answers [`ToBoard::Describe`].
    Identity(Identity),
    /// Answers [`ToBoard::Join`] and [`ToBoard::Leave`]; the member's rank, if it is one.
    Member(Option<Rank>),
    /// The last request cannot be done; the board's log says more.
    Refused {
        /// The call, if it was one.
        op_id: Option<u64>,
        /// Why.
        why: Refusal,
    },
    /// A call is over.
    Done {
        /// Which one.
        op_id: u64,
        /// Its result.
        result: Result<(), Abort>,
    },
    /// Answers [`ToBoard::Status`].
    Status(Status),
    /// A part of the board's tensor memory: the content that follows.
    Content {
        /// Byte offset.
        at: u32,
    },
    /// Answers [`ToBoard::Write`].
    Written {
        /// The byte offset after what was written.
        upto: u32,
    },
    /// Log bytes (defmt) follow, on lines that have no way of their own for them.
    Log,
}

/// What a board is and can do; by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Name of the kind of board.
    pub name: String<NAME_MAX>,
    /// Bit `i` is set if it reduces `DType::ALL[i]`.
    pub dtypes: u16,
    /// Bit `i` is set if it has `ReduceOp::ALL[i]`.
    pub ops: u16,
    /// Does it compute floating-point types in hardware?
    pub fpu: bool,
    /// Calls that may be in flight.
    pub calls: u8,
    /// Chunks that a call may have in flight.
    pub window: u16,
    /// Most members of its group.
    pub members: u16,
    /// Most moves of a route.
    pub moves: u16,
    /// Bytes of scratch slots for each call in flight.
    pub scratch: u32,
    /// Bytes of the largest chunk that its links carry.
    pub payload: u32,
    /// Bytes of tensor memory for the role of a rank; 0 if it can only aggregate.
    pub memory: u32,
    /// Most sources of one fold.
    pub sources: u16,
    /// f32 elements that it adds in a millisecond, measured at its start.
    pub rate: u32,
    /// Bytes that a plain copy of its moves in a millisecond.
    pub copies: u32,
}

/// A group to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Join {
    /// Epoch of the group.
    pub epoch: u32,
    /// The board's rank in it.
    pub rank: Rank,
    /// Members of the group, aggregators included.
    pub members: u16,
    /// Number of the group's next call.
    pub next_op: u64,
}

/// The part that the board plays in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Role {
    /// It folds what others have and has no data of its own.
    Aggregator,
    /// It has a tensor, in its tensor memory.
    Rank {
        /// Byte offset of the input.
        input: u32,
        /// Byte offset of the output.
        output: u32,
        /// As in [`Config`]: each chunk's input and output are at the same place.
        in_place: bool,
    },
}

/// A call: what the board does not know itself of a [`Config`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Number of the call.
    pub op_id: u64,
    /// Aggregator or rank.
    pub role: Role,
    /// Who does what.
    pub schedule: Schedule,
    /// Which collective.
    pub kind: Kind,
    /// Ranks with data.
    pub ranks: u16,
    /// Elements.
    pub count: u64,
    /// Elements of a chunk.
    pub chunk: u64,
    /// Root of reduce and broadcast.
    pub root: Rank,
    /// Element type.
    pub dtype: DType,
    /// Operator.
    pub op: Option<ReduceOp>,
    /// The board's own `PreMulSum` weight.
    pub weight: Scalar,
    /// Chunks in flight on the board.
    pub window: u16,
    /// As in [`Config`].
    pub eager: u64,
    /// Scratch slots a chunk; 0 lets the board take the fewest.
    pub slots: u8,
    /// Milliseconds until the board gives the call up; 0 for never.
    pub timeout_ms: u32,
}

impl Call {
    /// How the call is cut into chunks.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        let Self { kind, ranks, count, chunk, root, .. } = *self;
        Layout { kind, ranks, count, chunk, root }
    }

    /// The configuration for `rank`; its engine fills in what device and links allow.
    #[must_use]
    pub fn config(&self, epoch: u32, rank: Rank, now: Instant) -> Config {
        let in_place = matches!(self.role, Role::Rank { in_place: true, .. });
        let timeout = Duration::from_millis(self.timeout_ms.into());
        Config {
            epoch,
            op_id: self.op_id,
            rank,
            schedule_print: self.schedule.fingerprint(),
            schedule: self.schedule.clone(),
            layout: self.layout(),
            dtype: self.dtype,
            op: self.op,
            weight: self.weight,
            window: self.window,
            eager: self.eager,
            slots: self.slots,
            by_bytes: 0,
            puts: 0,
            input_private: false,
            output_private: false,
            in_place,
            sources_max: 0,
            dests_max: 0,
            deadline: (self.timeout_ms > 0).then(|| now.saturating_add(timeout)),
        }
    }
}

/// Why a board does not do what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Refusal {
    /// It has not joined a group.
    #[error("it is not in a group")]
    NotJoined,
    /// It has no link to a member of the group, or its group is too large.
    #[error("it has no link to member {0}")]
    NoLink(Rank),
    /// As many calls are in flight as it has room for.
    #[error("it has no room for one more call")]
    Busy,
    /// The call's number has been used already.
    #[error("the call's number was used before; the next one is {0}")]
    Number(u64),
    /// It does not reduce this type, or not with this operator.
    #[error("it does not reduce this type with this operator")]
    Type,
    /// The call needs more scratch than there is.
    #[error("the call needs {0} bytes of scratch, more than it has")]
    Scratch(u64),
    /// A chunk does not fit its links.
    #[error("a chunk has {0} bytes, more than its links carry")]
    Chunk(u64),
    /// The tensor does not fit its memory.
    #[error("the tensor does not lie in its memory")]
    Memory,
    /// The configuration cannot run.
    #[error("the call cannot run there; its log says why")]
    Config,
    /// What was sent is no message.
    #[error("what it was sent is no message of this version")]
    Message,
}

/// How a board is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Status {
    /// Calls in flight.
    pub calls: u8,
    /// Number of the next call.
    pub next_op: u64,
    /// Milliseconds since its start.
    pub uptime_ms: u64,
    /// Log bytes that were lost because nobody read them.
    pub log_lost: u32,
}

/// Writes a message and its content to the start of `out`; returns their length.
///
/// # Errors
/// [`EncodeError::Room`] if it does not fit; [`MESSAGE_MAX`] more bytes than the content suffice.
pub fn encode<T: Message>(
    message: &T,
    content: &[u8],
    out: &mut [u8],
) -> Result<usize, EncodeError> {
    let head = envelope::write_head(MAGIC, message, out)?;
    envelope::seal(head, content, out)
}

/// Decodes one whole message; returns it and its content.
///
/// # Errors
/// See [`DecodeError`]; content where none belongs is [`DecodeError::Malformed`].
pub fn decode<T: Message>(bytes: &[u8]) -> Result<(T, &[u8]), DecodeError> {
    let (message, content): (T, _) = envelope::open(MAGIC, bytes)?;
    let fits = content.is_empty() || message.has_content();
    if fits { Ok((message, content)) } else { Err(DecodeError::Malformed) }
}

/// [`ToBoard`] or [`FromBoard`].
pub trait Message: Serialize + for<'a> Deserialize<'a> {
    /// May bytes follow?
    fn has_content(&self) -> bool;
}

impl Message for ToBoard {
    fn has_content(&self) -> bool {
        matches!(self, Self::Write { .. })
    }
}

impl Message for FromBoard {
    fn has_content(&self) -> bool {
        matches!(self, Self::Content { .. } | Self::Log)
    }
}
