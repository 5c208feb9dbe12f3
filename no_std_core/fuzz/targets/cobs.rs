//! Whatever the stream and however it is cut, the reader finds the same messages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unisono_core::wire::cobs::{CobsReader, cobs_encode, cobs_max};

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (piece, room, bytes) = input;
    let whole = read(bytes, usize::MAX, room.into());
    assert_eq!(read(bytes, usize::from(piece) + 1, room.into()), whole);

    let mut out = vec![0; cobs_max(bytes.len())];
    let len = cobs_encode(bytes, &mut out).expect("fits by cobs_max");
    assert_eq!(read(&out[..len], 7, len), (vec![bytes.to_vec()], 0));
});

fn read(bytes: &[u8], piece: usize, room: usize) -> (Vec<Vec<u8>>, u64) {
    let mut buf = vec![0; room];
    let mut reader = CobsReader::new(&mut buf);
    let mut got = Vec::new();
    for mut input in bytes.chunks(piece) {
        while let Some(message) = reader.next(&mut input) {
            got.push(message.to_vec());
        }
    }
    (got, reader.skipped())
}
