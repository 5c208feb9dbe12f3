//! The span link against the suite of all links, and between real threads.

use unisono_core::wire::frame::{Body, Fingerprint, Header};
use unisono_core::{DType, Kind};
use unisono_driver::{Arrived, HostMemory, Link, Memory, Outgoing};
use unisono_link_span::{SpanLink, fabric};
use unisono_testkit::link::{LinkHarness, link_suite};

/// An address.
#[derive(Clone, Copy, Debug)]
struct Ptr(*mut u8);

// SAFETY: an address; the tests keep what is behind it alive and apart.
unsafe impl Send for Ptr {}

impl Memory for Ptr {
    fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes as usize))
    }
}

impl HostMemory for Ptr {
    fn from_ptr(ptr: *mut u8) -> Self {
        Self(ptr)
    }

    fn as_ptr(self) -> *mut u8 {
        self.0
    }
}

fn ends() -> (SpanLink<Ptr>, SpanLink<Ptr>) {
    let mut members = fabric(2, 3, 4).into_iter();
    let mut end = |peer: usize| members.next().and_then(|(mut links, _)| links.swap_remove(peer));
    let a = end(1);
    let b = end(0);
    a.zip(b).expect("two members are linked")
}

struct Threads;

impl LinkHarness for Threads {
    type Link = SpanLink<Ptr>;

    fn pair(&mut self) -> (Self::Link, Self::Link) {
        ends()
    }

    fn turn(&mut self, _: &mut [&mut Self::Link]) {
        std::thread::yield_now();
    }
}

#[test]
fn passes_the_suite_of_all_links() {
    link_suite(&mut Threads);
}

#[test]
fn a_member_that_has_left_can_come_back() {
    let (mut a, mut b) = ends();
    a.leave();
    assert!(b.poll_frame(0).is_err());
    a.rejoin();
    assert!(matches!(b.poll_frame(0), Ok(None)));
    // What the one that stays sends is kept for the one that comes back.
    a.leave();
    let print =
        Fingerprint { kind: Kind::Barrier, dtype: DType::U8, op: None, root: 0, count: 0, plan: 0 };
    let header = Header { epoch: 0, op: 1, from: 1, print, body: Body::Agree { round: 0 } };
    // SAFETY: no payload.
    unsafe { b.send(0, &header, Outgoing::None, 0) }.expect("the other end still exists");
    a.rejoin();
    assert!(matches!(a.poll_frame(0), Ok(Some(f)) if f.header == header));
}

/// A reader that folds in place while the writer takes memory back at random times: whatever comes
/// first, the reader never sees memory that the writer has already reused.
#[test]
fn withdrawal_races_with_reading() {
    let (mut a, mut b) = ends();
    let print =
        Fingerprint { kind: Kind::Barrier, dtype: DType::U8, op: None, root: 0, count: 0, plan: 0 };
    const ROUNDS: u64 = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut tensor = vec![0u64; 64];
            for op in 0..ROUNDS {
                tensor.fill(op);
                let mem = Ptr(tensor.as_mut_ptr().cast());
                let at = Outgoing::At { mem, bytes: 512, window: None };
                let header =
                    Header { epoch: 0, op, from: 0, print, body: Body::Agree { round: 0 } };
                while !a.has_room(0) {
                    while a.poll_sent(0).is_some() {}
                    std::thread::yield_now();
                }
                // SAFETY: the tensor is left alone until `withdraw` has returned true.
                unsafe { a.send(0, &header, at, 0) }.expect("open");
                for _ in 0..op % 50 {
                    std::hint::spin_loop();
                }
                while !a.withdraw(0) {
                    std::hint::spin_loop();
                }
                while a.poll_sent(0).is_some() {}
                tensor.fill(u64::MAX);
            }
        });
        scope.spawn(move || {
            let mut read = 0u64;
            for op in 0..ROUNDS {
                let frame = loop {
                    match b.poll_frame(0) {
                        Ok(Some(frame)) => break frame,
                        _ => std::thread::yield_now(),
                    }
                };
                assert_eq!(frame.header.op, op);
                let Arrived::Span { mem, handle, .. } = frame.payload else {
                    panic!("512 bytes are a span");
                };
                b.take(0);
                if b.enter(0, handle) {
                    for i in 0..64 {
                        // SAFETY: locked, 64 words long.
                        let word = unsafe { mem.as_ptr().cast::<u64>().add(i).read_volatile() };
                        assert_eq!(word, op, "memory that was taken back");
                    }
                    read += 1;
                    b.exit(0, handle);
                }
                b.release(0, handle);
            }
            assert!(read <= ROUNDS);
        });
    });
}
