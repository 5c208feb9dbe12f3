//! Firmware images: ELF files with a build id and the strings of their log.

use crate::error::Problem;
use crate::machine::Machine;
use defmt_decoder::Table;
use object::read::elf::{ElfFile, FileHeader};
use object::{Endianness, FileKind, Object, ObjectSection};
use std::path::{Path, PathBuf};
use unisono_core::wire::board::ABI;

/// An image for one kind of machine.
pub struct Image {
    path: PathBuf,
    build: u64,
    /// What is needed to read its log; `None` if it logs nothing.
    table: Option<Table>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "image {} ({:016x})", self.path.display(), self.build)
    }
}

impl Image {
    /// The section that names the board that an image is for; no part of what is loaded.
    pub const BOARD_SECTION: &str = ".unisono.board";
    /// The section with the version of the messages that an image speaks, as two little-endian
    /// bytes; no part of what is loaded.
    pub const ABI_SECTION: &str = ".unisono.abi";

    /// Reads an image and checks that it is one for this machine.
    ///
    /// # Errors
    /// [`Problem::Image`].
    pub fn read(machine: &Machine, path: &Path) -> Result<Self, Problem> {
        Self::open(path, Some(machine))
    }

    /// Checks that these bytes are an image for this machine, as [`Image::read`] does.
    ///
    /// # Errors
    /// Why they are none.
    pub fn check(machine: &Machine, bytes: &[u8]) -> Result<(), String> {
        parse(bytes, Some(machine)).map(drop)
    }

    /// The version of the messages, from the bytes of its section.
    ///
    /// # Errors
    /// If they are none.
    pub fn abi(section: &[u8]) -> Result<u16, String> {
        section.try_into().map(u16::from_le_bytes).map_err(|_| {
            let bytes = section.len();
            format!("its section {} has {bytes} bytes; a message ABI has 2", Self::ABI_SECTION)
        })
    }

    /// The image with this build id, if one of these folders has it.
    #[must_use]
    pub fn find(folders: &[PathBuf], build: u64) -> Option<Self> {
        let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
        let mut images = entries.filter_map(|entry| Self::open(&entry.ok()?.path(), None).ok());
        images.find(|image| image.build == build)
    }

    fn open(path: &Path, machine: Option<&Machine>) -> Result<Self, Problem> {
        let wrong = |why: String| Problem::Image { path: path.to_owned(), why };
        let bytes = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
        let Parsed { build, table, abi } = parse(&bytes, machine).map_err(wrong)?;
        if machine.is_some() && abi.is_none() {
            tracing::info!(
                "{}: it names no message ABI in a section {}; the board is asked for it",
                path.display(),
                Self::ABI_SECTION
            );
        }
        Ok(Self { path: path.to_owned(), build, table })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first bytes of its build id.
    #[must_use]
    pub const fn build(&self) -> u64 {
        self.build
    }

    pub(crate) fn into_table(self) -> Option<Table> {
        self.table
    }
}

/// What is needed of an image that is sound.
struct Parsed {
    build: u64,
    table: Option<Table>,
    /// The version of its messages, if it names it.
    abi: Option<u16>,
}

/// Reads an image; why it is none, or none for this machine.
fn parse(bytes: &[u8], machine: Option<&Machine>) -> Result<Parsed, String> {
    let Head { elf, id, board, abi } = head(bytes).map_err(|e| format!("not an ELF file ({e})"))?;
    let abi = abi.map(|section| Image::abi(&section)).transpose()?;
    if let Some(machine) = machine {
        if machine.elf != elf {
            return Err(format!("built for ELF machine {elf}, not {}", machine.elf));
        }
        let wanted = machine.board();
        match board.map(|board| board.replace('_', "-")) {
            None => {
                return Err(format!("it names no board in a section {}", Image::BOARD_SECTION));
            }
            Some(board) if board != wanted => {
                return Err(format!("it is for board {board}, not {wanted}"));
            }
            Some(_) => {}
        }
        if let Some(theirs) = abi.filter(|abi| *abi != ABI) {
            return Err(Problem::Abi { theirs, ours: ABI }.to_string());
        }
    }
    let build = id.first_chunk().map(|id| u64::from_be_bytes(*id));
    let build = build.ok_or_else(|| "it has no build id".to_owned())?;
    let table = Table::parse(bytes).map_err(|e| format!("its log strings: {e}"))?;
    Ok(Parsed { build, table, abi })
}

/// What an ELF file says of itself.
struct Head {
    /// Number of its machine.
    elf: u16,
    /// Build id; empty if it has none.
    id: Vec<u8>,
    /// The board that it is for.
    board: Option<String>,
    /// The section with the version of its messages.
    abi: Option<Vec<u8>>,
}

/// Of an ELF file of either class.
fn head(bytes: &[u8]) -> object::Result<Head> {
    fn of<E: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> object::Result<Head> {
        let file = ElfFile::<E>::parse(bytes)?;
        let elf = file.elf_header().e_machine(file.endian()).0;
        let section = |name| file.section_by_name(name).map(|section| section.data()).transpose();
        let board = section(Image::BOARD_SECTION)?;
        let board = board.map(|name| String::from_utf8_lossy(name).into_owned());
        let abi = section(Image::ABI_SECTION)?.map(<[u8]>::to_vec);
        Ok(Head { elf, id: file.build_id()?.unwrap_or_default().to_vec(), board, abi })
    }
    match FileKind::parse(bytes)? {
        FileKind::Elf32 => of::<object::elf::FileHeader32<Endianness>>(bytes),
        _ => of::<object::elf::FileHeader64<Endianness>>(bytes),
    }
}
