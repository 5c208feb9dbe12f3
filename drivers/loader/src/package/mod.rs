//! Images with a header.
//!
//! ```text
//! offset  bytes  field           numbers are little-endian
//!      0      8  magic           "unisono\x1a"
//!      8      2  format          of this header: 1
//!     10      2  message ABI     of `unisono_core::wire::board`
//!     12      6  version         major, minor, patch
//!     18      1  kind            1 ELF, 2 BlueField boot stream, 3 raw
//!     19      1  signed          0 or 1
//!     20      4  zero
//!     24     24  board           its name, padded with zeros
//!     48      8  build           first bytes of the ELF's build id (big-endian), or 0
//!     56      8  length          of the payload, which follows the header and ends the file
//!     64     32  SHA-256         of the payload
//!     96      8  key             first bytes of the SHA-256 of the public key; 0 if not signed
//!    104     64  signature       ed25519, over the 104 bytes before; 0 if not signed
//! ```

mod elf;
mod error;
mod head;
mod key;

use head::{Head, SIGNED};
use sha2::{Digest, Sha256};
use std::fmt;
use unisono_core::wire::board::ABI;
use unisono_offload_dpu::Image;
use zerocopy::{FromBytes, IntoBytes};

pub use elf::Elf;
pub use error::PackageError;
pub use key::{Key, KeyId, Secret, Trust, has_private_key};

/// Bytes of a header.
pub const HEADER_BYTES: usize = size_of::<Head>();
/// Most bytes of a payload. Boot streams may carry a whole Linux for a DPU.
pub const PAYLOAD_MAX: u64 = 4 << 30;

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An ELF file.
    Elf = 1,
    /// A boot stream for BlueField's Arm cores.
    BootStream = 2,
    /// Anything else.
    Raw = 3,
}

impl Kind {
    /// How the headers in a boot stream begin.
    ///
    /// Source: `mlx-mkbfb` of <https://github.com/Mellanox/rshim-user-space>.
    const BOOT_STREAM: [u8; 4] = 0x1302_6642_u32.to_le_bytes();

    /// Told from the first bytes.
    fn of(payload: &[u8]) -> Self {
        match payload.first_chunk() {
            Some(&object::elf::ELFMAG) => Self::Elf,
            Some(&Self::BOOT_STREAM) => Self::BootStream,
            _ => Self::Raw,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Elf => "an ELF file",
            Self::BootStream => "a BlueField boot stream",
            Self::Raw => "raw bytes",
        })
    }
}

/// Version of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(pub [u16; 3]);

impl std::str::FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Option<Vec<u16>> = text.split('.').map(|part| part.parse().ok()).collect();
        let parts = parts.and_then(|parts| parts.try_into().ok());
        parts.map(Self).ok_or_else(|| "a version is three numbers, as in 1.0.2".to_owned())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// An image with its header.
///
/// It is in memory as a whole: what is loaded is what was checked, whatever happens to the file.
pub struct Package {
    head: Head,
    kind: Kind,
    board: String,
    elf: Option<Elf>,
    /// The payload is what comes after so many bytes.
    bytes: Vec<u8>,
    start: usize,
}

impl fmt::Debug for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "image for {} ({})", self.board, self.sha256())
    }
}

impl Package {
    /// The board that an image without header says it is for; `None` if it names none.
    ///
    /// # Errors
    /// If it is a damaged ELF file, or what it names is no board.
    pub fn board_in(payload: &[u8]) -> Result<Option<String>, PackageError> {
        named_in(elf_of(Kind::of(payload), payload)?.as_ref())
    }

    /// Packs an image. In names of boards, `_` and `-` are the same.
    ///
    /// # Errors
    /// If it is empty, too large or a damaged ELF file, if the board's name is none, or if the
    /// image itself names another board, or speaks other messages than this host.
    pub fn new(payload: Vec<u8>, board: &str, version: Version) -> Result<Self, PackageError> {
        let kind = Kind::of(&payload);
        let elf = elf_of(kind, &payload)?;
        let length = sized(payload.len() as u64)?;
        let name = head::canonical(board);
        let padded = head::padded(&name).ok_or_else(|| PackageError::Board(board.to_owned()))?;
        if let Some(has) = named_in(elf.as_ref())?.filter(|has| *has != name) {
            return Err(PackageError::OtherBoard { has, wanted: name });
        }
        if let Some(other) = spoken_in(elf.as_ref())?.filter(|abi| *abi != ABI) {
            return Err(PackageError::Abi(other));
        }
        let head = Head {
            magic: head::MAGIC,
            format: head::FORMAT.into(),
            abi: ABI.into(),
            version: version.0.map(Into::into),
            kind: kind as u8,
            signed: 0,
            zero: [0; 4],
            board: padded,
            build: elf.as_ref().and_then(|elf| elf.build).unwrap_or(0).into(),
            length: length.into(),
            sha256: Sha256::digest(&payload).into(),
            key: [0; 8],
            signature: [0; 64],
        };
        Ok(Self { head, kind, board: name, elf, bytes: payload, start: 0 })
    }

    /// Signs it; an earlier signature is replaced.
    pub fn sign(&mut self, secret: &Secret) {
        self.head.signed = 1;
        self.head.key = secret.public().id().0;
        self.head.signature = secret.sign(&self.head.as_bytes()[..SIGNED]);
    }

    /// Reads an image and checks all but the signature, for which see [`Trust::check`].
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, PackageError> {
        if !Self::is_package(&bytes) {
            return Err(PackageError::Magic);
        }
        let short = || PackageError::Short(bytes.len());
        // The format comes first: of another one nothing is known but where it is told.
        match bytes.get(8..10).and_then(|b| b.first_chunk()).map(|b| u16::from_le_bytes(*b)) {
            Some(head::FORMAT) => {}
            Some(other) => return Err(PackageError::Format(other)),
            None => return Err(short()),
        }
        let (head, payload) = Head::read_from_prefix(&bytes).map_err(|_| short())?;
        let (kind, board) = head.check()?;
        if head.abi.get() != ABI {
            return Err(PackageError::Abi(head.abi.get()));
        }
        let (says, has) = (head.length.get(), payload.len() as u64);
        if says != has {
            return Err(PackageError::Length { says, has });
        }
        sized(has)?;
        let sha256: [u8; 32] = Sha256::digest(payload).into();
        if sha256 != head.sha256 {
            return Err(PackageError::Hash { says: hex(&head.sha256), has: hex(&sha256) });
        }
        if kind != Kind::of(payload) {
            return Err(PackageError::Header("its payload is of another kind than it says"));
        }
        let elf = elf_of(kind, payload)?;
        if head.build.get() != elf.as_ref().and_then(|elf| elf.build).unwrap_or(0) {
            return Err(PackageError::Header("its payload has another build id than it says"));
        }
        let board = head::canonical(&board);
        if named_in(elf.as_ref())?.is_some_and(|has| has != board) {
            return Err(PackageError::Header("its payload is for another board than it says"));
        }
        // The payload's own word counts, whatever the header claims.
        if let Some(other) = spoken_in(elf.as_ref())?.filter(|abi| *abi != ABI) {
            return Err(PackageError::Abi(other));
        }
        Ok(Self { head, kind, board, elf, bytes, start: HEADER_BYTES })
    }

    /// Do these bytes begin as a package does? Otherwise they may be an image to be packed.
    #[must_use]
    pub fn is_package(bytes: &[u8]) -> bool {
        bytes.starts_with(&head::MAGIC)
    }

    /// The header. A file has it first, and then the payload.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.head.as_bytes()
    }

    /// Refuses an image for another board.
    ///
    /// # Errors
    /// [`PackageError::OtherBoard`].
    pub fn must_be_for(&self, board: &str) -> Result<(), PackageError> {
        let wanted = head::canonical(board);
        if self.board == wanted {
            return Ok(());
        }
        Err(PackageError::OtherBoard { has: self.board.clone(), wanted })
    }

    /// The board that it is for, with `-` wherever the name may have `_`.
    #[must_use]
    pub fn board(&self) -> &str {
        &self.board
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> Version {
        Version(self.head.version.map(Into::into))
    }

    /// The version of the messages that it speaks.
    #[must_use]
    pub const fn abi(&self) -> u16 {
        self.head.abi.get()
    }

    /// Does the image itself name that version? Otherwise it is that of whoever has packed it.
    #[must_use]
    pub fn names_abi(&self) -> bool {
        self.elf.as_ref().is_some_and(|elf| elf.abi.is_some())
    }

    /// The first bytes of its build id, if it has one.
    #[must_use]
    pub fn build(&self) -> Option<u64> {
        self.elf.as_ref().and_then(|elf| elf.build)
    }

    /// What the payload is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// What its ELF header says, if it is an ELF file.
    #[must_use]
    pub const fn elf(&self) -> Option<&Elf> {
        self.elf.as_ref()
    }

    /// The image itself.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// SHA-256 of the payload, in hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> String {
        hex(&self.head.sha256)
    }

    /// The key of its signature, if it has one.
    #[must_use]
    pub fn signed_by(&self) -> Option<KeyId> {
        (self.head.signed == 1).then_some(KeyId(self.head.key))
    }
}

fn sized(bytes: u64) -> Result<u64, PackageError> {
    if (1..=PAYLOAD_MAX).contains(&bytes) { Ok(bytes) } else { Err(PackageError::Size(bytes)) }
}

fn elf_of(kind: Kind, payload: &[u8]) -> Result<Option<Elf>, PackageError> {
    let elf = (kind == Kind::Elf).then(|| Elf::parse(payload)).transpose();
    elf.map_err(|error| PackageError::Elf(error.to_string()))
}

/// The board that an image itself names.
fn named_in(elf: Option<&Elf>) -> Result<Option<String>, PackageError> {
    let Some(name) = elf.and_then(|elf| elf.board.as_deref()) else { return Ok(None) };
    let canonical = head::canonical(name);
    match head::padded(&canonical) {
        Some(_) => Ok(Some(canonical)),
        None => Err(PackageError::Section(name.to_owned())),
    }
}

/// The version of the messages that an image itself names.
fn spoken_in(elf: Option<&Elf>) -> Result<Option<u16>, PackageError> {
    let section = elf.and_then(|elf| elf.abi.as_deref());
    section.map(Image::abi).transpose().map_err(PackageError::AbiSection)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
