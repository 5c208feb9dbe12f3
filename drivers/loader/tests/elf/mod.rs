//! Images of 64 bits with nothing but what is read of them.

const EHDR: usize = 64;
const PHDR: usize = 56;
const SHDR: usize = 64;

/// Numbers of CPUs.
pub const AARCH64: u16 = 183;
pub const RISCV: u16 = 243;

/// An image that names this board and has a build id; a `program` loads its own headers.
pub fn image(machine: u16, board: &str, program: bool) -> Vec<u8> {
    let names = b"\0.unisono.board\0.note.gnu.build-id\0.shstrtab\0";
    let note = [&[4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0][..], b"GNU\0", &[7; 20]].concat();
    let board_at = EHDR + PHDR;
    let note_at = (board_at + board.len()).next_multiple_of(4);
    let names_at = note_at + note.len();
    let sections_at = (names_at + names.len()).next_multiple_of(8);
    let mut bytes = vec![0; sections_at];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(16, &2_u16.to_le_bytes());
    put(18, &machine.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    put(32, &(EHDR as u64).to_le_bytes());
    put(40, &(sections_at as u64).to_le_bytes());
    for (i, half) in [EHDR, PHDR, 1, SHDR, 4, 3].into_iter().enumerate() {
        put(52 + 2 * i, &(half as u16).to_le_bytes());
    }
    // PT_LOAD, from the first byte or from behind the headers.
    let from = if program { 0 } else { board_at };
    let size = names_at - from;
    put(EHDR, &1_u32.to_le_bytes());
    for (i, word) in [from, 0, 0, size, size, 1].into_iter().enumerate() {
        put(EHDR + 8 + 8 * i, &(word as u64).to_le_bytes());
    }
    put(board_at, board.as_bytes());
    put(note_at, &note);
    put(names_at, names);
    // Offset of the name, type, place and length.
    for (name, kind, at, len) in [
        (0, 0, 0, 0),
        (1, 1, board_at, board.len()),
        (16, 7, note_at, note.len()),
        (35, 3, names_at, names.len()),
    ] {
        let mut header = [0; SHDR];
        header[..4].copy_from_slice(&u32::to_le_bytes(name));
        header[4..8].copy_from_slice(&u32::to_le_bytes(kind));
        header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(len as u64).to_le_bytes());
        header[48] = 4;
        bytes.extend(header);
    }
    bytes
}
