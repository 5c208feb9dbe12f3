//! Links over a serial line against the suite of all links, on a clean and on a bad line.

mod bus;

use bus::{Controller, bus};
use embedded_io::{Read, ReadReady, Write, WriteReady};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use unisono_core::reliable::{Config, Side};
use unisono_driver::{HostPtr, Link};
use unisono_link_packet::{Channel, HostBytes, ReliableLink};
use unisono_link_serial::{Line, Port, SpiStream};
use unisono_testkit::line::{Noise, Wire, wire};
use unisono_testkit::link::{LinkHarness, link_suite};
use unisono_testkit::packet::TestClock;

/// Bytes of an encoded frame, and of the packet that fits it.
const LINE: usize = 256;
const MTU: usize = 252;

type Shared<IO> = Arc<Mutex<Line<IO, LINE, 4>>>;
type Serial<IO> = ReliableLink<
    Port<Shared<IO>, IO, LINE, 4>,
    TestClock,
    HostBytes<HostPtr>,
    Vec<Channel<HostPtr, 4, MTU, 3>>,
    4,
    MTU,
    3,
>;

fn config(session: u32, side: Side) -> Config {
    let mut config = Config::new(session, side);
    config.tries = 60;
    config.silence = Duration::from_secs(20);
    config.rto_max = Duration::from_millis(200);
    config.keep_alive = Some(Duration::from_secs(1));
    config
}

fn end<IO>(line: &Shared<IO>, port: u8, side: Side, clock: &TestClock) -> Serial<IO>
where
    IO: Read + ReadReady + Write + WriteReady,
{
    let session = 100 * u32::from(port);
    let port = Port::open(line.clone(), port);
    let channels = (0..2).map(|_| Channel::new()).collect();
    let config = config(session, side);
    ReliableLink::new(port, clock.clone(), HostBytes::new(), channels, config)
        .expect("the line takes packets of this size")
}

/// Two lines between the same two boards' wires, and a port that is in use beside the one tested.
struct Lines {
    noise: Noise,
    seed: u64,
    clock: TestClock,
    others: Vec<Serial<Wire>>,
}

impl Lines {
    fn new(noise: Noise) -> Self {
        Self { noise, seed: 3, clock: TestClock::default(), others: Vec::new() }
    }
}

impl LinkHarness for Lines {
    type Link = Serial<Wire>;

    fn pair(&mut self) -> (Self::Link, Self::Link) {
        self.seed += 1;
        let (a, b) = wire(self.noise, self.seed);
        let lines = [a, b].map(|wire| Arc::new(Mutex::new(Line::new(wire))));
        let sides = [Side::Low, Side::High];
        let of = |port: u8| [0, 1].map(|i| end(&lines[i], port, sides[i], &self.clock));
        self.others = of(1).into();
        self.others.truncate(1);
        let [a, b] = of(5);
        (a, b)
    }

    fn turn(&mut self, ends: &mut [&mut Self::Link]) {
        self.clock.pass(Duration::from_micros(100));
        ends.iter_mut().for_each(|end| end.poll());
        self.others.iter_mut().for_each(|other| other.poll());
    }
}

#[test]
fn a_clean_line_passes_the_suite_of_all_links() {
    link_suite(&mut Lines::new(Noise::default()));
}

#[test]
fn a_line_with_a_damaged_byte_in_ten_thousand_passes() {
    link_suite(&mut Lines::new(Noise { flip: 4, loss: 3, twice: 3 }));
}

#[test]
fn a_line_with_a_damaged_byte_in_a_thousand_passes() {
    link_suite(&mut Lines::new(Noise { flip: 40, loss: 30, twice: 30 }));
}

/// A controller and a peripheral on an SPI bus of which some transfers fail.
struct Buses {
    failures: u16,
    seed: u64,
    clock: TestClock,
}

/// Either end of the bus.
type Either = bus::Either<SpiStream<Controller, bus::Attention, bus::Delay, 32>>;

impl LinkHarness for Buses {
    type Link = Serial<Either>;

    fn pair(&mut self) -> (Self::Link, Self::Link) {
        self.seed += 1;
        let (controller, attention, peripheral) = bus(self.failures, self.seed);
        let delay = bus::Delay(self.clock.clone());
        let stream = SpiStream::new(controller, attention, delay);
        let lines = [Either::Controller(stream), Either::Peripheral(peripheral)]
            .map(|io| Arc::new(Mutex::new(Line::new(io))));
        let [a, b] = [(0, Side::Low), (1, Side::High)]
            .map(|(i, side): (usize, Side)| end(&lines[i], 2, side, &self.clock));
        (a, b)
    }

    fn turn(&mut self, ends: &mut [&mut Self::Link]) {
        self.clock.pass(Duration::from_micros(100));
        ends.iter_mut().for_each(|end| end.poll());
    }
}

#[test]
fn an_spi_bus_passes_the_suite_of_all_links() {
    link_suite(&mut Buses { failures: 0, seed: 1, clock: TestClock::default() });
}

#[test]
fn an_spi_bus_of_which_one_transfer_in_a_hundred_fails_passes() {
    link_suite(&mut Buses { failures: 10, seed: 1, clock: TestClock::default() });
}
