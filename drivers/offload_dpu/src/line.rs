//! The host's end of the control line.

use std::collections::VecDeque;
use unisono_core::wire::board::{self, CONTENT_MAX, FromBoard, MESSAGE_MAX, ToBoard};
use unisono_core::wire::cobs::{CobsReader, cobs_encode, cobs_max};
use unisono_link_window::{Area, Coherent, PipeError, PipeReader, PipeWriter, Region, RegionError};

const WHOLE: usize = MESSAGE_MAX + CONTENT_MAX;
const CODED: usize = cobs_max(WHOLE);

/// Both pipes, and what is under way in them.
pub struct Line {
    to: PipeWriter<Coherent>,
    from: PipeReader<Coherent>,
    /// Bytes that have not found room yet.
    out: VecDeque<u8>,
    /// A message that has not come in whole.
    part: Vec<u8>,
}

impl Line {
    pub fn new(region: &Region) -> Result<Self, RegionError> {
        let to = PipeWriter::new(region, |a| matches!(a, Area::ToBoard(_)), Coherent)?;
        let from = PipeReader::new(region, |a| matches!(a, Area::ToHost(_)), Coherent)?;
        Ok(Self { to, from, out: VecDeque::new(), part: Vec::new() })
    }

    /// Sends a message; what finds no room goes out with later calls of [`Line::push`].
    pub fn send(&mut self, message: &ToBoard, content: &[u8]) -> Result<(), PipeError> {
        let mut whole = [0; WHOLE];
        let mut coded = [0; CODED];
        // Room for the largest message and its encoding.
        let len = board::encode(message, content, &mut whole).unwrap_or(0);
        let len = cobs_encode(&whole[..len], &mut coded).unwrap_or(0);
        self.out.extend(&coded[..len]);
        self.push()
    }

    /// Moves what goes out.
    pub fn push(&mut self) -> Result<(), PipeError> {
        let put = self.to.put(self.out.make_contiguous())?;
        self.out.drain(..put);
        Ok(())
    }

    /// The next message that has come in whole. Bytes that are none are skipped: a board that has
    /// just been started may have an old line.
    pub fn pull(&mut self) -> Result<Option<(FromBoard, Vec<u8>)>, PipeError> {
        loop {
            let mut byte = [0];
            if self.from.get(&mut byte)? == 0 {
                return Ok(None);
            }
            if byte[0] != 0 {
                self.part.push(byte[0]);
                // Longer than any message is noise; its end will be found all the same.
                self.part.truncate(CODED);
                continue;
            }
            self.part.push(0);
            let mut room = [0; CODED];
            let mut reader = CobsReader::new(&mut room);
            let message = reader.next(&mut &self.part[..]).and_then(|bytes| {
                let (message, content) = board::decode(bytes).ok()?;
                Some((message, content.to_vec()))
            });
            self.part.clear();
            if message.is_some() {
                return Ok(message);
            }
        }
    }
}
