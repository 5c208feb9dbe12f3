//! Whatever the bytes, decoding does not panic, and what is accepted can be written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unisono_core::reliable::packet;
use unisono_core::wire::{control, crc32c, frame};

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // The fuzzer cannot guess checksums: add the right one.
    let mut sealed = bytes.to_vec();
    sealed.extend(crc32c(bytes).to_le_bytes());
    check(&sealed);
});

fn check(bytes: &[u8]) {
    let mut out = vec![0; bytes.len() + frame::OVERHEAD_MAX];
    if let Ok((header, payload)) = frame::decode(bytes) {
        assert_eq!(frame::decode_head(bytes).map(|(header, _)| header), Ok(header));
        let len = frame::encode(&header, payload, &mut out).expect("fits by OVERHEAD_MAX");
        assert_eq!(frame::decode(&out[..len]), Ok((header, payload)));
    }
    if let Ok(message) = control::decode(bytes) {
        let len = control::encode(&message, &mut out).expect("fits by CONTROL_MAX");
        assert_eq!(control::decode(&out[..len]), Ok(message));
    }
    if let Ok(packet) = packet::decode(bytes) {
        let len = packet::encode(&packet, &mut out).expect("fits");
        assert_eq!(packet::decode(&out[..len]), Ok(packet));
    }
}
