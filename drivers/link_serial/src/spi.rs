//! A stream of bytes over an SPI bus, as its controller sees it.
//!
//! A transfer moves bytes both ways at once, whether there are any or not: who has none sends 0,
//! which means nothing between the frames of a [`Line`](crate::Line). The other side asks for a
//! transfer with its attention pin.

use core::convert::Infallible;
use embedded_hal::delay::DelayNs;
use embedded_hal::digital::InputPin;
use embedded_hal::spi::SpiDevice;
use embedded_io::{ErrorType, Read, ReadReady, Write, WriteReady};
use heapless::Vec;

/// First and longest wait after a failed transfer, in microseconds.
const WAIT_US: u32 = 10;
const WAIT_MAX_US: u32 = 10_000;

/// The controller's end: `BLOCK` bytes a transfer, each way.
#[derive(Debug)]
pub struct SpiStream<SPI, PIN, DELAY, const BLOCK: usize> {
    bus: SPI,
    attention: PIN,
    delay: DELAY,
    input: Vec<u8, BLOCK>,
    seen: usize,
    output: Vec<u8, BLOCK>,
    wait_us: u32,
    failures: u32,
}

impl<SPI: SpiDevice, PIN: InputPin, DELAY: DelayNs, const BLOCK: usize>
    SpiStream<SPI, PIN, DELAY, BLOCK>
{
    /// A stream over this device. The other side holds `attention` high while it has bytes to
    /// send; `delay` is the board's, for waiting after a transfer that has failed.
    #[must_use]
    pub const fn new(bus: SPI, attention: PIN, delay: DELAY) -> Self {
        const { assert!(BLOCK > 0) };
        Self {
            bus,
            attention,
            delay,
            input: Vec::new(),
            seen: 0,
            output: Vec::new(),
            wait_us: WAIT_US,
            failures: 0,
        }
    }

    /// Transfers that have failed; what they carried is lost.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Moves a block each way, if one side has anything to say and there is room for the answer.
    fn transfer(&mut self) {
        // A pin that cannot be read must not silence the other side.
        let asked = self.attention.is_high().unwrap_or(true);
        if self.seen < self.input.len() || (self.output.is_empty() && !asked) {
            return;
        }
        let mut block = [0; BLOCK];
        if let Some(place) = block.get_mut(..self.output.len()) {
            place.copy_from_slice(&self.output);
        }
        self.output.clear();
        (self.input, self.seen) = (Vec::new(), 0);
        if self.bus.transfer_in_place(&mut block).is_ok() {
            self.wait_us = WAIT_US;
            self.input = Vec::from_array(block);
        } else {
            self.failures = self.failures.saturating_add(1);
            self.delay.delay_us(self.wait_us);
            self.wait_us = (self.wait_us * 2).min(WAIT_MAX_US);
        }
    }
}

impl<SPI, PIN, DELAY, const BLOCK: usize> ErrorType for SpiStream<SPI, PIN, DELAY, BLOCK> {
    type Error = Infallible;
}

impl<SPI: SpiDevice, PIN: InputPin, DELAY: DelayNs, const BLOCK: usize> ReadReady
    for SpiStream<SPI, PIN, DELAY, BLOCK>
{
    fn read_ready(&mut self) -> Result<bool, Infallible> {
        self.transfer();
        Ok(self.seen < self.input.len())
    }
}

impl<SPI: SpiDevice, PIN: InputPin, DELAY: DelayNs, const BLOCK: usize> Read
    for SpiStream<SPI, PIN, DELAY, BLOCK>
{
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Infallible> {
        self.transfer();
        let rest = self.input.get(self.seen..).unwrap_or_default();
        let len = rest.len().min(into.len());
        for (place, byte) in into.iter_mut().zip(rest) {
            *place = *byte;
        }
        self.seen += len;
        Ok(len)
    }
}

impl<SPI: SpiDevice, PIN: InputPin, DELAY: DelayNs, const BLOCK: usize> WriteReady
    for SpiStream<SPI, PIN, DELAY, BLOCK>
{
    fn write_ready(&mut self) -> Result<bool, Infallible> {
        if self.output.is_full() {
            self.transfer();
        }
        Ok(!self.output.is_full())
    }
}

impl<SPI: SpiDevice, PIN: InputPin, DELAY: DelayNs, const BLOCK: usize> Write
    for SpiStream<SPI, PIN, DELAY, BLOCK>
{
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        let len = bytes.len().min(BLOCK - self.output.len());
        // No longer than the room.
        let _ = self.output.extend_from_slice(bytes.get(..len).unwrap_or_default());
        Ok(len)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        self.transfer();
        Ok(())
    }
}
