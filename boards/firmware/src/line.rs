//! The line to the host: messages in COBS over any stream of bytes, without ever blocking.

use embedded_io::{Read, ReadReady, Write, WriteReady};
use heapless::Vec;
use unisono_core::wire::board::{self, CONTENT_MAX, FromBoard, MESSAGE_MAX, ToBoard};
use unisono_core::wire::cobs::{CobsReader, cobs_encode, cobs_max};

/// Bytes of a message with content, and of its encoding.
const WHOLE: usize = MESSAGE_MAX + CONTENT_MAX;
const CODED: usize = cobs_max(WHOLE);

/// Memory that a [`Line`] reads messages into.
pub type Room = [u8; CODED];

/// Both directions of the line.
#[derive(Debug)]
pub struct Line<'a> {
    reader: CobsReader<'a>,
    /// Bytes that have been read and not been looked at.
    input: Vec<u8, 64>,
    /// The message that is going out, and how much of it has left.
    out: Vec<u8, CODED>,
    left: usize,
}

impl<'a> Line<'a> {
    /// A line that reads messages into this memory.
    #[must_use]
    pub const fn new(room: &'a mut Room) -> Self {
        Self { reader: CobsReader::new(room), input: Vec::new(), out: Vec::new(), left: 0 }
    }

    /// Empty memory for a line.
    #[must_use]
    pub const fn room() -> Room {
        [0; CODED]
    }

    /// May a message be sent? There is room for one.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.out.is_empty()
    }

    /// Sends a message; call only if the line is free.
    pub fn send(&mut self, message: &FromBoard, content: &[u8]) {
        let mut whole = [0; WHOLE];
        let len = board::encode(message, content, &mut whole).unwrap_or(0);
        let Some(bytes) = whole.get(..len).filter(|b| !b.is_empty() && self.out.is_empty()) else {
            return;
        };
        // Within the capacity by definition.
        let _ = self.out.resize_default(CODED);
        let coded = cobs_encode(bytes, &mut self.out).unwrap_or(0);
        self.out.truncate(coded);
    }

    /// Moves what goes out; true if anything moved.
    pub fn push<P: Write + WriteReady>(&mut self, port: &mut P) -> bool {
        let mut moved = false;
        while let Some(rest) = self.out.get(self.left..).filter(|rest| !rest.is_empty()) {
            if !port.write_ready().unwrap_or(false) {
                return moved;
            }
            // A port that fails loses the message; the host notices that its answer is missing.
            self.left += port.write(rest).unwrap_or(rest.len());
            moved = true;
        }
        self.out.clear();
        self.left = 0;
        moved
    }

    /// The next message that has come in whole, and its content; [`Garbled`] for bytes that are no
    /// message. `None` if there is none yet.
    pub fn pull<P: Read + ReadReady>(&mut self, port: &mut P) -> Option<Result<Pulled, Garbled>> {
        loop {
            if self.input.is_empty() {
                let mut bytes = [0; 64];
                if !port.read_ready().unwrap_or(false) {
                    return None;
                }
                let n = port.read(&mut bytes).ok().filter(|&n| n > 0)?;
                self.input.extend(bytes.into_iter().take(n));
            }
            let mut rest = &self.input[..];
            let pulled = self.reader.next(&mut rest).map(|message| {
                let (message, content) = board::decode(message).map_err(|_| Garbled)?;
                Ok((message, Vec::from_slice(content).map_err(|_| Garbled)?))
            });
            let seen = self.input.len() - rest.len();
            self.input.copy_within(seen.., 0);
            self.input.truncate(self.input.len() - seen);
            if pulled.is_some() {
                return pulled;
            }
        }
    }
}

/// A message of the host and its content.
pub type Pulled = (ToBoard, Vec<u8, CONTENT_MAX>);

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes on the line are no message")]
pub struct Garbled;
