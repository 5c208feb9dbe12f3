//! Whatever the other side writes into the window: nothing panics, nothing is read or written out
//! of bounds, and no payload is longer than the receiver was told.

use embedded_io::{ReadReady, WriteReady};
use proptest::prelude::*;
use std::ptr::NonNull;
use unisono_core::wire::frame::{Abort, Body, Data, Fingerprint, Header, Phase};
use unisono_core::{DType, Form, Kind, Scalar};
use unisono_driver::{Arrived, HostMemory, HostPtr, Link, Outgoing};
use unisono_link_window::{
    AREAS_AT, Area, Coherent, PipeReader, PipeWriter, Reading, Region, Shape, Window, WindowLink,
};

const SHAPE: Shape = Shape { channels: 2, units: 8, slots: 3, slot_bytes: 128 };
const AREAS: [Area; 3] =
    [Area::Link { peer: 0, shape: SHAPE }, Area::ToBoard(64), Area::ToHost(64)];

/// One step of a test; `Write` is the hostile one.
#[derive(Clone, Debug)]
enum Step {
    /// The peer sends something sound.
    Send { channel: usize, bytes: Option<usize>, long: bool },
    /// The peer writes a word into the area of the link.
    Write { at: usize, value: u32 },
    /// The peer flips one bit there.
    Flip { at: usize, bit: u32 },
    /// The victim looks, and does with a frame what an engine does.
    Look { channel: usize, keep: bool },
    /// The victim sends.
    Answer { channel: usize, bytes: Option<usize> },
    /// The victim gives a span back, whether it has one or not.
    Release { channel: usize, handle: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let channel = 0..3usize;
    let bytes = || prop::option::of(0..200usize);
    let at = 0..SHAPE.bytes().expect("a shape that can be") as usize / 4;
    // Small numbers, and tails that are due, hit more than any number does.
    let value = prop_oneof![any::<u32>(), 0..20u32, Just(0xffff), (0..4u32).prop_map(|n| n << 16)];
    let step = prop_oneof![
        (channel.clone(), bytes(), any::<bool>()).prop_map(|(channel, bytes, long)| Step::Send {
            channel,
            bytes,
            long
        }),
        (at.clone(), value).prop_map(|(at, value)| Step::Write { at: 4 * at, value }),
        (at, 0..32u32).prop_map(|(at, bit)| Step::Flip { at: 4 * at, bit }),
        (channel.clone(), any::<bool>()).prop_map(|(channel, keep)| Step::Look { channel, keep }),
        (channel.clone(), bytes()).prop_map(|(channel, bytes)| Step::Answer { channel, bytes }),
        (channel, any::<u32>()).prop_map(|(channel, h)| Step::Release { channel, handle: h % 70 }),
    ];
    prop::collection::vec(step, 1..60)
}

fn header(bytes: Option<usize>, long: bool) -> Header {
    let (kind, dtype) = (Kind::AllReduce, DType::U8);
    let print = Fingerprint { kind, dtype, op: None, root: 0, count: u64::MAX, plan: u64::MAX };
    let data = |bytes| Data {
        chunk: 1,
        phase: Phase::Result,
        form: Form::Final,
        weight: Scalar(0),
        limit: 7,
        bytes,
    };
    let body = match bytes {
        Some(bytes) => Body::Data(data(bytes as u32)),
        None if long => Body::Abort(Abort::Mismatch { a: 0, a_print: print, b: 1, b_print: print }),
        None => Body::Credit { limit: 3 },
    };
    Header { epoch: 0, op: 0, from: 0, print, body }
}

type End = WindowLink<HostPtr, Coherent>;

fn send(end: &mut End, channel: usize, bytes: Option<usize>, long: bool) {
    if !end.has_room(channel) {
        return;
    }
    let mut content = vec![0xa5; bytes.unwrap_or(0)];
    let mem = HostPtr::new(content.as_mut_ptr());
    let out = match bytes {
        Some(bytes) => Outgoing::At { mem, bytes, window: None },
        None => Outgoing::None,
    };
    // SAFETY: this link copies a payload when it is sent.
    let _ = unsafe { end.send(channel, &header(bytes, long), out, 1) };
    end.poll_sent(channel);
}

fn look(end: &mut End, channel: usize, keep: bool) {
    let Ok(Some(frame)) = end.poll_frame(channel) else { return };
    let bytes = frame.header.payload_len() as usize;
    match frame.payload {
        Arrived::None | Arrived::Put => end.take(channel),
        Arrived::Span { mem, handle, .. } => {
            end.take(channel);
            // SAFETY: that is what a span promises, and what is put to the test.
            let content = unsafe { std::slice::from_raw_parts(mem.as_ptr(), bytes) };
            std::hint::black_box(content.iter().map(|&x| u64::from(x)).sum::<u64>());
            if !keep {
                end.release(channel, handle);
            }
        }
        Arrived::Stream => {
            let mut into = vec![0u8; bytes + 16];
            let mem = HostPtr::new(into.as_mut_ptr());
            // SAFETY: longer than the payload by a margin that nobody may touch.
            let _ = unsafe { end.receive(channel, keep.then_some(mem)) };
            assert_eq!(into[bytes..], [0; 16], "more than the header says");
        }
    }
}

/// Memory with a margin on both sides.
struct Guarded {
    words: Vec<u64>,
    bytes: usize,
}

const MARGIN: usize = 512;

impl Guarded {
    fn new(bytes: usize) -> Self {
        Self { words: vec![0x5a5a_5a5a_5a5a_5a5a; 2 * MARGIN / 8 + bytes.div_ceil(64) * 8], bytes }
    }

    fn window(&mut self) -> Window {
        let start = self.words.as_mut_ptr().cast::<u8>().wrapping_add(MARGIN);
        let base = NonNull::new(start).expect("an address");
        // SAFETY: within the vector, which outlives the windows of a test.
        unsafe { Window::new(base, self.bytes) }
    }

    fn check(&self) {
        let margin = |part: &[u64]| part.iter().all(|&w| w == 0x5a5a_5a5a_5a5a_5a5a);
        let (front, rest) = self.words.split_at(MARGIN / 8);
        assert!(margin(front) && margin(&rest[rest.len() - MARGIN / 8..]), "out of the window");
    }
}

fn word(window: &Window, at: usize) -> &std::sync::atomic::AtomicU32 {
    let at = window.span(at, 4).expect("within the window");
    // SAFETY: an aligned word of memory that lives as long as the window.
    unsafe { at.cast().as_ref() }
}

fn run(steps: &[Step], reading: Reading) {
    use std::sync::atomic::Ordering::Relaxed;
    let mut memory = Guarded::new(Region::needed(&AREAS).expect("areas that can be") as usize);
    let window = memory.window();
    let region = Region::format(window.clone(), &AREAS).expect("they fit");
    let other = Region::open(window.clone()).expect("laid out");
    let mut victim: End = WindowLink::new(&region, 0, reading, Coherent).expect("there");
    let mut peer: End = WindowLink::new(&other, 0, Reading::Copied, Coherent).expect("there");
    for step in steps {
        match *step {
            Step::Send { channel, bytes, long } => send(&mut peer, channel, bytes, long),
            Step::Write { at, value } => word(&window, AREAS_AT + at).store(value, Relaxed),
            Step::Flip { at, bit } => {
                let word = word(&window, AREAS_AT + at);
                word.store(word.load(Relaxed) ^ 1 << bit, Relaxed);
            }
            Step::Look { channel, keep } => look(&mut victim, channel, keep),
            Step::Answer { channel, bytes } => send(&mut victim, channel, bytes, false),
            Step::Release { channel, handle } => victim.release(channel, handle),
        }
    }
    for channel in 0..3 {
        assert!(victim.withdraw(channel), "nothing is lent");
    }
    drop((victim, peer));
    memory.check();
}

fn numbers() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), 0..6000u32]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_hostile_peer_does_no_harm(steps in steps(), in_place in any::<bool>()) {
        run(&steps, if in_place { Reading::InPlace } else { Reading::Copied });
    }

    #[test]
    fn any_bytes_are_a_region_or_an_error(
        words in prop::collection::vec((0..1100usize, numbers()), 0..80),
        sound in any::<bool>(),
    ) {
        use std::sync::atomic::Ordering::Relaxed;
        let mut memory = Guarded::new(Region::needed(&AREAS).expect("they can be") as usize);
        let window = memory.window();
        if sound {
            Region::format(window.clone(), &AREAS).expect("they fit");
        }
        for (at, value) in words {
            // Magic and version stay: what follows is what is to be judged.
            word(&window, 8 + 4 * at).store(value, Relaxed);
        }
        if let Ok(region) = Region::open(window.clone()) {
            for peer in 0..3 {
                if let Ok(mut end) = End::new(&region, peer, Reading::Copied, Coherent) {
                    look(&mut end, 0, true);
                    send(&mut end, 0, Some(60), false);
                }
            }
            let pipe = |a| matches!(a, Area::ToBoard(_));
            if let Ok(mut reader) = PipeReader::new(&region, pipe, Coherent) {
                let _ = (reader.read_ready(), reader.get(&mut [0; 100]));
            }
            if let Ok(mut writer) = PipeWriter::new(&region, pipe, Coherent) {
                let _ = (writer.write_ready(), writer.put(&[1; 100]));
            }
        }
        memory.check();
    }

    #[test]
    fn pipes_pass_bytes_on_in_order(parts in prop::collection::vec(1..150usize, 1..40)) {
        let mut memory = Guarded::new(Region::needed(&AREAS).expect("they can be") as usize);
        let region = Region::format(memory.window(), &AREAS).expect("they fit");
        let pipe = |a| matches!(a, Area::ToHost(_));
        let mut writer = PipeWriter::new(&region, pipe, Coherent).expect("there");
        let mut reader = PipeReader::new(&region, pipe, Coherent).expect("there");
        let (mut next, mut seen) = (0u8, 0u8);
        for part in parts {
            let bytes: Vec<u8> = (0..part as u8).map(|i| next.wrapping_add(i)).collect();
            let put = writer.put(&bytes).expect("sound counters");
            prop_assert!(put == part.min(64) || put < part);
            next = next.wrapping_add(put as u8);
            let mut into = [0; 50];
            let got = reader.get(&mut into).expect("sound counters");
            for &byte in &into[..got] {
                prop_assert_eq!(byte, seen);
                seen = seen.wrapping_add(1);
            }
        }
        memory.check();
    }
}
