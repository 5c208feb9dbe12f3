//! The link against the suite of all links, between two arenas of one process.

mod common;

use common::{join, layout};
use std::time::{Duration, Instant};
use unisono_core::wire::frame::{Body, Fingerprint, Header};
use unisono_core::{DType, Kind};
use unisono_driver::{HostPtr, Link, LinkError, Outgoing};
use unisono_link_shm::{Fabric, Piece, ShmLink};
use unisono_testkit::link::{LinkHarness, link_suite};

const PRINT: Fingerprint =
    Fingerprint { kind: Kind::Barrier, dtype: DType::U8, op: None, root: 0, count: 0, plan: 0 };
const HEADER: Header =
    Header { epoch: 0, op: 0, from: 0, print: PRINT, body: Body::Credit { limit: 0 } };

/// Too many bytes to be copied.
const LENT: usize = 5000;

/// Both ends in this process, each with an arena of its own.
#[derive(Default)]
struct Arenas {
    fabrics: Vec<Fabric>,
    pieces: Vec<Piece>,
}

impl LinkHarness for Arenas {
    type Link = ShmLink;
    const LENT: usize = LENT;

    fn pair(&mut self) -> (ShmLink, ShmLink) {
        let [a, b] = join([layout(), layout()]);
        let (mut a, mut b) = (a.expect("joined"), b.expect("joined"));
        let ends = a.ends[0].0[1].take().zip(b.ends[0].0[0].take());
        self.fabrics.extend([a, b]);
        ends.expect("both processes are near")
    }

    fn lend(&mut self, from: &ShmLink, bytes: &[u8]) -> HostPtr {
        let piece = from.reach().arena().alloc(bytes.len()).expect("a little memory");
        // SAFETY: the piece is as long, and nobody else has it.
        unsafe { piece.start().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let start = HostPtr::new(piece.start());
        self.pieces.push(piece);
        start
    }

    fn turn(&mut self, _: &mut [&mut ShmLink]) {
        std::thread::yield_now();
    }
}

#[test]
fn passes_the_suite_of_all_links() {
    link_suite(&mut Arenas::default());
}

/// The socket closes without a word: the other process is dead.
#[test]
fn a_dead_process_closes_its_links_and_gives_memory_back() {
    let (mut a, b, mut arenas) = ends();
    let mem = arenas.lend(&a, &[1u8; LENT]);
    let at = Outgoing::At { mem, bytes: LENT, window: None };
    // SAFETY: it stays.
    assert_eq!(unsafe { a.send(0, &HEADER, at, 7) }, Ok(()));
    assert_eq!(a.poll_sent(0), None);
    let other = arenas.fabrics.pop();
    // Its links say nothing; only the socket closes.
    std::mem::forget(b);
    drop(other);
    let end = Instant::now() + Duration::from_secs(20);
    while a.poll_frame(0).is_ok() {
        assert!(Instant::now() < end, "nobody notices");
        std::thread::yield_now();
    }
    assert_eq!(a.poll_sent(0), Some(7));
    // SAFETY: it stays.
    assert_eq!(unsafe { a.send(0, &HEADER, at, 8) }, Err(LinkError::Closed));
    assert!(a.withdraw(0));
}

fn ends() -> (ShmLink, ShmLink, Arenas) {
    let mut arenas = Arenas::default();
    let (a, b) = arenas.pair();
    (a, b, arenas)
}
