//! What can go wrong on a channel.

/// Why a channel has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Fault {
    /// The peer owes an answer and was silent for [`Config::silence`](super::Config::silence).
    #[error("peer is silent")]
    PeerSilent,
    /// The peer sent what a peer with the same window and packet size never sends.
    #[error("peer breaks the rules of the channel")]
    Protocol,
}

/// Why a message was not taken; nothing of it has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum SendError {
    /// There is no room for it now: try again after packets have come in.
    #[error("no room for the message now")]
    Full,
    /// It is longer than [`Reliable::MESSAGE_MAX`](super::Reliable::MESSAGE_MAX).
    #[error("message is longer than a channel takes")]
    TooLong,
    /// The channel has failed.
    #[error("channel has failed: {0}")]
    Failed(Fault),
}

/// Why there is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum RecvError {
    /// None is whole yet.
    #[error("no message yet")]
    Empty,
    /// The next one is longer than the output buffer; it stays.
    #[error("next message has {len} bytes")]
    Room {
        /// Bytes of the message.
        len: usize,
    },
}
