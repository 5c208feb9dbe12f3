//! For links over serial lines: a wire of bytes, and noise on it.

use crate::packet::Chance;
use embedded_io::{ErrorType, Read, ReadReady, Write, WriteReady};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

type Queue = Arc<Mutex<VecDeque<u8>>>;

/// Bytes that a wire holds: as much as the buffer of a UART.
const WIRE: usize = 256;

/// What a wire does to bytes, in so many of 100 000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noise {
    /// A bit changed.
    pub flip: u32,
    /// Lost.
    pub loss: u32,
    /// Arrived twice.
    pub twice: u32,
}

/// One end of a wire in memory. See [`wire`].
#[derive(Debug)]
pub struct Wire {
    out: Queue,
    inc: Queue,
    noise: Noise,
    chance: Chance,
}

/// Both ends of a wire with noise on what each of them receives.
#[must_use]
pub fn wire(noise: Noise, seed: u64) -> (Wire, Wire) {
    let (out, inc) = (Queue::default(), Queue::default());
    let chance = Chance::new(seed);
    let other = Wire { out: inc.clone(), inc: out.clone(), noise, chance: chance.clone() };
    (Wire { out, inc, noise, chance }, other)
}

impl Wire {
    /// Bytes that a queue takes now; all, if nobody is at the other end.
    fn room(&self) -> usize {
        let held = self.out.lock().unwrap_or_else(PoisonError::into_inner).len();
        if Arc::strong_count(&self.out) == 1 { WIRE } else { WIRE.saturating_sub(held) }
    }

    /// The next byte as it arrives.
    fn next(&mut self) -> Option<u8> {
        let mut inc = self.inc.lock().unwrap_or_else(PoisonError::into_inner);
        let Noise { flip, loss, twice } = self.noise;
        loop {
            let mut byte = inc.pop_front()?;
            let draw = self.chance.below(100_000) as u32;
            if draw < loss {
                continue;
            } else if draw < loss + twice {
                inc.push_front(byte);
            } else if draw < loss + twice + flip {
                byte ^= 1 << self.chance.below(8);
            }
            return Some(byte);
        }
    }
}

impl ErrorType for Wire {
    type Error = Infallible;
}

impl ReadReady for Wire {
    fn read_ready(&mut self) -> Result<bool, Infallible> {
        Ok(!self.inc.lock().unwrap_or_else(PoisonError::into_inner).is_empty())
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Infallible> {
        let mut len = 0;
        while let Some((place, byte)) = into.get_mut(len).and_then(|p| Some((p, self.next()?))) {
            *place = byte;
            len += 1;
        }
        Ok(len)
    }
}

impl WriteReady for Wire {
    fn write_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.room() > 0)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        let len = bytes.len().min(self.room());
        if Arc::strong_count(&self.out) > 1 {
            let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            out.extend(&bytes[..len]);
        }
        Ok(len)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
