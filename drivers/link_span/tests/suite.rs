//! The span link against the suite of all links, and between real threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use unisono_core::wire::frame::{Body, Fingerprint, Header};
use unisono_core::{DType, Kind};
use unisono_driver::{Arrived, HostMemory, Link, Memory, Outgoing};
use unisono_link_span::{SMALL, SpanLink, fabric};
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
    const LENT: usize = SMALL + 500;

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

/// Rounds of [`withdrawal_races_with_reading`]: at least and at most.
const ROUNDS: u64 = 20_000;
const ROUNDS_MAX: u64 = 1_000_000;

/// How often each outcome has to occur.
const BOTH: u64 = 100;

/// How often memory was read, and how often it was gone before the reader came.
#[derive(Default)]
struct Outcomes {
    read: AtomicU64,
    withdrawn: AtomicU64,
}

impl Outcomes {
    fn get(&self) -> (u64, u64) {
        (self.read.load(Relaxed), self.withdrawn.load(Relaxed))
    }
}

/// Lends its tensor, waits for some time and takes it back, until both outcomes were seen.
fn lend_and_withdraw(mut a: SpanLink<Ptr>, seen: &Outcomes) {
    let print =
        Fingerprint { kind: Kind::Barrier, dtype: DType::U8, op: None, root: 0, count: 0, plan: 0 };
    let mut tensor = vec![0u64; 64];
    let end = Instant::now() + Duration::from_secs(60);
    for op in 0..ROUNDS_MAX {
        let (read, withdrawn) = seen.get();
        if op >= ROUNDS && read.min(withdrawn) >= BOTH {
            return;
        }
        tensor.fill(op);
        let mem = Ptr(tensor.as_mut_ptr().cast());
        let at = Outgoing::At { mem, bytes: 512, window: None };
        let header = Header { epoch: 0, op, from: 0, print, body: Body::Agree { round: 0 } };
        while !a.has_room(0) {
            assert!(Instant::now() < end, "the reader no longer releases anything");
            while a.poll_sent(0).is_some() {}
            std::thread::yield_now();
        }
        // SAFETY: the tensor is left alone until `withdraw` has returned true.
        unsafe { a.send(0, &header, at, 0) }.expect("open");
        // The rarer outcome gets its chance: time for the reader to come, or next to none.
        if read < withdrawn && op % 4 == 0 {
            std::thread::yield_now();
        }
        for _ in 0..op % if read < withdrawn { 2000 } else { 50 } {
            std::hint::spin_loop();
        }
        while !a.withdraw(0) {
            std::hint::spin_loop();
        }
        while a.poll_sent(0).is_some() {}
        tensor.fill(u64::MAX);
    }
}

/// Reads every tensor that is still there, until the writer has left.
fn read_in_place(mut b: SpanLink<Ptr>, seen: &Outcomes) {
    for op in 0.. {
        let frame = loop {
            match b.poll_frame(0) {
                Ok(Some(frame)) => break frame,
                Ok(None) => std::thread::yield_now(),
                Err(_) => return,
            }
        };
        assert_eq!(frame.header.op, op);
        let Arrived::Span { mem, handle, .. } = frame.payload else {
            panic!("512 bytes are a span");
        };
        b.take(0);
        let there = b.enter(0, handle);
        if there {
            for i in 0..64 {
                // SAFETY: locked, 64 words long.
                let word = unsafe { mem.as_ptr().cast::<u64>().add(i).read_volatile() };
                assert_eq!(word, op, "memory that was taken back");
            }
            b.exit(0, handle, false);
        }
        if there { &seen.read } else { &seen.withdrawn }.fetch_add(1, Relaxed);
        b.release(0, handle);
    }
}

/// A reader that folds in place while the writer takes memory back at random times: whatever comes
/// first, the reader never sees memory that the writer has already reused.
#[test]
fn withdrawal_races_with_reading() {
    let (a, b) = ends();
    let seen = Outcomes::default();
    std::thread::scope(|scope| {
        scope.spawn(|| lend_and_withdraw(a, &seen));
        scope.spawn(|| read_in_place(b, &seen));
    });
    let (read, withdrawn) = seen.get();
    assert!(read >= BOTH, "read only {read} times, withdrawn {withdrawn} times");
    assert!(withdrawn >= BOTH, "withdrawn only {withdrawn} times, read {read} times");
}
