//! Firmware images: ELF files with a build id and the strings of their log.

use crate::error::Problem;
use crate::machine::Machine;
use defmt_decoder::Table;
use object::read::elf::{ElfFile, FileHeader};
use object::{Endianness, FileKind, Object, ObjectSection};
use std::path::{Path, PathBuf};

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

    /// Reads an image and checks that it is one for this machine.
    ///
    /// # Errors
    /// [`Problem::Image`].
    pub fn read(machine: &Machine, path: &Path) -> Result<Self, Problem> {
        Self::open(path, Some(machine))
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
        let Head { elf, id, board } =
            head(&bytes).map_err(|e| wrong(format!("not an ELF file ({e})")))?;
        if let Some(machine) = machine {
            if machine.elf != elf {
                return Err(wrong(format!("built for ELF machine {elf}, not {}", machine.elf)));
            }
            match board {
                None => {
                    let section = Self::BOARD_SECTION;
                    return Err(wrong(format!("it names no board in a section {section}")));
                }
                Some(board) if board != machine.image => {
                    return Err(wrong(format!("it is for board {board}, not {}", machine.image)));
                }
                Some(_) => {}
            }
        }
        let build = id.first_chunk().map(|id| u64::from_be_bytes(*id));
        let build = build.ok_or_else(|| wrong("it has no build id".to_owned()))?;
        let table = Table::parse(&bytes).map_err(|e| wrong(format!("its log strings: {e}")))?;
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

/// What an ELF file says of itself.
struct Head {
    /// Number of its machine.
    elf: u16,
    /// Build id; empty if it has none.
    id: Vec<u8>,
    /// The board that it is for.
    board: Option<String>,
}

/// Of an ELF file of either class.
fn head(bytes: &[u8]) -> object::Result<Head> {
    fn of<E: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> object::Result<Head> {
        let file = ElfFile::<E>::parse(bytes)?;
        let elf = file.elf_header().e_machine(file.endian()).0;
        let board =
            file.section_by_name(Image::BOARD_SECTION).map(|section| section.data()).transpose()?;
        let board = board.map(|name| String::from_utf8_lossy(name).into_owned());
        Ok(Head { elf, id: file.build_id()?.unwrap_or_default().to_vec(), board })
    }
    match FileKind::parse(bytes)? {
        FileKind::Elf32 => of::<object::elf::FileHeader32<Endianness>>(bytes),
        _ => of::<object::elf::FileHeader64<Endianness>>(bytes),
    }
}
