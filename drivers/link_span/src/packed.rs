//! A frame as it lies in memory: two cache lines, whatever it says.
//!
//! Moving a line from one core to another is what a small message costs, so everything that a data
//! frame needs, up to [`INLINE`] bytes of payload included, is in two neighbouring lines.

use unisono_core::wire::frame::{Abort, Body, Data, Fingerprint, Header, Phase};
use unisono_core::{DType, Form, Kind, ReduceOp, Scalar};

/// Bytes of payload that ride in a frame.
pub const INLINE: usize = 48;

/// What a frame carries beside its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cargo<M> {
    /// No payload.
    None,
    /// The payload lies in the receiver's window.
    Put,
    /// The bytes are in the frame.
    Inline,
    /// The bytes are at `mem`.
    At {
        /// Where.
        mem: M,
        /// Where the answer may be written.
        window: Option<M>,
    },
}

/// Body of the header.
#[derive(Clone, Copy)]
enum Tag {
    Data(Phase, Form),
    Credit,
    Agree,
    Abort,
}

/// Where the bytes of the payload are.
#[derive(Clone, Copy)]
union Room<M: Copy> {
    inline: [u8; INLINE],
    at: (M, Option<M>),
}

/// The content of a frame but for its state, which takes the first eight bytes of the pair.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Packed<M: Copy> {
    epoch: u32,
    kind: Kind,
    dtype: DType,
    op: Option<ReduceOp>,
    tag: Tag,
    place: u8,
    op_id: u64,
    count: u64,
    plan: u64,
    /// Chunk of data, round of an agreement.
    chunk: u64,
    limit: u64,
    weight: u64,
    from: u16,
    root: u16,
    bytes: u32,
    room: Room<M>,
}

/// Kinds of payload in [`Packed::place`].
const NONE: u8 = 0;
const PUT: u8 = 1;
const INSIDE: u8 = 2;
const AT: u8 = 3;

impl<M: Copy> Packed<M> {
    /// Packs a frame; an abort's reason travels apart. `inline` are the bytes of
    /// [`Cargo::Inline`], at most [`INLINE`].
    pub fn new(header: &Header, cargo: Cargo<M>, inline: &[u8]) -> Self {
        let (tag, chunk, limit, weight, bytes) = match header.body {
            Body::Data(d) => (Tag::Data(d.phase, d.form), d.chunk, d.limit, d.weight.0, d.bytes),
            Body::Credit { limit } => (Tag::Credit, 0, limit, 0, 0),
            Body::Agree { round } => (Tag::Agree, u64::from(round), 0, 0, 0),
            Body::Abort(_) => (Tag::Abort, 0, 0, 0, 0),
        };
        let mut bytes_inside = [0; INLINE];
        let (place, room) = match cargo {
            Cargo::None => (NONE, Room { inline: bytes_inside }),
            Cargo::Put => (PUT, Room { inline: bytes_inside }),
            Cargo::Inline => {
                bytes_inside[..inline.len()].copy_from_slice(inline);
                (INSIDE, Room { inline: bytes_inside })
            }
            Cargo::At { mem, window } => (AT, Room { at: (mem, window) }),
        };
        let Fingerprint { kind, dtype, op, root, count, plan } = header.print;
        let (epoch, op_id, from) = (header.epoch, header.op, header.from);
        Self {
            epoch,
            kind,
            dtype,
            op,
            tag,
            place,
            op_id,
            count,
            plan,
            chunk,
            limit,
            weight,
            from,
            root,
            bytes,
            room,
        }
    }

    /// The frame again; `abort` is the reason that went apart.
    pub fn header(&self, abort: impl FnOnce() -> Option<Abort>) -> Header {
        let body = match self.tag {
            Tag::Data(phase, form) => Body::Data(Data {
                chunk: self.chunk,
                phase,
                form,
                weight: Scalar(self.weight),
                limit: self.limit,
                bytes: self.bytes,
            }),
            Tag::Credit => Body::Credit { limit: self.limit },
            Tag::Agree => Body::Agree { round: self.chunk as u8 },
            Tag::Abort => Body::Abort(abort().unwrap_or(Abort::Protocol { rank: self.from })),
        };
        let Self { kind, dtype, op, root, count, plan, .. } = *self;
        let print = Fingerprint { kind, dtype, op, root, count, plan };
        Header { epoch: self.epoch, op: self.op_id, from: self.from, print, body }
    }

    /// What it carries.
    pub fn cargo(&self) -> Cargo<M> {
        match self.place {
            PUT => Cargo::Put,
            INSIDE => Cargo::Inline,
            AT => {
                // SAFETY: `new` has written this field for this kind of payload.
                let (mem, window) = unsafe { self.room.at };
                Cargo::At { mem, window }
            }
            _ => Cargo::None,
        }
    }

    /// Where the inline bytes are within the packed frame.
    pub const INLINE_AT: usize = core::mem::offset_of!(Self, room);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print() -> Fingerprint {
        let (kind, dtype, op) = (Kind::Reduce, DType::BF16, Some(ReduceOp::PreMulSum));
        Fingerprint { kind, dtype, op, root: 7, count: u64::MAX - 1, plan: 0x0123_4567_89ab_cdef }
    }

    #[test]
    fn every_body_and_cargo_survives() {
        let data = Data {
            chunk: u64::MAX,
            phase: Phase::Result,
            form: Form::Partial,
            weight: Scalar(u64::MAX - 9),
            limit: 1 << 60,
            bytes: u32::MAX,
        };
        let abort = Abort::Mismatch { a: 1, a_print: print(), b: 2, b_print: print() };
        let bodies = [
            Body::Data(data),
            Body::Credit { limit: 5 },
            Body::Agree { round: 9 },
            Body::Abort(abort),
        ];
        let at = |window| Cargo::At { mem: 8usize, window };
        for body in bodies {
            for cargo in [Cargo::None, Cargo::Put, at(None), at(Some(9))] {
                let header = Header { epoch: 77, op: 1 << 50, from: 3, print: print(), body };
                let packed = Packed::new(&header, cargo, &[]);
                assert_eq!(packed.header(|| Some(abort)), header);
                assert_eq!(packed.cargo(), cargo);
            }
        }
    }

    #[test]
    fn a_frame_is_two_lines() {
        // The state takes eight bytes, and `None` of an optional frame takes none.
        assert_eq!(size_of::<Option<Packed<usize>>>() + 8, 128);
    }
}
