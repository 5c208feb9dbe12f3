//! Why something is no image.

use super::{HEADER_BYTES, KeyId, PAYLOAD_MAX};
use unisono_core::wire::board::{ABI, NAME_MAX};
use unisono_offload_dpu::Image;

/// Why something is no image that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackageError {
    /// It does not begin as an image does.
    #[error("no unisono image: it does not begin with the magic; `unisono flash pack` makes one")]
    Magic,
    /// The header is of another version.
    #[error(
        "its header has format {0}, this program knows format 1: use the program that packed it"
    )]
    Format(u16),
    /// It ends within the header.
    #[error("it ends within the header: {0} of {HEADER_BYTES} bytes are there")]
    Short(usize),
    /// A field of the header makes no sense.
    #[error("its header is damaged: {0}")]
    Header(&'static str),
    /// The payload does not have the length that the header says.
    #[error("its header says {says} bytes of payload, but {has} follow: copy it again")]
    Length {
        /// What the header says.
        says: u64,
        /// What follows it.
        has: u64,
    },
    /// It is too large, or empty.
    #[error("a payload of {0} bytes; 1 to {PAYLOAD_MAX} are possible")]
    Size(u64),
    /// The payload is not what it was.
    #[error("its payload has SHA-256 {has}, its header says {says}: copy it again")]
    Hash {
        /// What the header says.
        says: String,
        /// What the payload has.
        has: String,
    },
    /// It speaks other messages.
    #[error("it speaks message ABI {0}, this host {ABI}: build image and host together")]
    Abi(u16),
    /// That is no name of a board.
    #[error(
        "{0:?} is no name of a board: at most {NAME_MAX} of a-z, 0-9, `-`, `_` and `.`, the \
             first a letter or digit"
    )]
    Board(String),
    /// It is for another board.
    #[error("it is for board {has}, not for {wanted}")]
    OtherBoard {
        /// Whose image it is.
        has: String,
        /// Whose image it should be.
        wanted: String,
    },
    /// The image names a board that cannot be one.
    #[error("its section {section} names {0:?}, which is no board", section = Image::BOARD_SECTION)]
    Section(String),
    /// The image says in no sound way which messages it speaks.
    #[error("{0}")]
    AbiSection(String),
    /// The payload claims to be an ELF file.
    #[error("its payload begins as an ELF file, but is none: {0}")]
    Elf(String),
    /// A signature is demanded.
    #[error("it is not signed, and --trust demands a signature: `unisono flash pack --sign` signs")]
    Unsigned,
    /// It is signed by a stranger.
    #[error("it is signed with key {key}, which is not among the trusted: {trusted}")]
    Stranger {
        /// Whose signature it has.
        key: KeyId,
        /// Whose would do.
        trusted: String,
    },
    /// The signature is not one of this header.
    #[error("its signature with key {0} is wrong: the image was changed after it was signed")]
    Signature(KeyId),
}
