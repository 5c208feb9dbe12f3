//! The header's bytes.

use super::{Kind, PackageError};
use unisono_core::wire::board::NAME_MAX;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How a package begins. The last byte is no text, so that a copy in text mode damages it.
pub const MAGIC: [u8; 8] = *b"unisono\x1a";
/// Version of the header.
pub const FORMAT: u16 = 1;
/// Bytes that a signature covers: all before it.
pub const SIGNED: usize = size_of::<Head>() - 64;

/// As in the table of the module above.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    pub magic: [u8; 8],
    pub format: U16,
    pub abi: U16,
    pub version: [U16; 3],
    pub kind: u8,
    pub signed: u8,
    pub zero: [u8; 4],
    pub board: [u8; NAME_MAX],
    pub build: U64,
    pub length: U64,
    pub sha256: [u8; 32],
    pub key: [u8; 8],
    pub signature: [u8; 64],
}

/// The one way in which a board's name is written: files of images have `_` in it for `-`.
pub fn canonical(name: &str) -> String {
    name.replace('_', "-")
}

/// A board's name as the header has it; `None` if it cannot be one.
///
/// Names become parts of paths and of commands, so only harmless characters are in them.
pub fn padded(name: &str) -> Option<[u8; NAME_MAX]> {
    let bytes = name.as_bytes();
    let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let fine = bytes.first().is_some_and(plain)
        && bytes.iter().all(|b| plain(b) || matches!(b, b'-' | b'_' | b'.'));
    let mut padded = [0; NAME_MAX];
    padded.get_mut(..bytes.len()).filter(|_| fine)?.copy_from_slice(bytes);
    Some(padded)
}

impl Head {
    /// Kind of payload and name of the board, if all fields that are no numbers make sense.
    pub fn check(&self) -> Result<(Kind, String), PackageError> {
        let damaged = PackageError::Header;
        if self.zero != [0; 4] {
            return Err(damaged("bytes that must be zero are not"));
        }
        let kind = match self.kind {
            1 => Kind::Elf,
            2 => Kind::BootStream,
            3 => Kind::Raw,
            _ => return Err(damaged("no such kind of payload")),
        };
        match self.signed {
            0 if self.key == [0; 8] && self.signature == [0; 64] => {}
            0 => return Err(damaged("it says that it is not signed, and has a signature")),
            1 => {}
            _ => return Err(damaged("it is neither signed nor not signed")),
        }
        let end = self.board.iter().position(|b| *b == 0).unwrap_or(NAME_MAX);
        let name = String::from_utf8_lossy(&self.board[..end]).into_owned();
        // What follows the first zero must be zeros, too.
        if padded(&name) != Some(self.board) {
            return Err(damaged("the name of its board is none"));
        }
        Ok((kind, name))
    }
}
