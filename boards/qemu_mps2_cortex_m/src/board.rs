//! What this board brings to its member.

use crate::clock::SysTick;
use crate::store::{self, Blocks, LINE, MEMBERS, MTU, Memory, PACKETS, Store};
use crate::store::{CALLS, DEPTH};
use crate::uart::Uart;
use core::cell::RefCell;
use core::time::Duration;
use embedded_io::Write;
use unisono_core::reliable::{Config, Side};
use unisono_core::route::Rank;
use unisono_core::time::Instant;
use unisono_core::wire::board::Join;
use unisono_device_scalar::ScalarDevice;
use unisono_driver::{Clock, Device, HostMemory, HostPtr, Memory as _};
use unisono_firmware::{Board, Descr, Rates, log};
use unisono_link_packet::{HostBytes, ReliableLink, session};
use unisono_link_serial::{Line, Port};

/// The line that all links share. Frames wait in it only until their link is polled.
pub type LinkLine = RefCell<Line<Uart, LINE, 2>>;

/// A link to one member.
type SerialLink = ReliableLink<
    Port<&'static LinkLine, Uart, LINE, 2>,
    SysTick,
    HostBytes<HostPtr>,
    Store,
    PACKETS,
    MTU,
    DEPTH,
>;

/// What a board is made of.
pub struct Parts {
    /// The clock, which runs.
    pub clock: SysTick,
    /// The line to the host.
    pub control: Uart,
    /// The line of all links.
    pub links: &'static LinkLine,
    /// The line for log bytes.
    pub log: Uart,
    /// Slots and tensors.
    pub memory: &'static mut Memory,
    /// Storage of links.
    pub blocks: &'static mut Blocks,
    /// Names the image.
    pub build: u64,
}

/// The board.
pub struct Mps2 {
    clock: SysTick,
    control: Uart,
    links: &'static LinkLine,
    log: Uart,
    scratch: (HostPtr, u32),
    tensors: (HostPtr, u32),
    build: u64,
    rates: Rates,
}

/// Most bytes of a chunk on a link: it goes in as many packets as it takes.
const PAYLOAD: u32 = 4096;

impl Mps2 {
    /// A board of these parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { clock, control, links, log, memory, blocks, build } = parts;
        store::manage(blocks);
        let of = |bytes: &mut [u8]| (HostPtr::from_ptr(bytes.as_mut_ptr()), bytes.len() as u32);
        let (scratch, tensors) = (of(&mut memory.scratch), of(&mut memory.tensors));
        let rates = Rates::measure(&mut ScalarDevice::default(), || clock.now());
        Self { clock, control, links, log, scratch, tensors, build, rates }
    }
}

impl Board for Mps2 {
    type Link = SerialLink;
    type Device = ScalarDevice;
    type Line = Uart;

    fn descr(&self) -> Descr {
        let Self { build, rates, .. } = *self;
        Descr { name: "qemu-mps2-cortex-m", build, fpu: true, rates }
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn line(&mut self) -> &mut Uart {
        &mut self.control
    }

    fn device(&mut self) -> ScalarDevice {
        ScalarDevice::default()
    }

    fn sources_max(&self) -> u16 {
        ScalarDevice::default().caps().sources_max as u16
    }

    fn link(&mut self, join: &Join, peer: Rank) -> Option<SerialLink> {
        let number = u8::try_from(peer).ok()?;
        let session = session(join.epoch, join.rank, peer);
        let mut config = Config::new(session, Side::of(join.rank, peer));
        // A frame takes 20 ms at 115 200 Bd, and others may be before it.
        config.rto_initial = Duration::from_millis(200);
        config.rto_min = Duration::from_millis(20);
        config.tries = 20;
        let port = Port::open(self.links, number);
        ReliableLink::new(port, self.clock, HostBytes::new(), Store::new()?, config).ok()
    }

    fn payload_max(&self) -> u32 {
        PAYLOAD
    }

    fn scratch(&self, call: usize) -> (HostPtr, u32) {
        let (all, bytes) = self.scratch;
        // A multiple of a cache line.
        let each = bytes / CALLS as u32 / 64 * 64;
        (all.offset(u64::from(each) * call as u64), each)
    }

    fn memory(&self) -> (HostPtr, u32) {
        self.tensors
    }

    fn turn(&mut self) -> bool {
        use embedded_io::WriteReady;
        let mut byte = [0];
        let mut worked = false;
        while self.log.write_ready().unwrap_or(false) && log::take(&mut byte) > 0 {
            worked = self.log.write(&byte).is_ok();
        }
        worked
    }
}

const _: () = assert!(MEMBERS <= unisono_link_serial::PORTS as usize);
