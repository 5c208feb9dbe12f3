//! How a payload lies in a stream: segments, each with a mark behind it.

/// Bytes of payload between two marks: long enough to cost nothing, short enough to fill up when
/// the payload is withdrawn.
pub(crate) const SEGMENT: u64 = 256 << 10;

/// The mark after a segment that others follow.
pub(crate) const MORE: u8 = 0x5a;
/// The mark after the last segment.
pub(crate) const WHOLE: u8 = 0xa5;
/// The mark after a segment whose frame has been withdrawn; what it holds means nothing.
pub(crate) const CUT: u8 = 0xc3;

/// A place in a payload as it lies in the stream, marks included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where the segment starts in the payload.
    pub start: u64,
    /// Bytes of the segment, its mark not counted.
    pub len: u64,
    /// Bytes of the segment before this place; `len` is the place of the mark.
    pub off: u64,
    /// Is this the last segment?
    pub last: bool,
}

impl Place {
    /// Where, in the stream, the next segment starts.
    pub(crate) const fn next(&self) -> u64 {
        self.start / SEGMENT * (SEGMENT + 1) + SEGMENT + 1
    }
}

/// What is at position `at` of a payload of `bytes` bytes; `None` if that is its end.
pub(crate) fn place(at: u64, bytes: u64) -> Option<Place> {
    let start = at / (SEGMENT + 1) * SEGMENT;
    let rest = bytes.checked_sub(start).filter(|rest| *rest > 0)?;
    let (len, last) = (rest.min(SEGMENT), rest <= SEGMENT);
    Some(Place { start, len, off: (at % (SEGMENT + 1)).min(len), last })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_every_mark_has_its_place_once() {
        for bytes in [0, 1, 7, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT, 3 * SEGMENT + 5] {
            let (mut at, mut payload, mut marks, mut lasts) = (0, 0, 0, 0);
            while let Some(p) = place(at, bytes) {
                assert_eq!(p.start + p.off, payload, "{bytes} at {at}");
                if p.off == p.len {
                    marks += 1;
                    lasts += u64::from(p.last);
                    at = p.next();
                } else {
                    // In the middle of a segment and to its end.
                    let step = (p.len - p.off).div_ceil(2);
                    payload += step;
                    at += step;
                }
            }
            assert_eq!((payload, marks), (bytes, bytes.div_ceil(SEGMENT)));
            assert_eq!(lasts, u64::from(bytes > 0));
        }
    }
}
