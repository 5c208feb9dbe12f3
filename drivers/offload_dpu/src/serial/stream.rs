//! A socket or terminal that does not block, as a serial line.

use embedded_io::{ErrorType, Read, ReadReady, Write, WriteReady};
use std::io::{self, ErrorKind};

/// Wraps what reads and writes without blocking.
#[derive(Debug)]
pub struct Stream<S> {
    stream: S,
    /// What has been read: the bytes after `seen`.
    input: Vec<u8>,
    seen: usize,
    ended: bool,
    /// What the stream has not taken yet.
    output: Vec<u8>,
}

impl<S: io::Read + io::Write> Stream<S> {
    /// A line over this stream, which has been made non-blocking.
    pub const fn new(stream: S) -> Self {
        Self { stream, input: Vec::new(), seen: 0, ended: false, output: Vec::new() }
    }

    /// Reads what is there, unless there is something already.
    fn fill(&mut self) -> io::Result<()> {
        if self.seen < self.input.len() || self.ended {
            return Ok(());
        }
        self.input.resize(4096, 0);
        let read = self.stream.read(&mut self.input);
        self.input.truncate(*read.as_ref().unwrap_or(&0));
        self.seen = 0;
        self.ended = matches!(read, Ok(0));
        passing(read)
    }

    fn drain(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(len) => drop(self.output.drain(..len)),
                error => return passing(error),
            }
        }
        Ok(())
    }
}

/// "Not now" is no error.
fn passing(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
        result => result.map(drop),
    }
}

impl<S> ErrorType for Stream<S> {
    type Error = io::Error;
}

impl<S: io::Read + io::Write> ReadReady for Stream<S> {
    fn read_ready(&mut self) -> io::Result<bool> {
        self.fill()?;
        Ok(self.seen < self.input.len() || self.ended)
    }
}

impl<S: io::Read + io::Write> Read for Stream<S> {
    /// What is there; 0 bytes at the end of the stream and if there is nothing yet.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.fill()?;
        let rest = self.input.get(self.seen..).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        self.seen += len;
        Ok(len)
    }
}

impl<S: io::Read + io::Write> WriteReady for Stream<S> {
    fn write_ready(&mut self) -> io::Result<bool> {
        self.drain()?;
        Ok(self.output.is_empty())
    }
}

impl<S: io::Read + io::Write> Write for Stream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend_from_slice(bytes);
        self.drain()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.drain()
    }
}
