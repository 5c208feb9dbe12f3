//! What has to be known of an ELF file.

use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, Object, ObjectSection, elf};
use std::fmt;
use unisono_offload_dpu::Image;

/// An ELF file's machine and build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// ELF number of its machine.
    pub machine: u16,
    /// 32 or 64.
    pub bits: u8,
    /// The first bytes of its build id, if it has one.
    pub build: Option<u64>,
    /// The board that it says it is for, in its section for that.
    pub board: Option<String>,
    /// What is in its section for the version of its messages.
    pub(super) abi: Option<Vec<u8>>,
    /// Is it made as programs of Linux are? They name an interpreter, or load their own headers;
    /// an image for a bare machine does neither.
    pub program: bool,
}

impl Elf {
    /// Reads the headers.
    pub(super) fn parse(bytes: &[u8]) -> object::Result<Self> {
        match FileKind::parse(bytes)? {
            FileKind::Elf32 => Self::of::<elf::FileHeader32<Endianness>>(bytes, 32),
            _ => Self::of::<elf::FileHeader64<Endianness>>(bytes, 64),
        }
    }

    fn of<E: FileHeader<Endian = Endianness>>(bytes: &[u8], bits: u8) -> object::Result<Self> {
        let file = ElfFile::<E>::parse(bytes)?;
        let machine = file.elf_header().e_machine(file.endian()).0;
        let build = file.build_id()?.and_then(|id| id.first_chunk());
        let section = |name| file.section_by_name(name).map(|section| section.data()).transpose();
        let board = section(Image::BOARD_SECTION)?;
        let abi = section(Image::ABI_SECTION)?.map(<[u8]>::to_vec);
        let endian = file.endian();
        let program = file.elf_program_headers().iter().any(|part| match part.p_type(endian) {
            elf::PT_INTERP => true,
            elf::PT_LOAD => part.p_offset(endian).into() == 0 && part.p_filesz(endian).into() > 0,
            _ => false,
        });
        Ok(Self {
            machine,
            bits,
            build: build.map(|id| u64::from_be_bytes(*id)),
            board: board.map(|name| String::from_utf8_lossy(name).into_owned()),
            abi,
            program,
        })
    }

    /// What `uname -m` says on a Linux that runs such files; `None` if that is not known here.
    #[must_use]
    pub fn uname(&self) -> Option<&'static str> {
        Some(match (self.machine, self.bits) {
            (m, 64) if m == elf::EM_AARCH64.0 => "aarch64",
            (m, 64) if m == elf::EM_X86_64.0 => "x86_64",
            (m, 64) if m == elf::EM_RISCV.0 => "riscv64",
            _ => return None,
        })
    }
}

impl fmt::Display for Elf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.uname(), self.machine) {
            (Some(name), _) => write!(f, "an ELF file for {name}"),
            (None, m) if m == elf::EM_ARM.0 => write!(f, "an ELF file for arm"),
            (None, machine) => write!(f, "an ELF file of {} bits for machine {machine}", self.bits),
        }
    }
}
