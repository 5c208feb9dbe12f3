//! One direction of one channel: a ring of frames, one writer, one reader.
//!
//! Frames are numbered from 0; frame `seq` lies at `seq % depth`. A frame's state carries its
//! number, so one that is left over from the lap before is not taken for a new one, and nobody has
//! to wipe it: the reader only counts what it is done with, on a line of its own that the writer
//! looks at when the ring seems full. A small message moves the lines of its frame and no others.

use crate::ahead;
use crate::packed::{Cargo, Packed, Reason, pack_abort, unpack_abort};
use crate::sync::{AtomicU64, Ordering, UnsafeCell};
use core::any::Any;
use core::ptr::NonNull;
use std::sync::Arc;
use unisono_core::wire::frame::{Body, HEADER_MAX, Header};

/// Payloads up to this many bytes are copied if one of the ring's buffers is free.
pub const SMALL: usize = 4096;

/// How many buffers there are: calls of a channel come one after the other, and a peer may be one
/// behind.
pub(crate) const BUFFERS: usize = 4;

/// States of a frame, in the low two bits beside its number. `SENT` by the writer, `SENT <-> BUSY`
/// and `-> DONE` by the reader, `SENT -> REVOKED` by the writer. Frames that lend no memory stay
/// `SENT`.
const DONE: u64 = 0;
const SENT: u64 = 1;
const BUSY: u64 = 2;
const REVOKED: u64 = 3;

/// The state of frame `seq`. Never 0, which is what an unused frame has.
const fn word(seq: u64, state: u64) -> u64 {
    (seq + 1) << 2 | state
}

/// Frames start on a pair of lines that is fetched together; the reason of an abort, which is too
/// large for the pair, follows behind.
#[repr(C, align(128))]
struct Frame {
    state: AtomicU64,
    content: UnsafeCell<Packed>,
    abort: UnsafeCell<Reason>,
}

/// Where payloads lie that are copied, but do not fit their frames.
#[repr(C, align(128))]
struct Copied(UnsafeCell<[u8; SMALL]>);

/// On lines for itself.
#[repr(C, align(128))]
struct Apart<T>(T);

/// What is there beside the frames.
#[repr(C)]
struct Head {
    /// Not 0: the writer will send no more; the reader will read no more.
    closed: AtomicU64,
    abandoned: AtomicU64,
    /// The frames before this one may be written again.
    freed: Apart<AtomicU64>,
}

/// A ring on the heap.
struct Owned {
    head: Head,
    frames: Box<[Frame]>,
    copied: Box<[Copied]>,
}

/// Either end's view of a ring.
#[derive(Clone)]
pub struct Ring {
    head: NonNull<Head>,
    frames: NonNull<Frame>,
    copied: NonNull<Copied>,
    depth: usize,
    /// What the memory belongs to.
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: `content` and `abort` are written by the one writer before the frame is SENT and after
// the reader has counted its previous use as freed, and read by the one reader in between; `state`
// and `freed` (release/acquire) order the two. The memory lives as long as what it belongs to.
unsafe impl Sync for Ring {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Ring {}

impl Owned {
    fn new(depth: usize) -> Self {
        let frame = || Frame {
            state: AtomicU64::new(0),
            content: UnsafeCell::new(Packed::EMPTY),
            abort: UnsafeCell::new([0; HEADER_MAX]),
        };
        let (closed, abandoned) = (AtomicU64::new(0), AtomicU64::new(0));
        let head = Head { closed, abandoned, freed: Apart(AtomicU64::new(0)) };
        let copied = (0..BUFFERS).map(|_| Copied(UnsafeCell::new([0; SMALL]))).collect();
        Self { head, frames: (0..depth).map(|_| frame()).collect(), copied }
    }
}

// SAFETY: as for `Ring`; used through it only.
unsafe impl Sync for Owned {}
// SAFETY: as above.
unsafe impl Send for Owned {}

impl Ring {
    /// A ring of at least `depth` frames on the heap.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        let depth = depth.next_power_of_two();
        let owned = Arc::new(Owned::new(depth));
        let (head, frames) = (NonNull::from(&owned.head), NonNull::from(&*owned.frames).cast());
        let copied = NonNull::from(&*owned.copied).cast();
        Self { head, frames, copied, depth, _keep: owned }
    }

    /// Bytes that a ring of at least `depth` frames takes in memory that processes share.
    #[must_use]
    pub const fn bytes(depth: usize) -> usize {
        size_of::<Head>()
            + depth.next_power_of_two() * size_of::<Frame>()
            + BUFFERS * size_of::<Copied>()
    }

    /// The ring of at least `depth` frames that lies, or will lie once this end has sent
    /// something, at `start`.
    ///
    /// # Safety
    /// There are [`Ring::bytes`] bytes, on a pair of cache lines; they were zero before the first
    /// ring was there, all that use them now use them as this ring, and they stay mapped as long
    /// as `keep` exists.
    #[cfg(not(loom))]
    #[must_use]
    pub unsafe fn at(start: NonNull<u8>, depth: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        let head = start.cast::<Head>();
        debug_assert!(head.is_aligned());
        let depth = depth.next_power_of_two();
        // SAFETY: within the bytes that the caller promises.
        let frames = unsafe { head.add(1) }.cast::<Frame>();
        // SAFETY: as above.
        let copied = unsafe { frames.add(depth) }.cast();
        Self { head, frames, copied, depth, _keep: keep }
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Where a frame lies.
    pub(crate) fn place(&self, seq: u64) -> usize {
        // The depth is a power of two.
        seq as usize & (self.depth - 1)
    }

    fn head(&self) -> &Head {
        // SAFETY: it lives as long as what it belongs to, and is made of atomics.
        unsafe { self.head.as_ref() }
    }

    fn frame(&self, seq: u64) -> &Frame {
        // SAFETY: the place is within the ring, which lives as long as what it belongs to; its
        // cells are entered as said at `Sync`.
        unsafe { self.frames.add(self.place(seq)).as_ref() }
    }

    fn state(&self, seq: u64) -> &AtomicU64 {
        &self.frame(seq).state
    }

    /// Writer: the frames before this one may be written again.
    pub(crate) fn freed(&self) -> u64 {
        self.head().freed.0.load(Ordering::Acquire)
    }

    /// Writer: asks for the lines of a frame that will soon be filled, to be written. The reader
    /// had them last, and fetching them only then costs as much as the message itself.
    pub(crate) fn prepare(&self, seq: u64) {
        ahead::to_write(core::ptr::from_ref(self.frame(seq)).cast(), 128);
    }

    /// Writer: helps a frame that has been sent on its way.
    pub(crate) fn hand_over(&self, seq: u64) {
        ahead::to_others(core::ptr::from_ref(self.frame(seq)).cast());
    }

    /// Reader: asks for the start of the copied payload that a frame just sent probably has, while
    /// the frame itself is still being looked at.
    pub(crate) fn expect(&self, seq: u64, bytes: usize) {
        ahead::to_read(self.copied(seq), bytes);
    }

    /// Writer: fills a frame whose previous use is freed; `inline` are the bytes that ride in it.
    pub(crate) fn publish(&self, seq: u64, header: &Header, cargo: Cargo, inline: &[u8]) {
        let frame = self.frame(seq);
        let packed = Packed::new(header, cargo, inline);
        // SAFETY: not sent yet, so the reader does not look at it, and there is one writer.
        frame.content.with_mut(|c| unsafe { *c = packed });
        if let Body::Abort(_) = header.body {
            let reason = pack_abort(header);
            // SAFETY: as above.
            frame.abort.with_mut(|a| unsafe { *a = reason });
        }
        frame.state.store(word(seq, SENT), Ordering::Release);
    }

    /// Reader: has the frame been sent? It may have been taken back since.
    pub(crate) fn is_sent(&self, seq: u64) -> bool {
        self.state(seq).load(Ordering::Acquire) >> 2 == seq + 1
    }

    /// Reader: the content of a frame that [`Ring::is_sent`]; `None` if it is no frame.
    pub(crate) fn read(&self, seq: u64) -> Option<(Header, Cargo)> {
        let frame = self.frame(seq);
        frame.content.with(|content| {
            // SAFETY: sent, so the writer leaves the frame alone until the reader frees it.
            let packed = unsafe { &*content };
            // SAFETY: as above.
            let abort = || frame.abort.with(|a| unpack_abort(unsafe { &*a }));
            Some((packed.header(abort)?, packed.cargo()))
        })
    }

    /// Reader: where a frame's inline bytes are, valid until it is freed.
    pub(crate) fn inline(&self, seq: u64) -> *mut u8 {
        let content = self.frame(seq).content.with_mut(|content| content);
        content.cast::<u8>().wrapping_add(Packed::INLINE_AT)
    }

    /// Where the copied payload of a frame is: frames take the buffers in turn, so one is the
    /// frame's own until it is freed if the frame [`BUFFERS`] before it has been freed.
    pub(crate) fn copied(&self, seq: u64) -> *mut u8 {
        // SAFETY: within the buffers, which live as long as what they belong to.
        let buffer = unsafe { self.copied.add(seq as usize % BUFFERS).as_ref() };
        buffer.0.with_mut(|bytes| bytes).cast()
    }

    /// Reader: locks the memory that a frame lends; false if the writer has taken it back.
    pub(crate) fn enter(&self, seq: u64) -> bool {
        let (sent, busy) = (word(seq, SENT), word(seq, BUSY));
        self.state(seq).compare_exchange(sent, busy, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Reader: unlocks it.
    pub(crate) fn exit(&self, seq: u64) {
        self.state(seq).store(word(seq, SENT), Ordering::Release);
    }

    /// Reader: gives back the memory that a frame lends.
    pub(crate) fn give_back(&self, seq: u64) {
        self.state(seq).store(word(seq, DONE), Ordering::Release);
    }

    /// Reader: is done with all frames before `seq` for good.
    pub(crate) fn free_before(&self, seq: u64) {
        self.head().freed.0.store(seq, Ordering::Release);
    }

    /// Writer: has the reader given back the memory that a frame lends?
    pub(crate) fn is_back(&self, seq: u64) -> bool {
        self.state(seq).load(Ordering::Acquire) == word(seq, DONE)
    }

    /// Writer: takes the memory back; false while the reader is at it.
    pub(crate) fn revoke(&self, seq: u64) -> bool {
        let (sent, revoked) = (word(seq, SENT), word(seq, REVOKED));
        let order = (Ordering::AcqRel, Ordering::Acquire);
        match self.state(seq).compare_exchange(sent, revoked, order.0, order.1) {
            Ok(_) => true,
            Err(now) => now != word(seq, BUSY),
        }
    }

    /// Writer: says whether anything more may come.
    pub(crate) fn set_closed(&self, closed: bool) {
        self.head().closed.store(closed.into(), Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.head().closed.load(Ordering::Acquire) != 0
    }

    /// Reader: says that it will never read again.
    pub(crate) fn set_abandoned(&self) {
        self.head().abandoned.store(1, Ordering::Release);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.head().abandoned.load(Ordering::Acquire) != 0
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
            let ring = Ring::new(2);
            let writer = ring.clone();
            let thread = thread::spawn(move || {
                for seq in 0..3u64 {
                    while writer.freed() + 2 <= seq {
                        thread::yield_now();
                    }
                    let cargo = Cargo::At { mem: seq, window: None };
                    writer.publish(seq, &header(seq), cargo, &[]);
                }
            });
            for seq in 0..3u64 {
                let (got, cargo) = loop {
                    if ring.is_sent(seq) {
                        break ring.read(seq).expect("a frame");
                    }
                    thread::yield_now();
                };
                assert_eq!(got, header(seq));
                assert_eq!(cargo, Cargo::At { mem: seq, window: None });
                ring.free_before(seq + 1);
            }
            thread.join().expect("the writer has not failed");
        });
    }

    #[test]
    fn memory_is_the_readers_or_the_writers_never_both() {
        loom::model(|| {
            let ring = Ring::new(1);
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
            while !ring.is_sent(0) {
                thread::yield_now();
            }
            if ring.enter(0) {
                // SAFETY: locked.
                tensor.with(|t| assert_eq!(unsafe { *t }, 7));
                ring.exit(0);
            }
            ring.give_back(0);
            thread.join().expect("the writer has not failed");
        });
    }

    #[test]
    fn what_was_written_into_a_window_is_seen_after_the_release() {
        loom::model(|| {
            let ring = Ring::new(1);
            let tensor: Tensor = Arc::new(UnsafeCell::new(7));
            let (reader, theirs) = (ring.clone(), tensor.clone());
            ring.publish(0, &header(1), Cargo::At { mem: 0, window: Some(0) }, &[]);
            let thread = thread::spawn(move || {
                assert!(reader.enter(0));
                // SAFETY: locked, and lent for writing.
                theirs.with_mut(|t| unsafe { *t += 1 });
                reader.exit(0);
                reader.give_back(0);
            });
            while !ring.is_back(0) {
                thread::yield_now();
            }
            // SAFETY: released.
            tensor.with(|t| assert_eq!(unsafe { *t }, 8));
            thread.join().expect("the reader has not failed");
        });
    }
}
