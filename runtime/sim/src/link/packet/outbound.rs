//! A frame on its way into a reliable channel, piece by piece.

use super::PIECE;
use crate::hub::Hub;
use crate::memory::Mem;
use unisono_core::wire::{TRAILER, crc32c_append};

#[derive(Debug)]
pub(super) struct Outbound {
    pub channel: usize,
    /// What comes before and after the payload.
    pub head: Vec<u8>,
    pub payload: Payload,
    pub token: Option<u32>,
    /// Bytes that the channel has taken.
    pub done: usize,
    pub crc: u32,
    pub number: u64,
}

#[derive(Debug)]
pub(super) enum Payload {
    /// Still the member's.
    Lent(Mem, usize),
    /// A copy, because the member has taken its memory back.
    Own(Vec<u8>),
}

impl Payload {
    pub const fn len(&self) -> usize {
        match self {
            Self::Lent(_, len) => *len,
            Self::Own(bytes) => bytes.len(),
        }
    }
}

impl Outbound {
    pub const fn len(&self) -> usize {
        self.head.len() + self.payload.len() + TRAILER
    }

    /// Appends the next piece to a message.
    pub fn piece(&mut self, hub: &Hub, message: &mut Vec<u8>) {
        let (head, body) = (self.head.len(), self.head.len() + self.payload.len());
        let end = self.len().min(self.done + PIECE);
        while self.done < end {
            let upto = if self.done < head {
                message.extend_from_slice(&self.head[self.done..end.min(head)]);
                end.min(head)
            } else if self.done < body {
                let (from, upto) = (self.done - head, end.min(body) - head);
                let before = message.len();
                match &self.payload {
                    Payload::Own(bytes) => message.extend_from_slice(&bytes[from..upto]),
                    Payload::Lent(mem, len) => match hub.memory.borrow().read(*mem, *len) {
                        Ok(bytes) => message.extend_from_slice(&bytes[from..upto]),
                        Err(why) => {
                            hub.complain(why);
                            message.resize(before + upto - from, 0);
                        }
                    },
                }
                self.crc = crc32c_append(self.crc, &message[before..]);
                upto + head
            } else {
                message.extend_from_slice(&self.crc.to_le_bytes()[self.done - body..end - body]);
                end
            };
            self.done = upto;
        }
    }
}
