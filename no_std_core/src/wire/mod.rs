//! What travels: versioned, checksummed messages, the same on byte links and packet links.
//!
//! ```text
//! offset  bytes  what
//! 0       1      magic: 0xA7 frame (module `frame`), 0xA8 control message (module `control`),
//!                0xA9 message between host and board (module `board`)
//! 1       1      version of the format, now 1
//! 2       1      length of the body that follows
//! 3       body   postcard encoding of the header
//! ..      n      payload; only data frames have one, `Data::bytes` says how long
//! ..      4      CRC32C (Castagnoli) of everything before it, little-endian
//! ```
//!
//! A packet link sends such a message as one packet. A byte stream that loses nothing (TCP) sends
//! them back to back: the length byte says how much to read before the header can be decoded. A
//! byte stream that may lose bytes (a serial line) wraps each in COBS (module `cobs`), so that a
//! reader finds the next message again after any damage.
//!
//! Decoding never panics, never allocates and reads only what the lengths allow; a message with
//! any one bit changed or any byte cut off is refused.

pub mod board;
pub mod cobs;
pub mod control;
mod crc;
mod envelope;
pub mod exit;
pub mod frame;

pub use crc::{crc32c, crc32c_append};
pub use envelope::{DecodeError, EncodeError, PREFIX, TRAILER, VERSION};
