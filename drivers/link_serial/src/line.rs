//! The line: bytes in and out, cut into frames.

use embedded_io::{Read, ReadReady, Write, WriteReady};
use heapless::{Deque, Vec};
use unisono_core::wire::cobs::{cobs_encode, cobs_max};

/// Ports of a line.
pub const PORTS: u8 = 128;

/// Bytes that are read at a time.
const INPUT: usize = 64;

/// A datagram that has come in, and for which port.
#[derive(Debug)]
struct Arrived<const LINE: usize> {
    port: u8,
    datagram: Vec<u8, LINE>,
}

/// One end of a serial line.
///
/// * `LINE`: bytes of the longest encoded frame; [`Line::mtu`] follows from it.
/// * `INBOX`: datagrams that wait to be taken by their ports. If there are more, the oldest is
///   lost.
#[derive(Debug)]
pub struct Line<IO, const LINE: usize, const INBOX: usize> {
    io: IO,
    /// Bytes that have been read and not been looked at: those after `seen`.
    input: Vec<u8, INPUT>,
    seen: usize,
    /// The encoded frame that is coming in; `too_long` if it cannot be one.
    run: Vec<u8, LINE>,
    too_long: bool,
    inbox: Deque<Arrived<LINE>, INBOX>,
    /// Ports that somebody listens at: bit p is port p.
    open: u128,
    /// The encoded frame that is going out, and how much of it has left.
    out: Vec<u8, LINE>,
    left: usize,
    spoilt: u64,
    lost: u64,
    closed: bool,
}

impl<IO, const LINE: usize, const INBOX: usize> Line<IO, LINE, INBOX> {
    /// Bytes of the longest datagram.
    const MTU: usize = {
        let mut len = LINE;
        while len > 0 && cobs_max(len + 1) > LINE {
            len -= 1;
        }
        assert!(len > 0, "a frame must have room for a datagram");
        assert!(INBOX > 0, "there must be room for a datagram that has come in");
        len
    };

    /// A line over this stream.
    #[must_use]
    pub const fn new(io: IO) -> Self {
        Self {
            io,
            input: Vec::new(),
            seen: 0,
            run: Vec::new(),
            too_long: false,
            inbox: Deque::new(),
            open: 0,
            out: Vec::new(),
            left: 0,
            spoilt: 0,
            lost: 0,
            closed: false,
        }
    }

    /// Bytes of the longest datagram.
    #[must_use]
    pub const fn mtu(&self) -> usize {
        Self::MTU
    }

    /// What carries the bytes.
    pub const fn io(&mut self) -> &mut IO {
        &mut self.io
    }

    /// Frames that were dropped because they were no frames.
    #[must_use]
    pub const fn spoilt(&self) -> u64 {
        self.spoilt
    }

    /// Datagrams that were dropped because nobody took them.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Ends all links over the line, because its other end is gone.
    pub const fn close(&mut self) {
        self.closed = true;
    }

    /// Is the line closed, by [`Line::close`] or by the end of its stream?
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Somebody listens at a port from now on, or no longer.
    pub(crate) fn set_open(&mut self, port: u8, open: bool) {
        let bit = 1u128.checked_shl(port.into()).unwrap_or(0);
        self.open = if open { self.open | bit } else { self.open & !bit };
        for _ in 0..self.inbox.len() {
            // What is left there belongs to nobody.
            if let Some(arrived) = self.inbox.pop_front().filter(|a| a.port != port) {
                // There is a place: one has just been taken out.
                let _ = self.inbox.push_back(arrived);
            }
        }
    }

    /// One more byte of a frame, or its end.
    fn take_in(&mut self, byte: u8) {
        if byte != 0 {
            self.too_long |= self.run.push(byte).is_err();
            return;
        }
        if self.run.is_empty() {
            return;
        }
        let whole = !core::mem::take(&mut self.too_long);
        let len = if whole { ::cobs::decode_in_place(&mut self.run).ok() } else { None };
        let is_open = |port: u8| 1u128.checked_shl(port.into()).unwrap_or(0) & self.open != 0;
        match len.and_then(|len| self.run.get(..len)).and_then(<[u8]>::split_first) {
            Some((&port, datagram)) if is_open(port) => {
                if self.inbox.is_full() {
                    self.inbox.pop_front();
                    self.lost += 1;
                }
                // As long as the run at most, and there is a place.
                let datagram = Vec::from_slice(datagram).unwrap_or_default();
                let _ = self.inbox.push_back(Arrived { port, datagram });
            }
            Some(_) => self.lost += 1,
            None => self.spoilt += 1,
        }
        self.run.clear();
    }
}

impl<IO, const LINE: usize, const INBOX: usize> Line<IO, LINE, INBOX>
where
    IO: Read + ReadReady + Write + WriteReady,
{
    /// May a datagram be sent now?
    pub fn has_room(&mut self) -> bool {
        self.push();
        self.out.is_empty()
    }

    /// Sends a datagram of at most [`Line::mtu`] bytes. Call only after [`Line::has_room`].
    pub fn send(&mut self, port: u8, datagram: &[u8]) {
        let mut frame: Vec<u8, LINE> = Vec::new();
        let fits = frame.push(port).is_ok() && frame.extend_from_slice(datagram).is_ok();
        if !fits || !self.out.is_empty() {
            self.lost += 1;
            return;
        }
        // Within the capacity by definition.
        let _ = self.out.resize_default(LINE);
        let len = cobs_encode(&frame, &mut self.out).unwrap_or(0);
        self.out.truncate(len);
        self.push();
    }

    /// Moves out what the stream takes now.
    fn push(&mut self) {
        while let Some(rest) = self.out.get(self.left..).filter(|rest| !rest.is_empty()) {
            if !self.io.write_ready().unwrap_or(false) {
                return;
            }
            // What a stream fails to send is lost; the reliable machine sends it again.
            self.left += self.io.write(rest).unwrap_or(rest.len());
        }
        self.out.clear();
        self.left = 0;
    }

    /// Moves the next datagram for a port to the start of `into`; returns its length.
    pub fn receive(&mut self, port: u8, into: &mut [u8]) -> Option<usize> {
        self.pull();
        let mut found = None;
        // All the way round, so that the others keep their order.
        for _ in 0..self.inbox.len() {
            let arrived = self.inbox.pop_front()?;
            if arrived.port != port || found.is_some() {
                // There is a place: one has just been taken out.
                let _ = self.inbox.push_back(arrived);
                continue;
            }
            match into.get_mut(..arrived.datagram.len()) {
                Some(place) => {
                    place.iter_mut().zip(&arrived.datagram).for_each(|(to, byte)| *to = *byte);
                    found = Some(place.len());
                }
                None => self.lost += 1,
            }
        }
        found
    }

    /// Takes in what has come, until a datagram is whole.
    fn pull(&mut self) {
        let before = (self.inbox.len(), self.lost);
        while (self.inbox.len(), self.lost) == before {
            if let Some(&byte) = self.input.get(self.seen) {
                self.seen += 1;
                self.take_in(byte);
                continue;
            }
            self.input.clear();
            self.seen = 0;
            if !self.io.read_ready().unwrap_or(false) {
                return;
            }
            let mut bytes = [0; INPUT];
            // What a stream fails to read is lost; one that has ended is ready and gives nothing.
            let Ok(len) = self.io.read(&mut bytes) else { return };
            if len == 0 {
                self.closed = true;
                return;
            }
            // As long as the room.
            let _ = self.input.extend_from_slice(bytes.get(..len).unwrap_or_default());
        }
    }
}
