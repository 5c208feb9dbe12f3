//! A member with serial lines, without board and without a host's commands: engine, device of
//! scalar folds, and links to its peers over one line, each reliable.

use crate::parts;
use core::cell::RefCell;
use core::convert::Infallible;
use core::hint::black_box;
use embedded_io::{ErrorType, Read, ReadReady, Write, WriteReady};
use heapless::Vec;
use unisono_core::reliable::{Config, Side};
use unisono_core::route::Rank;
use unisono_core::time::Instant;
use unisono_device_scalar::ScalarDevice;
use unisono_driver::{Clock, HostPtr};
use unisono_link_packet::{Channel, HostBytes, ReliableLink, session};
use unisono_link_serial::{Line, Port};
use unisono_runtime::{Buffers, Call, Engine};

/// As the board `qemu_mps2_cortex_m` has them: chunks in flight, moves of a route, members.
const WINDOW: usize = 2;
const MOVES: usize = 16;
const MEMBERS: usize = 4;
/// Bytes of an encoded frame on the line, and of the packet that fits it.
const LINE: usize = 256;
const MTU: usize = 252;
/// Packets of a link under way each way, and frames that wait.
const PACKETS: usize = 4;
const DEPTH: usize = 2;

/// A UART, of which this image knows nothing.
pub struct Uart;

impl ErrorType for Uart {
    type Error = Infallible;
}

impl ReadReady for Uart {
    fn read_ready(&mut self) -> Result<bool, Infallible> {
        Ok(black_box(false))
    }
}

impl Read for Uart {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Infallible> {
        into.fill(black_box(0));
        Ok(into.len())
    }
}

impl WriteReady for Uart {
    fn write_ready(&mut self) -> Result<bool, Infallible> {
        Ok(black_box(false))
    }
}

impl Write for Uart {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        Ok(black_box(bytes).len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// A clock, of which this image knows nothing.
#[derive(Clone, Copy)]
pub struct Time;

impl Clock for Time {
    fn now(&self) -> Instant {
        Instant::from_nanos(black_box(0))
    }
}

/// The line of all links.
pub type SerialLine = RefCell<Line<Uart, LINE, 2>>;

type Link = ReliableLink<
    Port<&'static SerialLine, Uart, LINE, 2>,
    Time,
    HostBytes<HostPtr>,
    [Channel<HostPtr, PACKETS, MTU, DEPTH>; 1],
    PACKETS,
    MTU,
    DEPTH,
>;

/// The member.
pub type SerialNode = Engine<ScalarDevice, Link, 1, WINDOW, MOVES, MEMBERS>;

/// A line over the UART.
#[must_use]
pub const fn line() -> SerialLine {
    RefCell::new(Line::new(Uart))
}

/// A member with a link to each peer.
#[must_use]
pub fn node(line: &'static SerialLine) -> SerialNode {
    let rank: Rank = black_box(0);
    let link = |peer: Rank| {
        let config = Config::new(session(black_box(0), rank, peer), Side::of(rank, peer));
        let port = Port::open(line, peer as u8);
        ReliableLink::new(port, Time, HostBytes::new(), [Channel::new()], config).ok()
    };
    let links: Vec<_, MEMBERS> = (0..MEMBERS as Rank).map(link).collect();
    Engine::new(rank, black_box(0), ScalarDevice::default(), links)
}

/// The loop of a firmware: rounds, and now and then a call.
pub fn run(node: &mut SerialNode) -> ! {
    loop {
        if let Some(mut config) = parts::config()
            && node.fit(&mut config).is_ok()
        {
            let [input, output, scratch] =
                [0usize; 3].map(|at| HostPtr::new(black_box(at) as *mut u8));
            let buffers = Buffers { input, output, scratch };
            let mut call = Call { config, buffers, source_ready: u64::MAX };
            // SAFETY: nobody runs this; in a firmware, the addresses of its buffers.
            black_box(unsafe { node.begin(&mut call).is_ok() });
        }
        if !black_box(node.poll()) {
            node.handle_time(Time.now());
        }
        black_box(node.result(black_box(0)));
    }
}
