//! An SPI bus in memory.

use embedded_hal::delay::DelayNs;
use embedded_hal::digital::{self, InputPin};
use embedded_hal::spi::{self, Operation, SpiDevice};
use embedded_io::{ErrorType, Read, ReadReady, Write, WriteReady};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use unisono_testkit::packet::{Chance, TestClock};

/// What the peripheral has received and what it is to send.
#[derive(Debug, Default)]
pub struct Buffers {
    received: VecDeque<u8>,
    to_send: VecDeque<u8>,
}

type Shared = Arc<Mutex<Buffers>>;

/// Bytes that the peripheral holds for the controller.
const HOLD: usize = 128;

/// The bus as its controller uses it; some transfers fail and lose everything.
#[derive(Debug)]
pub struct Controller(Shared, u16, Chance);

/// High while the peripheral has something to send.
#[derive(Debug)]
pub struct Attention(Shared);

/// The peripheral's end.
#[derive(Debug)]
pub struct Peripheral(Shared);

/// Lets the test's time pass.
#[derive(Debug)]
pub struct Delay(pub TestClock);

/// Both ends of a bus of which so many transfers in a thousand fail.
pub fn bus(failures: u16, seed: u64) -> (Controller, Attention, Peripheral) {
    let shared = Shared::default();
    let controller = Controller(shared.clone(), failures, Chance::new(seed));
    (controller, Attention(shared.clone()), Peripheral(shared))
}

impl DelayNs for Delay {
    fn delay_ns(&mut self, ns: u32) {
        self.0.pass(Duration::from_nanos(ns.into()));
    }
}

impl spi::ErrorType for Controller {
    type Error = spi::ErrorKind;
}

impl SpiDevice for Controller {
    fn transaction(&mut self, operations: &mut [Operation<'_, u8>]) -> Result<(), spi::ErrorKind> {
        let mut bus = self.0.lock().unwrap();
        if self.2.happens(self.1) {
            return Err(spi::ErrorKind::Overrun);
        }
        for operation in operations {
            let Operation::TransferInPlace(block) = operation else {
                return Err(spi::ErrorKind::Other);
            };
            for byte in block.iter_mut() {
                bus.received.push_back(*byte);
                *byte = bus.to_send.pop_front().unwrap_or(0);
            }
        }
        Ok(())
    }
}

impl digital::ErrorType for Attention {
    type Error = Infallible;
}

impl InputPin for Attention {
    fn is_high(&mut self) -> Result<bool, Infallible> {
        Ok(!self.0.lock().unwrap().to_send.is_empty())
    }

    fn is_low(&mut self) -> Result<bool, Infallible> {
        self.is_high().map(|high| !high)
    }
}

/// One type for both ends, as the suite wants it.
#[derive(Debug)]
pub enum Either<C> {
    Controller(C),
    Peripheral(Peripheral),
}

impl<C: ErrorType<Error = Infallible>> ErrorType for Either<C> {
    type Error = Infallible;
}

impl<C: ReadReady + ErrorType<Error = Infallible>> ReadReady for Either<C> {
    fn read_ready(&mut self) -> Result<bool, Infallible> {
        match self {
            Self::Controller(end) => end.read_ready(),
            Self::Peripheral(end) => Ok(!end.0.lock().unwrap().received.is_empty()),
        }
    }
}

impl<C: Read + ErrorType<Error = Infallible>> Read for Either<C> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Infallible> {
        match self {
            Self::Controller(end) => end.read(into),
            Self::Peripheral(end) => {
                let received = &mut end.0.lock().unwrap().received;
                let len = into.len().min(received.len());
                into.iter_mut().zip(received.drain(..len)).for_each(|(to, byte)| *to = byte);
                Ok(len)
            }
        }
    }
}

impl<C: WriteReady + ErrorType<Error = Infallible>> WriteReady for Either<C> {
    fn write_ready(&mut self) -> Result<bool, Infallible> {
        match self {
            Self::Controller(end) => end.write_ready(),
            Self::Peripheral(end) => Ok(end.0.lock().unwrap().to_send.len() < HOLD),
        }
    }
}

impl<C: Write + ErrorType<Error = Infallible>> Write for Either<C> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        match self {
            Self::Controller(end) => end.write(bytes),
            Self::Peripheral(end) => {
                let to_send = &mut end.0.lock().unwrap().to_send;
                let len = bytes.len().min(HOLD.saturating_sub(to_send.len()));
                to_send.extend(&bytes[..len]);
                Ok(len)
            }
        }
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
