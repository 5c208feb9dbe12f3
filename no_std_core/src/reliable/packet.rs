//! The packets of a reliable channel: fixed fields, little-endian, at fixed places.
//!
//! ```text
//! offset  bytes  what
//! 0       1      magic 0xA9
//! 1       1      version of the format
//! 2       1      flags: 1 carries a fragment, 2 the fragment ends a message, 4 asks for an answer,
//!                8 `echo` is valid, 16 comes from the end with the higher rank
//! 3       1      credit: fragments at and after `ack` that the sender of the packet takes
//! 4       4      session
//! 8       4      seq: number of the fragment, 0 without one
//! 12      4      ack: all fragments below it have arrived
//! 16      4      stamp: the sender's clock, in units of 1.024 microseconds
//! 20      4      echo: stamp of the packet that this one answers
//! 24      8      sack: bit i is set if fragment ack + 1 + i has arrived
//! 32      n      bytes of the fragment
//! 32 + n  4      CRC32C of everything before it
//! ```

use super::Side;
use crate::bytes::{copy, split_last};
use crate::wire::{DecodeError, EncodeError, VERSION, crc32c};

const MAGIC: u8 = 0xa9;
const HEADER: usize = 32;
const CRC: usize = 4;
/// Bytes of a packet beside the fragment that it carries.
pub const OVERHEAD: usize = HEADER + CRC;

const DATA: u8 = 1;
const LAST: u8 = 2;
const PING: u8 = 4;
const ECHO: u8 = 8;
const HIGH: u8 = 16;

/// Part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Its number; fragments of a session are numbered in a row, modulo 2^32.
    pub seq: u32,
    /// Is it the last one of its message?
    pub last: bool,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A packet, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The session that it belongs to.
    pub session: u32,
    /// The end that it comes from.
    pub side: Side,
    /// Fragments that the sender can take, counted from `ack`.
    pub credit: u8,
    /// All fragments below this one have arrived at the sender.
    pub ack: u32,
    /// Bit `i` is set if fragment `ack + 1 + i` has arrived.
    pub sack: u64,
    /// The sender's clock, see [`stamp`].
    pub stamp: u32,
    /// Stamp of the oldest packet that this one answers.
    pub echo: Option<u32>,
    /// Does the sender ask for an answer?
    pub ping: bool,
    /// What it carries.
    pub data: Option<Fragment<'a>>,
}

/// A clock reading as packets carry it: units of 1.024 microseconds, which wrap after 73 minutes.
#[must_use]
pub const fn stamp(now: crate::time::Instant) -> u32 {
    (now.as_nanos() >> 10) as u32
}

/// Writes a packet to the start of `out`; returns its length.
///
/// # Errors
/// [`EncodeError::Room`] if `out` is shorter than [`OVERHEAD`] and the fragment together.
pub fn encode(packet: &Packet<'_>, out: &mut [u8]) -> Result<usize, EncodeError> {
    let (seq, last, bytes) = packet.data.map_or((0, false, &[][..]), |f| (f.seq, f.last, f.bytes));
    let flag = |on: bool, bit: u8| if on { bit } else { 0 };
    let flags = flag(packet.data.is_some(), DATA)
        | flag(last, LAST)
        | flag(packet.ping, PING)
        | flag(packet.echo.is_some(), ECHO)
        | flag(packet.side == Side::High, HIGH);

    let (header, rest) = out.split_first_chunk_mut::<HEADER>().ok_or(EncodeError::Room)?;
    let words = [packet.session, seq, packet.ack, packet.stamp, packet.echo.unwrap_or(0)];
    let words = words.into_iter().flat_map(u32::to_le_bytes);
    let first = [MAGIC, VERSION, flags, packet.credit].into_iter();
    let all = first.chain(words).chain(packet.sack.to_le_bytes());
    header.iter_mut().zip(all).for_each(|(place, byte)| *place = byte);
    copy(rest.get_mut(..bytes.len()).ok_or(EncodeError::Room)?, bytes);

    let split = out.split_at_mut_checked(HEADER + bytes.len());
    let (content, rest) = split.ok_or(EncodeError::Room)?;
    let crc = rest.first_chunk_mut::<CRC>().ok_or(EncodeError::Room)?;
    *crc = crc32c(content).to_le_bytes();
    Ok(content.len() + CRC)
}

/// Decodes a whole packet.
///
/// # Errors
/// See [`DecodeError`]. The checksum is looked at before anything but magic and version.
pub fn decode(packet: &[u8]) -> Result<Packet<'_>, DecodeError> {
    let (content, crc) = split_last::<CRC>(packet).ok_or(DecodeError::Truncated)?;
    let (header, bytes) = content.split_first_chunk::<HEADER>().ok_or(DecodeError::Truncated)?;
    let [magic, theirs, flags, credit] = *header.first_chunk().ok_or(DecodeError::Truncated)?;
    if magic != MAGIC {
        return Err(DecodeError::BadMagic);
    }
    if theirs != VERSION {
        return Err(DecodeError::Version { theirs });
    }
    if crc32c(content) != u32::from_le_bytes(*crc) {
        return Err(DecodeError::BadCrc);
    }
    let mut words = [0; 7];
    for (word, place) in words.iter_mut().zip(header[4..].chunks_exact(4)) {
        *word = u32::from_le_bytes(*place.first_chunk().ok_or(DecodeError::Truncated)?);
    }
    let [session, seq, ack, stamp, echo, sack_low, sack_high] = words;
    let has = |bit: u8| flags & bit != 0;
    if flags & !(DATA | LAST | PING | ECHO | HIGH) != 0
        || !has(DATA) && (has(LAST) || !bytes.is_empty())
    {
        return Err(DecodeError::Malformed);
    }
    Ok(Packet {
        session,
        side: if has(HIGH) { Side::High } else { Side::Low },
        credit,
        ack,
        sack: u64::from(sack_high) << 32 | u64::from(sack_low),
        stamp,
        echo: has(ECHO).then_some(echo),
        ping: has(PING),
        data: has(DATA).then_some(Fragment { seq, last: has(LAST), bytes }),
    })
}
