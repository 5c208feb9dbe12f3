//! Memory outside the arenas, which one process fetches from and stores to the other: both are
//! played by this one, which the system lets reach itself.

mod common;

use common::{join, layout};
use unisono_core::wire::frame::{Body, Data, Fingerprint, Header, Phase};
use unisono_core::{DType, Form, Kind, Scalar};
use unisono_driver::{Arrived, HostMemory, HostPtr, Link, LinkError, Outgoing};
use unisono_link_shm::{Fabric, ShmLink};

/// Too many bytes to be copied, and no whole pages.
const BYTES: usize = 3 * 4096 + 77;

fn ends() -> (ShmLink, ShmLink, [Fabric; 2]) {
    let [a, b] = join([layout(), layout()]);
    let (mut a, mut b) = (a.expect("joined"), b.expect("joined"));
    let (one, other) = (a.ends[0].0[1].take(), b.ends[0].0[0].take());
    (one.expect("near"), other.expect("near"), [a, b])
}

fn header(chunk: u64, bytes: usize) -> Header {
    let print = Fingerprint {
        kind: Kind::AllReduce,
        dtype: DType::U8,
        op: None,
        root: 0,
        count: 0,
        plan: 0,
    };
    let (phase, form, bytes) = (Phase::Contribution, Form::Leaf, bytes as u32);
    let data = Data { chunk, phase, form, weight: Scalar(0), limit: 9, bytes };
    Header { epoch: 0, op: 0, from: 0, print, body: Body::Data(data) }
}

fn at(mem: *mut u8, window: Option<*mut u8>) -> Outgoing<HostPtr> {
    Outgoing::At { mem: HostPtr::new(mem), bytes: BYTES, window: window.map(HostPtr::new) }
}

/// The span at the head of the link, taken: memory, window and handle.
fn span(link: &mut ShmLink) -> (*mut u8, Option<*mut u8>, u32) {
    let frame = link.poll_frame(0).expect("open").expect("sent before");
    // Looking twice changes nothing.
    let again = link.poll_frame(0).expect("open").expect("still there");
    let (Arrived::Span { mem, window, handle }, Arrived::Span { mem: same, .. }) =
        (frame.payload, again.payload)
    else {
        panic!("memory is named")
    };
    assert_eq!(mem.as_ptr(), same.as_ptr());
    link.take(0);
    (mem.as_ptr(), window.map(|window| window.as_ptr()), handle)
}

#[test]
fn what_is_fetched_is_what_is_there_and_answers_reach_the_window() {
    let (mut a, mut b, fabrics) = ends();
    assert!(fabrics.iter().all(|fabric| fabric.attached), "the system lets a process reach itself");
    for round in 0..40u8 {
        let mut input: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8 ^ round).collect();
        let mut output = vec![0u8; BYTES];
        // In place, apart, and without a window.
        let window = match round % 3 {
            0 => Some(input.as_mut_ptr()),
            1 => Some(output.as_mut_ptr()),
            _ => None,
        };
        let out = at(input.as_mut_ptr(), window);
        // SAFETY: both stay until the completion below.
        unsafe { a.send(0, &header(round.into(), BYTES), out, 5) }.expect("open");
        // What is written after sending and before locking is not seen by contract; here it shows
        // that nothing is fetched before the frame is locked.
        input[0] ^= 0xff;
        let (mem, window, handle) = span(&mut b);
        assert!(b.enter(0, handle));
        // SAFETY: locked, and so long.
        let got = unsafe { std::slice::from_raw_parts_mut(mem, BYTES) };
        assert_eq!(got, input);
        let answer: Vec<u8> = got.iter().map(|byte| !byte).collect();
        if let Some(window) = window {
            // SAFETY: locked, and so long.
            unsafe { window.copy_from_nonoverlapping(answer.as_ptr(), BYTES) };
        }
        // Of every other answer it is said that there is none.
        let written = round % 2 == 0;
        b.exit(0, handle, written);
        b.release(0, handle);
        assert_eq!(a.poll_sent(0), Some(5));
        match round % 3 {
            0 if written => assert_eq!(input, answer),
            1 if written => assert_eq!(output, answer),
            1 => assert_eq!(output, vec![0; BYTES]),
            _ => assert_ne!(input, answer),
        }
    }
}

#[test]
fn one_of_memory_and_window_may_be_in_the_arena() {
    let (mut a, mut b, _fabrics) = ends();
    let mut outside = vec![7u8; BYTES];
    let piece = a.reach().arena().alloc(BYTES).expect("a little memory");
    // SAFETY: the piece is as long, and nobody else has it.
    unsafe { piece.start().write_bytes(9, BYTES) };
    for (mem, window) in
        [(piece.start(), outside.as_mut_ptr()), (outside.as_mut_ptr(), piece.start())]
    {
        // SAFETY: both stay.
        unsafe { a.send(0, &header(0, BYTES), at(mem, Some(window)), 0) }.expect("open");
        let (from, to, handle) = span(&mut b);
        assert!(b.enter(0, handle));
        let to = to.expect("offered");
        for i in 0..BYTES {
            // SAFETY: locked, and so long.
            unsafe { to.add(i).write(from.add(i).read() + 1) };
        }
        b.exit(0, handle, true);
        b.release(0, handle);
        assert_eq!(a.poll_sent(0), Some(0));
        // SAFETY: released; both are so long.
        let both = unsafe { (mem.read(), window.add(BYTES - 1).read()) };
        assert_eq!(both.1, both.0 + 1);
    }
}

#[test]
fn memory_that_is_not_there_breaks_the_link() {
    let (mut a, mut b, _fabrics) = ends();
    // The first page is nobody's.
    let nowhere = std::ptr::without_provenance_mut(4096);
    // SAFETY: nobody reads or writes there: the system says so.
    unsafe { a.send(0, &header(0, BYTES), at(nowhere, Some(nowhere)), 0) }.expect("open");
    let (.., handle) = span(&mut b);
    assert!(!b.enter(0, handle), "it cannot be fetched");
    assert!(matches!(b.poll_frame(0), Err(LinkError::Unreachable)));
    // A result that was not written is not reported as written; anything else still is.
    // SAFETY: no payload.
    let put = unsafe { b.send(0, &header(0, BYTES), Outgoing::Put, 0) };
    assert_eq!(put, Err(LinkError::Closed));
    let credit = Header { body: Body::Credit { limit: 0 }, ..header(0, 0) };
    // SAFETY: no payload.
    assert_eq!(unsafe { b.send(0, &credit, Outgoing::None, 0) }, Ok(()));
    b.release(0, handle);
    assert!(a.withdraw(0));
}

#[test]
fn a_length_that_nobody_has_memory_for_is_no_frame() {
    let (mut a, mut b, _fabrics) = ends();
    let mut byte = 0u8;
    let out = Outgoing::At { mem: HostPtr::new(&raw mut byte), bytes: BYTES, window: None };
    // SAFETY: never locked.
    unsafe { a.send(0, &header(0, u32::MAX as usize), out, 0) }.expect("open");
    // There may be so much memory; then it is asked for at the other end, and is not there.
    match b.poll_frame(0) {
        Err(error) => assert_eq!(error, LinkError::Garbage),
        Ok(frame) => {
            let Some(Arrived::Span { handle, .. }) = frame.map(|frame| frame.payload) else {
                panic!("sent before")
            };
            b.take(0);
            assert!(!b.enter(0, handle));
        }
    }
    assert!(a.withdraw(0));
}
