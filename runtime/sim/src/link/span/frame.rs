//! A frame of a span link, and the ring that it is in.

use crate::hub::Hub;
use crate::memory::{LINK, Mem};
use std::collections::{BTreeMap, VecDeque};
use unisono_core::numeric::form_size;
use unisono_core::wire::frame::{Body, Header};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Sent,
    Busy,
    Revoked,
    Freed { seen_at: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub mem: Mem,
    pub bytes: u64,
    pub window: Option<Mem>,
    /// Bytes of the answer: those of the finished chunk.
    pub answer: u64,
    /// The bytes ride in the frame: `mem` is the link's own.
    pub inline: bool,
}

#[derive(Debug)]
pub(super) struct Frame {
    pub header: Header,
    pub span: Option<Span>,
    pub put: bool,
    /// The completion that the sender waits for.
    pub token: Option<u32>,
    pub state: State,
    pub seen_at: u64,
}

/// One direction of one channel.
#[derive(Debug, Default)]
pub(super) struct Ring {
    pub frames: BTreeMap<u32, Frame>,
    pub unread: VecDeque<u32>,
    pub copied: VecDeque<u32>,
    pub next: u32,
}

/// Bytes of the finished chunk that a data frame belongs to.
pub(super) fn answer(header: &Header) -> u64 {
    let Body::Data(data) = header.body else { return 0 };
    let dtype = header.print.dtype;
    u64::from(data.bytes) / form_size(dtype, data.form) as u64 * dtype.size() as u64
}

/// Copies a small payload into the frame.
pub(super) fn copy(hub: &Hub, mem: Mem, bytes: usize) -> Mem {
    let read = hub.memory.borrow().read_shared(mem, bytes).map(<[u8]>::to_vec);
    let content = read.unwrap_or_else(|why| {
        hub.complain(why);
        vec![0; bytes]
    });
    hub.memory.borrow_mut().alloc(LINK, "an inline payload".into(), content)
}
