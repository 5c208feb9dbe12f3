//! Pipes: bytes in one direction, for control messages and logs.

use crate::bus::Bus;
use crate::region::{Area, Region, RegionError};
use crate::window::Window;
use core::sync::atomic::Ordering::Relaxed;
use embedded_io::{ErrorKind, ErrorType, Read, ReadReady, Write, WriteReady};

/// Where the counters and the data of a pipe are.
const WRITTEN: usize = 0;
const READ: usize = 64;
const DATA: usize = 128;

/// The other side has written a counter that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pipe's counters are nonsense")]
pub struct PipeError;

impl embedded_io::Error for PipeError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::InvalidData
    }
}

#[derive(Debug)]
struct Pipe<B> {
    window: Window,
    bus: B,
    at: usize,
    bytes: u32,
    /// This end's counter.
    own: u32,
}

impl<B: Bus> Pipe<B> {
    fn new(region: &Region, wanted: fn(Area) -> bool, bus: B) -> Result<Self, RegionError> {
        let (area, at) = region.find(wanted)?;
        let (Area::ToBoard(bytes) | Area::ToHost(bytes) | Area::Log(bytes)) = area else {
            return Err(RegionError::Missing);
        };
        Ok(Self { window: region.window().clone(), bus, at, bytes, own: 0 })
    }

    fn counter(&self, which: usize) -> Result<u32, PipeError> {
        self.window.word(self.at + which).map(|word| word.load(Relaxed)).ok_or(PipeError)
    }

    fn set(&mut self, which: usize, value: u32) -> Result<(), PipeError> {
        self.bus.publish();
        self.window.word(self.at + which).ok_or(PipeError)?.store(value, Relaxed);
        self.own = value;
        self.bus.ring();
        Ok(())
    }

    /// Bytes in the pipe, by the two counters.
    fn used(&self, written: u32, read: u32) -> Result<usize, PipeError> {
        let used = written.wrapping_sub(read);
        if used <= self.bytes { Ok(used as usize) } else { Err(PipeError) }
    }

    /// The longest span from position `from` on, at most `most` bytes: it ends at the ring's end.
    fn span(&self, from: u32, most: usize) -> Result<(*mut u8, usize), PipeError> {
        // A power of two.
        let at = from & (self.bytes - 1);
        let bytes = most.min((self.bytes - at) as usize);
        let span = self.window.span(self.at + DATA + at as usize, bytes).ok_or(PipeError)?;
        Ok((span.as_ptr(), bytes))
    }
}

/// The end of a pipe that bytes go into. There is one at a time.
#[derive(Debug)]
pub struct PipeWriter<B>(Pipe<B>);

/// The end of a pipe that bytes come out of. There is one at a time.
#[derive(Debug)]
pub struct PipeReader<B>(Pipe<B>);

impl<B: Bus> PipeWriter<B> {
    /// This side's end of the pipe of this kind.
    ///
    /// # Errors
    /// If the region has none.
    pub fn new(region: &Region, wanted: fn(Area) -> bool, bus: B) -> Result<Self, RegionError> {
        let mut pipe = Pipe::new(region, wanted, bus)?;
        pipe.own = pipe.counter(WRITTEN).unwrap_or(0);
        Ok(Self(pipe))
    }

    /// Bytes that can be written now.
    ///
    /// # Errors
    /// If the reader has written nonsense.
    pub fn room(&mut self) -> Result<usize, PipeError> {
        let read = self.0.counter(READ)?;
        self.0.bus.observe();
        Ok(self.0.bytes as usize - self.0.used(self.0.own, read)?)
    }

    /// Has the reader taken all that was written?
    ///
    /// # Errors
    /// If the reader has written nonsense.
    pub fn is_taken(&mut self) -> Result<bool, PipeError> {
        Ok(self.room()? == self.0.bytes as usize)
    }

    /// Writes as much as there is room for; returns how much that was.
    ///
    /// # Errors
    /// If the reader has written nonsense.
    pub fn put(&mut self, bytes: &[u8]) -> Result<usize, PipeError> {
        let len = self.room()?.min(bytes.len());
        let mut done = 0;
        while done < len {
            let from = self.0.own.wrapping_add(done as u32);
            let (to, n) = self.0.span(from, len - done)?;
            let part = bytes.get(done..done + n).ok_or(PipeError)?;
            // SAFETY: the span is `n` bytes, and the reader is done with it.
            unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), to, n) };
            done += n;
        }
        if len > 0 {
            let written = self.0.own.wrapping_add(len as u32);
            self.0.set(WRITTEN, written)?;
        }
        Ok(len)
    }
}

impl<B: Bus> PipeReader<B> {
    /// This side's end of the pipe of this kind.
    ///
    /// # Errors
    /// If the region has none.
    pub fn new(region: &Region, wanted: fn(Area) -> bool, bus: B) -> Result<Self, RegionError> {
        let mut pipe = Pipe::new(region, wanted, bus)?;
        pipe.own = pipe.counter(READ).unwrap_or(0);
        Ok(Self(pipe))
    }

    /// Reads what is there; returns how much that was.
    ///
    /// # Errors
    /// If the writer has written nonsense.
    pub fn get(&mut self, into: &mut [u8]) -> Result<usize, PipeError> {
        let len = self.ready()?.min(into.len());
        let mut done = 0;
        while done < len {
            let from = self.0.own.wrapping_add(done as u32);
            let (at, n) = self.0.span(from, len - done)?;
            let part = into.get_mut(done..done + n).ok_or(PipeError)?;
            // SAFETY: the span is `n` bytes, and the writer leaves it alone until they are read.
            unsafe { core::ptr::copy_nonoverlapping(at, part.as_mut_ptr(), n) };
            done += n;
        }
        if len > 0 {
            let read = self.0.own.wrapping_add(len as u32);
            self.0.set(READ, read)?;
        }
        Ok(len)
    }

    fn ready(&mut self) -> Result<usize, PipeError> {
        let written = self.0.counter(WRITTEN)?;
        self.0.bus.observe();
        self.0.used(written, self.0.own)
    }
}

impl<B> ErrorType for PipeWriter<B> {
    type Error = PipeError;
}

impl<B> ErrorType for PipeReader<B> {
    type Error = PipeError;
}

impl<B: Bus> Write for PipeWriter<B> {
    fn write(&mut self, buf: &[u8]) -> Result<usize, PipeError> {
        loop {
            match self.put(buf)? {
                0 if !buf.is_empty() => core::hint::spin_loop(),
                n => return Ok(n),
            }
        }
    }

    fn flush(&mut self) -> Result<(), PipeError> {
        Ok(())
    }
}

impl<B: Bus> WriteReady for PipeWriter<B> {
    fn write_ready(&mut self) -> Result<bool, PipeError> {
        Ok(self.room()? > 0)
    }
}

impl<B: Bus> Read for PipeReader<B> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, PipeError> {
        loop {
            match self.get(buf)? {
                0 if !buf.is_empty() => core::hint::spin_loop(),
                n => return Ok(n),
            }
        }
    }
}

impl<B: Bus> ReadReady for PipeReader<B> {
    fn read_ready(&mut self) -> Result<bool, PipeError> {
        Ok(self.ready()? > 0)
    }
}

/// Both directions of a control line.
#[derive(Debug)]
pub struct Pipes<B> {
    /// What the other side says.
    pub from: PipeReader<B>,
    /// What this side says.
    pub to: PipeWriter<B>,
}

impl<B> ErrorType for Pipes<B> {
    type Error = PipeError;
}

impl<B: Bus> Read for Pipes<B> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, PipeError> {
        self.from.read(buf)
    }
}

impl<B: Bus> ReadReady for Pipes<B> {
    fn read_ready(&mut self) -> Result<bool, PipeError> {
        self.from.read_ready()
    }
}

impl<B: Bus> Write for Pipes<B> {
    fn write(&mut self, buf: &[u8]) -> Result<usize, PipeError> {
        self.to.write(buf)
    }

    fn flush(&mut self) -> Result<(), PipeError> {
        self.to.flush()
    }
}

impl<B: Bus> WriteReady for Pipes<B> {
    fn write_ready(&mut self) -> Result<bool, PipeError> {
        self.to.write_ready()
    }
}
