//! Messages on a byte stream that may lose or damage bytes: consistent overhead byte stuffing.
//!
//! Each message is encoded without the byte 0, and a 0 ends it. After any damage the reader is in
//! step again at the next 0. COBS only finds the borders; the checksum of what is inside decides.

use super::envelope::EncodeError;

/// Bytes that the encoding of `len` bytes takes at most, the closing 0 included.
#[must_use]
pub const fn cobs_max(len: usize) -> usize {
    // The library counts nothing for the empty message; see `cobs_encode`.
    let code = if len == 0 { 1 } else { ::cobs::max_encoding_length(len) };
    code.saturating_add(1)
}

/// Writes the encoding of `message` and its closing 0 to the start of `out`; returns their length.
///
/// # Errors
/// [`EncodeError::Room`] if `out` is shorter than [`cobs_max`] of the message.
pub fn cobs_encode(message: &[u8], out: &mut [u8]) -> Result<usize, EncodeError> {
    if out.len() < cobs_max(message.len()) {
        return Err(EncodeError::Room);
    }
    let mut len = ::cobs::try_encode(message, out).map_err(|_| EncodeError::Room)?;
    if message.is_empty() {
        // The library writes nothing then, and a reader could not tell it from an idle line.
        *out.first_mut().ok_or(EncodeError::Room)? = 1;
        len = 1;
    }
    *out.get_mut(len).ok_or(EncodeError::Room)? = 0;
    Ok(len + 1)
}

/// Cuts a byte stream into messages, in a buffer that the caller lends.
///
/// The buffer bounds a message: its encoding without the closing 0 must fit. A longer run of bytes
/// is skipped up to the next 0, so noise costs at most the messages that it hits.
#[derive(Debug)]
pub struct CobsReader<'a> {
    buf: &'a mut [u8],
    len: usize,
    /// The run is longer than the buffer: skip to its end.
    skipping: bool,
    skipped: u64,
}

impl<'a> CobsReader<'a> {
    /// A reader at the start of a message.
    pub const fn new(buf: &'a mut [u8]) -> Self {
        Self { buf, len: 0, skipping: false, skipped: 0 }
    }

    /// Forgets the part of a message that has been read: what follows is another stream.
    pub const fn clear(&mut self) {
        self.len = 0;
        self.skipping = false;
    }

    /// Runs of bytes that were too long or not COBS, and were dropped.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Takes bytes from the front of `input` up to the end of a message; moves `input` past them.
    ///
    /// Returns the message, or `None` once `input` is empty and more bytes are needed: call it in a
    /// loop until then. Zeros in a row, as an idle line may give, are passed over.
    pub fn next<'s>(&'s mut self, input: &mut &[u8]) -> Option<&'s [u8]> {
        loop {
            let (&byte, rest) = input.split_first()?;
            *input = rest;
            if byte != 0 {
                self.push(byte);
            } else if let Some(len) = self.finish() {
                return self.buf.get(..len);
            }
        }
    }

    fn push(&mut self, byte: u8) {
        match self.buf.get_mut(self.len) {
            Some(place) if !self.skipping => {
                *place = byte;
                self.len += 1;
            }
            _ => self.skipping = true,
        }
    }

    /// Ends the run of bytes; the message that it was now lies at the buffer's start, this long.
    fn finish(&mut self) -> Option<usize> {
        let run = core::mem::take(&mut self.len);
        let skipping = core::mem::take(&mut self.skipping);
        if run == 0 && !skipping {
            return None;
        }
        let decoded = if skipping {
            None
        } else {
            self.buf.get_mut(..run).and_then(|run| ::cobs::decode_in_place(run).ok())
        };
        self.skipped += u64::from(decoded.is_none());
        decoded
    }
}
