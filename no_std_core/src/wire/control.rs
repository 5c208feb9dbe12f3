//! Set-up of a group: each pair of members exchanges a [`Hello`] before the first frame.

use super::envelope::{self, DecodeError, EncodeError, PREFIX, TRAILER};
use crate::dtype::DType;
use crate::route::Rank;
use serde::{Deserialize, Serialize};

const MAGIC: u8 = 0xa8;

/// Most bytes that a control message takes.
pub const CONTROL_MAX: usize = 44;

/// What a member can do, as far as its peers and the planner need to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Capabilities {
    /// Bit `i` is set if the member reduces `DType::ALL[i]`.
    pub dtypes: u16,
    /// Most sources that its device folds in one pass, at least 2 where it reduces.
    pub sources: u8,
    /// Chunks that it can have in flight.
    pub slots: u16,
    /// Bytes of a slot: the largest chunk it takes.
    pub slot_bytes: u32,
}

impl Capabilities {
    /// Does the member reduce this type?
    #[must_use]
    pub const fn reduces(&self, dtype: DType) -> bool {
        self.dtypes >> (dtype as u8) & 1 == 1
    }
}

/// A member's first message to each peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Hello {
    /// Version of the collective protocol above the wire format; see [`Hello::PROTOCOL`].
    pub version: u16,
    /// Epoch of the group that the sender wants to enter.
    pub epoch: u32,
    /// The sender's rank; at least `ranks` for an aggregator.
    pub rank: Rank,
    /// Ranks that hold data.
    pub ranks: u16,
    /// Hash of what the planner chooses from; ranks that would choose differently never start.
    pub plan: u64,
    /// What the sender can do.
    pub capabilities: Capabilities,
}

impl Hello {
    /// The protocol version of this build.
    pub const PROTOCOL: u16 = 1;

    /// Can the sender of `self` and the sender of `other` be in one group?
    ///
    /// # Errors
    /// The first thing on which they differ.
    pub fn check(&self, other: &Self) -> Result<(), Reason> {
        if self.version != other.version {
            Err(Reason::Version)
        } else if self.epoch != other.epoch {
            Err(Reason::Epoch)
        } else if self.ranks != other.ranks {
            Err(Reason::Ranks)
        } else if self.rank == other.rank {
            Err(Reason::SameRank)
        } else if self.plan != other.plan {
            Err(Reason::Plan)
        } else {
            Ok(())
        }
    }
}

/// Why a member does not enter a group with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Reason {
    /// Another version of the collective protocol.
    #[error("protocol versions differ")]
    Version,
    /// Another epoch.
    #[error("epochs differ")]
    Epoch,
    /// Another number of data ranks.
    #[error("numbers of ranks differ")]
    Ranks,
    /// Both claim the same rank.
    #[error("both members claim the same rank")]
    SameRank,
    /// The planner would choose differently.
    #[error("plans differ")]
    Plan,
}

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Control {
    /// The sender wants to enter the group.
    Hello(Hello),
    /// The sender does not enter the group with the receiver.
    Refuse {
        /// The sender's rank.
        rank: Rank,
        /// The sender's epoch: a receiver that is behind learns the newer one.
        epoch: u32,
        /// Why.
        reason: Reason,
    },
}

/// Writes a control message to the start of `out`; returns its length.
///
/// # Errors
/// [`EncodeError::Room`] if it does not fit; [`CONTROL_MAX`] bytes always suffice.
pub fn encode(message: &Control, out: &mut [u8]) -> Result<usize, EncodeError> {
    let head = envelope::write_head(MAGIC, message, out)?;
    envelope::seal(head, &[], out)
}

/// Decodes one whole control message.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode(message: &[u8]) -> Result<Control, DecodeError> {
    match envelope::open(MAGIC, message)? {
        (control, []) => Ok(control),
        _ => Err(DecodeError::Malformed),
    }
}

/// Length of the whole message, for a reader of a byte stream that has read [`PREFIX`] bytes.
///
/// # Errors
/// [`DecodeError::BadMagic`] or [`DecodeError::Version`]: the stream cannot be read on.
pub fn message_len(prefix: [u8; PREFIX]) -> Result<usize, DecodeError> {
    envelope::head_len(MAGIC, prefix).map(|head| head + TRAILER)
}
