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

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_io::ErrorType;
    use std::collections::VecDeque;

    /// A port that takes and gives a few bytes at a time.
    #[derive(Default)]
    struct Port {
        to_board: VecDeque<u8>,
        to_host: Vec<u8, 4096>,
        room: usize,
    }

    impl ErrorType for Port {
        type Error = core::convert::Infallible;
    }

    impl Read for Port {
        fn read(&mut self, buf: &mut [u8]) -> Result<usize, Self::Error> {
            let n = buf.len().min(self.to_board.len()).min(7);
            buf.iter_mut().zip(self.to_board.drain(..n)).for_each(|(to, byte)| *to = byte);
            Ok(n)
        }
    }

    impl ReadReady for Port {
        fn read_ready(&mut self) -> Result<bool, Self::Error> {
            Ok(!self.to_board.is_empty())
        }
    }

    impl Write for Port {
        fn write(&mut self, buf: &[u8]) -> Result<usize, Self::Error> {
            let n = buf.len().min(self.room);
            self.room -= n;
            self.to_host.extend_from_slice(&buf[..n]).expect("room");
            Ok(n)
        }

        fn flush(&mut self) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    impl WriteReady for Port {
        fn write_ready(&mut self) -> Result<bool, Self::Error> {
            Ok(self.room > 0)
        }
    }

    fn coded(message: &ToBoard, content: &[u8]) -> std::vec::Vec<u8> {
        let (mut whole, mut out) = ([0; WHOLE], [0; CODED]);
        let len = board::encode(message, content, &mut whole).expect("room");
        let len = cobs_encode(&whole[..len], &mut out).expect("room");
        out[..len].to_vec()
    }

    #[test]
    fn messages_come_in_whole_and_noise_between_them_is_told() {
        let mut room = Line::room();
        let (mut line, mut port) = (Line::new(&mut room), Port::default());
        let write = ToBoard::Write { at: 3 };
        port.to_board.extend(coded(&write, &[9; CONTENT_MAX]));
        port.to_board.extend([1, 2, 3, 0]);
        port.to_board.extend([7; 5000]);
        port.to_board.push_back(0);
        port.to_board.extend(coded(&ToBoard::Status, &[]));
        let content = Vec::from_slice(&[9; CONTENT_MAX]).expect("as long");
        assert_eq!(line.pull(&mut port), Some(Ok((write, content))));
        let mut garbled = 0;
        let status = loop {
            match line.pull(&mut port).expect("there is more") {
                Ok(message) => break message,
                Err(Garbled) => garbled += 1,
            }
        };
        assert_eq!(status, (ToBoard::Status, Vec::new()));
        assert!(garbled <= 2);
        assert_eq!(line.pull(&mut port), None);
    }

    #[test]
    fn a_message_goes_out_as_there_is_room() {
        let mut room = Line::room();
        let (mut line, mut port) = (Line::new(&mut room), Port::default());
        line.send(&FromBoard::Content { at: 5 }, &[4; 100]);
        assert!(!line.is_free() && !line.push(&mut port));
        while !line.is_free() {
            port.room = 9;
            assert!(line.push(&mut port));
        }
        let mut room = [0; CODED];
        let mut reader = CobsReader::new(&mut room);
        let bytes = reader.next(&mut &port.to_host[..]).expect("whole");
        let (message, content) = board::decode::<FromBoard>(bytes).expect("sound");
        assert_eq!((message, content), (FromBoard::Content { at: 5 }, &[4; 100][..]));
    }
}
