//! Firmware images: ELF files with a build id and the strings of their log.

use crate::error::Problem;
use crate::machine::Machine;
use defmt_decoder::Table;
use object::read::elf::{ElfFile, FileHeader};
use object::{Endianness, FileKind, Object};
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
    /// Reads an image and checks that it is one for this machine.
    ///
    /// # Errors
    /// [`Problem::Image`].
    pub fn read(machine: &Machine, path: &Path) -> Result<Self, Problem> {
        let wrong = |why: String| Problem::Image { path: path.to_owned(), why };
        let bytes = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
        let (elf, id) = head(&bytes).map_err(|e| wrong(format!("not an ELF file ({e})")))?;
        if elf != machine.elf {
            return Err(wrong(format!("built for ELF machine {elf}, not {}", machine.elf)));
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

/// Machine number and build id of an ELF file of either class; no id if it has none.
fn head(bytes: &[u8]) -> object::Result<(u16, Vec<u8>)> {
    fn of<E: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> object::Result<(u16, Vec<u8>)> {
        let file = ElfFile::<E>::parse(bytes)?;
        let elf = file.elf_header().e_machine(file.endian()).0;
        Ok((elf, file.build_id()?.unwrap_or_default().to_vec()))
    }
    match FileKind::parse(bytes)? {
        FileKind::Elf32 => of::<object::elf::FileHeader32<Endianness>>(bytes),
        _ => of::<object::elf::FileHeader64<Endianness>>(bytes),
    }
}
