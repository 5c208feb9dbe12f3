//! The frames of a running collective: what one rank's machine says to another's.

use super::envelope::{self, DecodeError, EncodeError, PREFIX, TRAILER};
use crate::dtype::{DType, ReduceOp, Scalar};
use crate::fold::Form;
use crate::layout::Kind;
use crate::route::Rank;
use serde::{Deserialize, Serialize};

const MAGIC: u8 = 0xa7;

/// Most bytes that prefix and header of a frame take, payload and checksum not counted.
pub const HEADER_MAX: usize = 110;
/// Most bytes that a frame takes beside its payload.
pub const OVERHEAD_MAX: usize = HEADER_MAX + TRAILER;

/// Identifies a call; a mismatch between ranks is an error that names both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Fingerprint {
    /// Which collective.
    pub kind: Kind,
    /// Type of the elements.
    pub dtype: DType,
    /// The operator, in a collective that reduces.
    pub op: Option<ReduceOp>,
    /// The root, 0 in a collective without one.
    pub root: Rank,
    /// The call's count in elements.
    pub count: u64,
    /// Hash of everything else that ranks must agree on: schedule, chunk size, shares.
    pub plan: u64,
}

/// On which half of the receiver's route a chunk's value arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Phase {
    /// The value enters a fold: a `Recv` of the receiver's route.
    Contribution,
    /// The value is finished: a `Store` of the receiver's route.
    Result,
}

/// Part of a chunk's value, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Data {
    /// The chunk.
    pub chunk: u64,
    /// What the receiver does with it.
    pub phase: Phase,
    /// What the bytes are.
    pub form: Form,
    /// Weight of a [`Form::Leaf`] under `PreMulSum`; ignored otherwise.
    pub weight: Scalar,
    /// The sender's credit for the receiver, as in [`Body::Credit`], so that it needs no own frame.
    pub limit: u64,
    /// Bytes of payload that follow.
    pub bytes: u32,
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Body {
    /// Part of a chunk's value; the payload follows the header on byte links.
    Data(Data),
    /// "You may send me chunks below `limit`."
    Credit {
        /// First chunk that may not be sent yet.
        limit: u64,
    },
    /// Round `round` of the agreement on the fingerprint.
    Agree {
        /// The round, from 0.
        round: u8,
    },
    /// The sender gave the operation up.
    Abort(Abort),
}

/// Why an operation was given up; every surviving rank reports the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Abort {
    /// Two ranks made calls that do not belong together.
    Mismatch {
        /// One rank.
        a: Rank,
        /// What it called.
        a_print: Fingerprint,
        /// The other rank.
        b: Rank,
        /// What that one called.
        b_print: Fingerprint,
    },
    /// A rank's deadline passed.
    Deadline {
        /// Whose deadline.
        rank: Rank,
        /// Which rank it was waiting for.
        waiting_for: Rank,
        /// The lowest unfinished chunk.
        chunk: u64,
        /// What it was waiting for.
        phase: Phase,
    },
    /// A rank's caller cancelled the call.
    Cancelled {
        /// Which rank.
        rank: Rank,
    },
    /// A rank is no longer there.
    PeerLost {
        /// Which rank.
        rank: Rank,
    },
    /// A rank's device failed.
    DeviceFailed {
        /// Which rank.
        rank: Rank,
    },
    /// A rank sent something that the protocol does not allow.
    Protocol {
        /// Which rank.
        rank: Rank,
    },
    /// A rank's call could not even begin there: wrong lengths, no plan.
    Refused {
        /// Which rank.
        rank: Rank,
    },
}

/// A frame without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Header {
    /// Epoch of the group; frames of another epoch change nothing.
    pub epoch: u32,
    /// Number of the operation within the epoch.
    pub op: u64,
    /// The sender.
    pub from: Rank,
    /// The call that the sender is in.
    pub print: Fingerprint,
    /// What the frame says.
    pub body: Body,
}

impl Header {
    /// Bytes of payload that follow this header.
    #[must_use]
    pub const fn payload_len(&self) -> u32 {
        match &self.body {
            Body::Data(data) => data.bytes,
            Body::Credit { .. } | Body::Agree { .. } | Body::Abort(_) => 0,
        }
    }
}

/// Writes a whole frame (header, payload, checksum) to the start of `out`; returns its length.
///
/// # Errors
/// [`EncodeError::Payload`] if `payload` is not [`Header::payload_len`] bytes long,
/// [`EncodeError::Room`] if the frame does not fit; [`OVERHEAD_MAX`] more bytes than the payload
/// always suffice.
pub fn encode(header: &Header, payload: &[u8], out: &mut [u8]) -> Result<usize, EncodeError> {
    if u32::try_from(payload.len()) != Ok(header.payload_len()) {
        return Err(EncodeError::Payload);
    }
    let head = encode_head(header, out)?;
    envelope::seal(head, payload, out)
}

/// Writes only prefix and header, for a link that sends the payload from where it lies.
///
/// The link continues [`super::crc32c`] of these bytes over the payload with
/// [`super::crc32c_append`] and sends the sum after it, as [`TRAILER`] bytes, little-endian.
///
/// # Errors
/// [`EncodeError::Room`] if they do not fit; [`HEADER_MAX`] bytes always suffice.
pub fn encode_head(header: &Header, out: &mut [u8]) -> Result<usize, EncodeError> {
    envelope::write_head(MAGIC, header, out)
}

/// Decodes one whole frame; returns its header and its payload.
///
/// # Errors
/// See [`DecodeError`]; a frame that is longer than its header says is [`DecodeError::Malformed`].
pub fn decode(frame: &[u8]) -> Result<(Header, &[u8]), DecodeError> {
    let (header, payload): (Header, _) = envelope::open(MAGIC, frame)?;
    let want = usize::try_from(header.payload_len()).map_err(|_| DecodeError::Malformed)?;
    match payload.len() {
        len if len < want => Err(DecodeError::Truncated),
        len if len > want => Err(DecodeError::Malformed),
        _ => Ok((header, payload)),
    }
}

/// Length of prefix and header together, for a reader of a byte stream: it reads [`PREFIX`] bytes,
/// then up to this length, then calls [`decode_head`], then reads payload and checksum.
///
/// # Errors
/// [`DecodeError::BadMagic`] or [`DecodeError::Version`]: the stream cannot be read on.
pub fn head_len(prefix: [u8; PREFIX]) -> Result<usize, DecodeError> {
    envelope::head_len(MAGIC, prefix)
}

/// Decodes prefix and header from the start of `bytes`; returns the header and their length.
///
/// Nothing is checked against the checksum yet. The caller bounds [`Header::payload_len`] by the
/// room it has, and acts on the frame only once the checksum after the payload has matched.
///
/// # Errors
/// See [`DecodeError`]; never [`DecodeError::BadCrc`].
pub fn decode_head(bytes: &[u8]) -> Result<(Header, usize), DecodeError> {
    envelope::read_head(MAGIC, bytes)
}
