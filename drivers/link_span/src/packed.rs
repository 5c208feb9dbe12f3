//! A frame as it lies in memory: two cache lines, whatever it says.
//!
//! Moving a line from one core to another is what a small message costs, so everything that a data
//! frame needs, up to [`INLINE`] bytes of payload included, is in two neighbouring lines. It is
//! plain numbers: the other end may be another process, and whatever bits it leaves there decode
//! to a frame or to nothing.

use unisono_core::wire::frame::{Body, Data, Fingerprint, HEADER_MAX, Header, Phase};
use unisono_core::wire::frame::{decode_head, encode_head};
use unisono_core::{DType, Form, Kind, ReduceOp, Scalar};

/// Bytes of payload that ride in a frame.
pub const INLINE: usize = 48;

/// What a frame carries beside its header. Memory goes by names that both ends understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cargo {
    /// No payload.
    None,
    /// The payload lies in the receiver's window.
    Put,
    /// The bytes are in the frame.
    Inline,
    /// The bytes are in the frame's buffer.
    Copied,
    /// The bytes are at `mem`.
    At {
        /// Where.
        mem: u64,
        /// Where the answer may be written.
        window: Option<u64>,
    },
}

/// What a frame says: the low two bits of [`Packed::body`].
const DATA: u8 = 0;
const CREDIT: u8 = 1;
const AGREE: u8 = 2;
const ABORT: u8 = 3;

/// Of data, a result: a bit of [`Packed::body`].
const RESULT: u8 = 1 << 2;

/// Where the form (two bits) and the place of the payload (three) begin in [`Packed::body`].
const FORM: u8 = 3;
const PLACE: u8 = 5;

/// Kinds of payload.
const NONE: u8 = 0;
const PUT: u8 = 1;
const INSIDE: u8 = 2;
const AT: u8 = 3;
const BESIDE: u8 = 4;

/// The name of no memory.
const NOWHERE: u64 = u64::MAX;

const FORMS: [Form; 3] = [Form::Leaf, Form::Partial, Form::Final];

/// The content of a frame but for its state, which takes the first eight bytes of the pair.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Packed {
    op_id: u64,
    count: u64,
    plan: u64,
    /// Chunk of data, round of an agreement.
    chunk: u64,
    limit: u64,
    weight: u64,
    epoch: u32,
    bytes: u32,
    from: u16,
    root: u16,
    kind: u8,
    dtype: u8,
    /// One more than the operator's code; 0 without one.
    op: u8,
    body: u8,
    /// The inline bytes, or the names of memory and window.
    room: [u64; INLINE / 8],
}

/// An abort whole, because its reason is too large for the pair of lines.
pub(crate) type Reason = [u8; HEADER_MAX];

impl Packed {
    /// An unused frame.
    pub const EMPTY: Self = Self {
        op_id: 0,
        count: 0,
        plan: 0,
        chunk: 0,
        limit: 0,
        weight: 0,
        epoch: 0,
        bytes: 0,
        from: 0,
        root: 0,
        kind: 0,
        dtype: 0,
        op: 0,
        body: 0,
        room: [0; INLINE / 8],
    };

    /// Where the inline bytes are within the packed frame.
    pub const INLINE_AT: usize = core::mem::offset_of!(Self, room);

    /// Packs a frame; an abort's reason travels apart. `inline` are the bytes of
    /// [`Cargo::Inline`], at most [`INLINE`].
    pub fn new(header: &Header, cargo: Cargo, inline: &[u8]) -> Self {
        let (tag, chunk, limit, weight, bytes) = match header.body {
            Body::Data(d) => {
                let result = if d.phase == Phase::Result { RESULT } else { 0 };
                let tag = DATA | result | (d.form as u8) << FORM;
                (tag, d.chunk, d.limit, d.weight.0, d.bytes)
            }
            Body::Credit { limit } => (CREDIT, 0, limit, 0, 0),
            Body::Agree { round } => (AGREE, u64::from(round), 0, 0, 0),
            Body::Abort(_) => (ABORT, 0, 0, 0, 0),
        };
        let mut room = [0; INLINE / 8];
        let place = match cargo {
            Cargo::None => NONE,
            Cargo::Put => PUT,
            Cargo::Copied => BESIDE,
            Cargo::Inline => {
                for (word, bytes) in room.iter_mut().zip(inline.chunks(8)) {
                    let mut eight = [0; 8];
                    eight[..bytes.len()].copy_from_slice(bytes);
                    *word = u64::from_ne_bytes(eight);
                }
                INSIDE
            }
            Cargo::At { mem, window } => {
                room[0] = mem;
                room[1] = window.unwrap_or(NOWHERE);
                AT
            }
        };
        let Fingerprint { kind, dtype, op, root, count, plan } = header.print;
        let (epoch, op_id, from) = (header.epoch, header.op, header.from);
        let op = op.map_or(0, |op| op as u8 + 1);
        let (kind, dtype, body) = (kind as u8, dtype as u8, tag | place << PLACE);
        Self {
            op_id,
            count,
            plan,
            chunk,
            limit,
            weight,
            epoch,
            bytes,
            from,
            root,
            kind,
            dtype,
            op,
            body,
            room,
        }
    }

    /// The frame again; `abort` is what went apart. `None` if these bits are no frame.
    pub fn header(&self, abort: impl FnOnce() -> Option<Header>) -> Option<Header> {
        let body = match self.body & 3 {
            DATA => Body::Data(Data {
                chunk: self.chunk,
                phase: if self.body & RESULT == 0 { Phase::Contribution } else { Phase::Result },
                form: *FORMS.get(usize::from(self.body >> FORM & 3))?,
                weight: Scalar(self.weight),
                limit: self.limit,
                bytes: self.bytes,
            }),
            CREDIT => Body::Credit { limit: self.limit },
            AGREE => Body::Agree { round: self.chunk as u8 },
            _ => return abort(),
        };
        let op = match self.op {
            0 => None,
            code => Some(*ReduceOp::ALL.get(usize::from(code - 1))?),
        };
        let kind = *Kind::ALL.get(usize::from(self.kind))?;
        let dtype = *DType::ALL.get(usize::from(self.dtype))?;
        let Self { root, count, plan, .. } = *self;
        let print = Fingerprint { kind, dtype, op, root, count, plan };
        Some(Header { epoch: self.epoch, op: self.op_id, from: self.from, print, body })
    }

    /// What it carries.
    pub const fn cargo(&self) -> Cargo {
        match self.body >> PLACE {
            PUT => Cargo::Put,
            BESIDE => Cargo::Copied,
            INSIDE => Cargo::Inline,
            AT => {
                let [mem, window, ..] = self.room;
                let window = if window == NOWHERE { None } else { Some(window) };
                Cargo::At { mem, window }
            }
            _ => Cargo::None,
        }
    }
}

/// Packs an abort.
pub(crate) fn pack_abort(header: &Header) -> Reason {
    let mut reason = [0; HEADER_MAX];
    // It always fits; bytes that are no frame would be noticed by whoever reads them.
    let _ = encode_head(header, &mut reason);
    reason
}

/// The abort again.
pub(crate) fn unpack_abort(reason: &Reason) -> Option<Header> {
    let (header, _) = decode_head(reason).ok()?;
    matches!(header.body, Body::Abort(_)).then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::wire::frame::Abort;

    fn print() -> Fingerprint {
        let (kind, dtype, op) = (Kind::Reduce, DType::BF16, Some(ReduceOp::PreMulSum));
        Fingerprint { kind, dtype, op, root: 7, count: u64::MAX - 1, plan: 0x0123_4567_89ab_cdef }
    }

    #[test]
    fn every_body_and_cargo_survives() {
        let data = |form| {
            Body::Data(Data {
                chunk: u64::MAX,
                phase: Phase::Result,
                form,
                weight: Scalar(u64::MAX - 9),
                limit: 1 << 60,
                bytes: u32::MAX,
            })
        };
        let abort = Abort::Mismatch { a: 1, a_print: print(), b: 2, b_print: print() };
        let mut bodies = FORMS.map(data).to_vec();
        bodies.push(Body::Credit { limit: 5 });
        bodies.push(Body::Agree { round: 9 });
        bodies.push(Body::Abort(abort));
        let at = |window| Cargo::At { mem: 8, window };
        for body in bodies {
            for cargo in
                [Cargo::None, Cargo::Put, Cargo::Inline, Cargo::Copied, at(None), at(Some(9))]
            {
                let header = Header { epoch: 77, op: 1 << 50, from: 3, print: print(), body };
                let packed = Packed::new(&header, cargo, &[]);
                let reason = || unpack_abort(&pack_abort(&header));
                assert_eq!(packed.header(reason), Some(header));
                assert_eq!(packed.cargo(), cargo);
            }
        }
    }

    #[test]
    fn codes_are_the_places_in_the_lists() {
        for (code, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, code);
        }
        for (code, dtype) in DType::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, code);
        }
        for (code, op) in ReduceOp::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, code);
        }
        for (code, form) in FORMS.into_iter().enumerate() {
            assert_eq!(form as usize, code);
        }
    }

    #[test]
    fn any_bits_are_a_frame_or_none() {
        let body = Body::Credit { limit: 5 };
        let header = Header { epoch: 7, op: 5, from: 3, print: print(), body };
        let good = Packed::new(&header, Cargo::None, &[]);
        let no_abort = || None;
        for code in 0..=255u8 {
            let kind = Packed { kind: code, ..good };
            assert_eq!(kind.header(no_abort).is_some(), usize::from(code) < Kind::ALL.len());
            let dtype = Packed { dtype: code, ..good };
            assert_eq!(dtype.header(no_abort).is_some(), usize::from(code) < DType::ALL.len());
            let op = Packed { op: code, ..good };
            assert_eq!(op.header(no_abort).is_some(), usize::from(code) <= ReduceOp::ALL.len());
            let body = Packed { body: code, ..good };
            let no = code & 3 == ABORT || (code & 3 == DATA && code >> FORM & 3 == 3);
            assert_eq!(body.header(no_abort).is_none(), no);
            assert_eq!(unpack_abort(&[code; HEADER_MAX]), None);
        }
    }

    #[test]
    fn a_frame_is_two_lines() {
        // The state takes eight bytes.
        assert!(size_of::<Packed>() + 8 <= 128);
    }
}
