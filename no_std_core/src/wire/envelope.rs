//! The envelope that frames and control messages share: see the layout in [`crate::wire`].

use super::crc::crc32c;
use crate::bytes::{copy, split_last};
use serde::{Deserialize, Serialize};

/// Version of the format that this build writes, and the only one it reads.
pub const VERSION: u8 = 1;
/// Bytes before the header: magic, version, length.
pub const PREFIX: usize = 3;
/// Bytes after the payload: the checksum.
pub const TRAILER: usize = 4;

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DecodeError {
    /// Fewer bytes than the message says it has.
    #[error("message is cut off")]
    Truncated,
    /// The first byte is not the one that messages of this kind begin with.
    #[error("not a message of this protocol")]
    BadMagic,
    /// The sender speaks another version of the format.
    #[error("peer speaks format version {theirs}, this build {VERSION}")]
    Version {
        /// The version in the message.
        theirs: u8,
    },
    /// The checksum does not match: the message was damaged on its way.
    #[error("checksum does not match")]
    BadCrc,
    /// The checksum matches but the content is not a message: the sender is in error.
    #[error("content is malformed")]
    Malformed,
}

/// Why a message could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum EncodeError {
    /// The output buffer is too short.
    #[error("output buffer is too short")]
    Room,
    /// The payload's length is not the one that the header gives.
    #[error("payload does not have the length that the header gives")]
    Payload,
}

/// Writes prefix and header; returns their length.
pub(super) fn write_head<T: Serialize>(
    magic: u8,
    head: &T,
    out: &mut [u8],
) -> Result<usize, EncodeError> {
    let (prefix, rest) = out.split_first_chunk_mut::<PREFIX>().ok_or(EncodeError::Room)?;
    let body = postcard::to_slice(head, rest).map_err(|_| EncodeError::Room)?;
    let len = u8::try_from(body.len()).map_err(|_| EncodeError::Room)?;
    *prefix = [magic, VERSION, len];
    Ok(PREFIX + usize::from(len))
}

/// Appends payload and checksum to the `head` bytes already in `out`; returns the message's length.
pub(super) fn seal(head: usize, payload: &[u8], out: &mut [u8]) -> Result<usize, EncodeError> {
    let end = head.checked_add(payload.len()).ok_or(EncodeError::Room)?;
    copy(out.get_mut(head..end).ok_or(EncodeError::Room)?, payload);
    let (message, rest) = out.split_at_mut_checked(end).ok_or(EncodeError::Room)?;
    let trailer = rest.first_chunk_mut::<TRAILER>().ok_or(EncodeError::Room)?;
    *trailer = crc32c(message).to_le_bytes();
    Ok(end + TRAILER)
}

/// Length of prefix and header together, from the prefix.
pub(super) fn head_len(magic: u8, prefix: [u8; PREFIX]) -> Result<usize, DecodeError> {
    let [m, theirs, len] = prefix;
    if m != magic {
        Err(DecodeError::BadMagic)
    } else if theirs != VERSION {
        Err(DecodeError::Version { theirs })
    } else {
        Ok(PREFIX + usize::from(len))
    }
}

/// Decodes prefix and header from the start of `bytes`, without any checksum.
pub(super) fn read_head<'a, T: Deserialize<'a>>(
    magic: u8,
    bytes: &'a [u8],
) -> Result<(T, usize), DecodeError> {
    let prefix = bytes.first_chunk::<PREFIX>().ok_or(DecodeError::Truncated)?;
    let end = head_len(magic, *prefix)?;
    let body = bytes.get(PREFIX..end).ok_or(DecodeError::Truncated)?;
    match postcard::take_from_bytes(body) {
        Ok((head, [])) => Ok((head, end)),
        _ => Err(DecodeError::Malformed),
    }
}

/// Checks a whole message's checksum, then decodes its header; returns header and payload.
pub(super) fn open<'a, T: Deserialize<'a>>(
    magic: u8,
    message: &'a [u8],
) -> Result<(T, &'a [u8]), DecodeError> {
    let prefix = message.first_chunk::<PREFIX>().ok_or(DecodeError::Truncated)?;
    let end = head_len(magic, *prefix)?;
    let (content, crc) = split_last::<TRAILER>(message).ok_or(DecodeError::Truncated)?;
    let payload = content.get(end..).ok_or(DecodeError::Truncated)?;
    if crc32c(content) != u32::from_le_bytes(*crc) {
        return Err(DecodeError::BadCrc);
    }
    let (head, _) = read_head(magic, content)?;
    Ok((head, payload))
}
