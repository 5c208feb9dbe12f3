//! Images of 64 bits with nothing but what is read of them.

#![allow(dead_code, reason = "each test program uses a part of it")]

const EHDR: usize = 64;
const PHDR: usize = 56;
const SHDR: usize = 64;

/// Numbers of CPUs.
pub const AARCH64: u16 = 183;
pub const RISCV: u16 = 243;

/// An image that names this board and has a build id; a `program` loads its own headers.
pub fn image(machine: u16, board: &str, program: bool) -> Vec<u8> {
    elf(machine, program, &[(".unisono.board", board.as_bytes())])
}

/// The same with this section for the version of its messages.
pub fn image_of_abi(machine: u16, board: &str, program: bool, abi: &[u8]) -> Vec<u8> {
    elf(machine, program, &[(".unisono.board", board.as_bytes()), (".unisono.abi", abi)])
}

/// With these sections, a build id and the names of them all.
fn elf(machine: u16, program: bool, own: &[(&str, &[u8])]) -> Vec<u8> {
    let note = [&[4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0][..], b"GNU\0", &[7; 20]].concat();
    let mut names = vec![0];
    let mut bytes = vec![0; EHDR + PHDR];
    // Offset of the name, type, place and length.
    let mut sections = vec![[0; 4]];
    let last = [(".note.gnu.build-id", &note[..]), (".shstrtab", &[])];
    for (name, content) in own.iter().copied().chain(last) {
        let kind = match name {
            ".note.gnu.build-id" => 7,
            ".shstrtab" => 3,
            _ => 1,
        };
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        sections.push([names.len(), kind, bytes.len(), content.len()]);
        names.extend([name.as_bytes(), b"\0"].concat());
        bytes.extend(content);
    }
    let names_at = bytes.len();
    if let Some([.., len]) = sections.last_mut() {
        *len = names.len();
    }
    bytes.extend(&names);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let sections_at = bytes.len();
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(16, &2_u16.to_le_bytes());
    put(18, &machine.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    put(32, &(EHDR as u64).to_le_bytes());
    put(40, &(sections_at as u64).to_le_bytes());
    let count = sections.len();
    for (i, half) in [EHDR, PHDR, 1, SHDR, count, count - 1].into_iter().enumerate() {
        put(52 + 2 * i, &(half as u16).to_le_bytes());
    }
    // PT_LOAD, from the first byte or from behind the headers.
    let from = if program { 0 } else { EHDR + PHDR };
    let size = names_at - from;
    put(EHDR, &1_u32.to_le_bytes());
    for (i, word) in [from, 0, 0, size, size, 1].into_iter().enumerate() {
        put(EHDR + 8 + 8 * i, &(word as u64).to_le_bytes());
    }
    for [name, kind, at, len] in sections {
        let mut header = [0; SHDR];
        header[..4].copy_from_slice(&(name as u32).to_le_bytes());
        header[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
        header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(len as u64).to_le_bytes());
        header[48] = 4;
        bytes.extend(header);
    }
    bytes
}
