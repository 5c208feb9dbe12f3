//! Whoever is at the other end of a socket is looked at before its memory is used.

mod common;

use common::{join, layout};
use std::io::Write;
use std::os::unix::net::UnixStream;
use unisono_link_shm::{Fabric, Layout, ShmError};

fn why(error: Result<Fabric, ShmError>) -> String {
    error.err().expect("refused").to_string()
}

#[test]
fn another_group_is_refused_on_both_sides() {
    let others = [
        Layout { channels: 2, ..layout() },
        Layout { window: 9, ..layout() },
        Layout { homes: vec![0, 1, 1], ..layout() },
    ];
    for other in others {
        for end in join([layout(), other]) {
            let text = why(end);
            assert!(text.contains("another group"), "{text}");
        }
    }
}

#[test]
fn hostile_bytes_are_refused() {
    let greetings: [&[u8]; 5] = [b"", b"\0", b"\x05hello", &[0xff; 300], &[1; 200]];
    for bytes in greetings {
        let (a, mut b) = UnixStream::pair().expect("sockets");
        b.write_all(bytes).expect("room");
        b.shutdown(std::net::Shutdown::Write).expect("open");
        let text = why(Fabric::join(&layout(), 0, vec![None, Some(a)]));
        assert!(text.starts_with("process 1 cannot be joined by shared memory"), "{text}");
    }
}
