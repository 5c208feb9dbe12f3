//! One direction of one channel: a ring of frames, one writer, one reader.

use crate::packed::{Cargo, Packed};
use crate::sync::{AtomicBool, AtomicU32, Ordering, UnsafeCell};
use unisono_core::wire::frame::{Abort, Body, Header};

/// States of a frame. `FREE -> SENT` by the writer, `SENT <-> BUSY` and `-> FREE` by the reader,
/// `SENT -> REVOKED` by the writer.
const FREE: u32 = 0;
const SENT: u32 = 1;
const BUSY: u32 = 2;
const REVOKED: u32 = 3;

/// Frames start on a pair of lines that is fetched together; the reason of an abort, which is too
/// large for the pair, follows behind.
#[repr(C, align(128))]
struct Frame<M: Copy> {
    state: AtomicU32,
    content: UnsafeCell<Option<Packed<M>>>,
    abort: UnsafeCell<Option<Abort>>,
}

pub(crate) struct Ring<M: Copy> {
    frames: Box<[Frame<M>]>,
    closed: AtomicBool,
    abandoned: AtomicBool,
}

// SAFETY: `content` and `abort` are written by the one writer while the frame is FREE and read by
// the one reader while it is not; `state` (release/acquire) orders the two.
unsafe impl<M: Copy + Send> Sync for Ring<M> {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl<M: Copy + Send> Send for Ring<M> {}

impl<M: Copy> Ring<M> {
    pub fn new(depth: usize) -> Self {
        let frame = || Frame {
            state: AtomicU32::new(FREE),
            content: UnsafeCell::new(None),
            abort: UnsafeCell::new(None),
        };
        Self {
            frames: (0..depth).map(|_| frame()).collect(),
            closed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
        }
    }

    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Writer: may this frame be filled?
    pub fn is_free(&self, at: usize) -> bool {
        self.frames[at].state.load(Ordering::Acquire) == FREE
    }

    /// Writer: asks for the lines of a frame that will soon be filled, to be written. The reader
    /// had them last, and fetching them only then costs as much as the message itself.
    pub fn prepare(&self, at: usize) {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        {
            use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            let line = core::ptr::from_ref(&self.frames[at]).cast::<i8>();
            // SAFETY: a prefetch cannot fault, and both lines are in the frame.
            unsafe {
                _mm_prefetch::<_MM_HINT_ET0>(line);
                _mm_prefetch::<_MM_HINT_ET0>(line.wrapping_add(64));
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(loom))))]
        let _ = at;
    }

    /// Writer: fills a free frame; `inline` are the bytes that ride in it.
    pub fn publish(&self, at: usize, header: &Header, cargo: Cargo<M>, inline: &[u8]) {
        let frame = &self.frames[at];
        debug_assert_eq!(frame.state.load(Ordering::Relaxed), FREE);
        let packed = Packed::new(header, cargo, inline);
        // SAFETY: the frame is FREE, so the reader does not look at it, and there is one writer.
        frame.content.with_mut(|c| unsafe { *c = Some(packed) });
        if let Body::Abort(why) = header.body {
            // SAFETY: as above.
            frame.abort.with_mut(|a| unsafe { *a = Some(why) });
        }
        frame.state.store(SENT, Ordering::Release);
    }

    /// Reader: the frame, if it has been sent.
    pub fn peek(&self, at: usize) -> Option<(Header, Cargo<M>)> {
        let frame = &self.frames[at];
        if frame.state.load(Ordering::Acquire) == FREE {
            return None;
        }
        frame.content.with(|content| {
            // SAFETY: not FREE, so the writer leaves the frame alone until the reader frees it.
            let packed = unsafe { (*content).as_ref()? };
            // SAFETY: as above.
            let abort = || frame.abort.with(|a| unsafe { *a });
            Some((packed.header(abort), packed.cargo()))
        })
    }

    /// Reader: where a frame's inline bytes are, valid until [`Ring::free`].
    pub fn inline(&self, at: usize) -> *mut u8 {
        self.frames[at].content.with_mut(|content| {
            // SAFETY: not FREE, so it has content; only the address is taken.
            let packed = unsafe { (*content).as_mut() };
            packed.map_or(core::ptr::null_mut(), |p| {
                core::ptr::from_mut(p).cast::<u8>().wrapping_add(Packed::<M>::INLINE_AT)
            })
        })
    }

    /// Reader: locks the frame's memory; false if the writer has taken it back.
    pub fn enter(&self, at: usize) -> bool {
        let state = &self.frames[at].state;
        state.compare_exchange(SENT, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Reader: unlocks it.
    pub fn exit(&self, at: usize) {
        self.frames[at].state.store(SENT, Ordering::Release);
    }

    /// Reader: is done with the frame for good.
    pub fn free(&self, at: usize) {
        self.frames[at].state.store(FREE, Ordering::Release);
    }

    /// Writer: takes the frame's memory back; false while the reader is at it.
    pub fn revoke(&self, at: usize) -> bool {
        let state = &self.frames[at].state;
        match state.compare_exchange(SENT, REVOKED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(now) => now != BUSY,
        }
    }

    /// Writer: says whether anything more may come.
    pub fn set_closed(&self, closed: bool) {
        self.closed.store(closed, Ordering::Release);
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Reader: says that it will never read again.
    pub fn set_abandoned(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }
}

/// Every interleaving of writer and reader: `RUSTFLAGS="--cfg loom" cargo test --release -p
/// unisono-link-span --lib`.
#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use loom::{sync::Arc, thread};
    use unisono_core::wire::frame::{Fingerprint, Header};
    use unisono_core::{DType, Kind};

    fn header(op: u64) -> Header {
        let (kind, dtype) = (Kind::Barrier, DType::U8);
        let print = Fingerprint { kind, dtype, op: None, root: 0, count: 0, plan: 0 };
        Header { epoch: 0, op, from: 0, print, body: Body::Credit { limit: op } }
    }

    /// A tensor that loom watches: touching it from two threads at once fails the test.
    type Tensor = Arc<UnsafeCell<u32>>;

    #[test]
    fn frames_come_in_order_and_whole() {
        loom::model(|| {
            let ring = Arc::new(Ring::<usize>::new(2));
            let writer = ring.clone();
            let thread = thread::spawn(move || {
                for op in 0..3usize {
                    while !writer.is_free(op % 2) {
                        thread::yield_now();
                    }
                    writer.publish(
                        op % 2,
                        &header(op as u64),
                        Cargo::At { mem: op, window: None },
                        &[],
                    );
                }
            });
            for op in 0..3usize {
                let (got, cargo) = loop {
                    match ring.peek(op % 2) {
                        Some(frame) => break frame,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(got, header(op as u64));
                assert_eq!(cargo, Cargo::At { mem: op, window: None });
                ring.free(op % 2);
            }
            thread.join().expect("the writer has not failed");
        });
    }

    #[test]
    fn memory_is_the_readers_or_the_writers_never_both() {
        loom::model(|| {
            let ring = Arc::new(Ring::<usize>::new(1));
            let tensor: Tensor = Arc::new(UnsafeCell::new(7));
            let (writer, mine) = (ring.clone(), tensor.clone());
            let thread = thread::spawn(move || {
                writer.publish(0, &header(1), Cargo::At { mem: 0, window: None }, &[]);
                while !writer.revoke(0) {
                    thread::yield_now();
                }
                // SAFETY: taken back, or released by the reader.
                mine.with_mut(|t| unsafe { *t = 0 });
            });
            while ring.peek(0).is_none() {
                thread::yield_now();
            }
            if ring.enter(0) {
                // SAFETY: locked.
                tensor.with(|t| assert_eq!(unsafe { *t }, 7));
                ring.exit(0);
            }
            ring.free(0);
            thread.join().expect("the writer has not failed");
        });
    }

    #[test]
    fn what_was_written_into_a_window_is_seen_after_the_release() {
        loom::model(|| {
            let ring = Arc::new(Ring::<usize>::new(1));
            let tensor: Tensor = Arc::new(UnsafeCell::new(7));
            let (reader, theirs) = (ring.clone(), tensor.clone());
            ring.publish(0, &header(1), Cargo::At { mem: 0, window: Some(0) }, &[]);
            let thread = thread::spawn(move || {
                assert!(reader.enter(0));
                // SAFETY: locked, and lent for writing.
                theirs.with_mut(|t| unsafe { *t += 1 });
                reader.exit(0);
                reader.free(0);
            });
            while !ring.is_free(0) {
                thread::yield_now();
            }
            // SAFETY: released.
            tensor.with(|t| assert_eq!(unsafe { *t }, 8));
            thread.join().expect("the reader has not failed");
        });
    }
}
