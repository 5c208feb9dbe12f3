//! Two processes of a group, both played by the test.

use std::os::unix::net::UnixStream;
use unisono_link_shm::{Fabric, Layout, ShmError};

pub fn layout() -> Layout {
    Layout { homes: vec![0, 1], channels: 3, window: 4 }
}

/// What both processes get if they go by these layouts.
pub fn join(layouts: [Layout; 2]) -> [Result<Fabric, ShmError>; 2] {
    let (a, b) = UnixStream::pair().expect("sockets");
    let [first, second] = layouts;
    let other = std::thread::spawn(move || Fabric::join(&second, 1, vec![Some(b), None]));
    let one = Fabric::join(&first, 0, vec![None, Some(a)]);
    [one, other.join().expect("no panic")]
}
