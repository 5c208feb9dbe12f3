//! Links over UDP against the suite of all links: over the system's loopback and over smoltcp.

use std::cell::RefCell;
use std::net::UdpSocket;
use std::time::Duration;

use smoltcp::iface::SocketSet;
use smoltcp::phy::{Loopback, Medium};
use smoltcp::socket::udp::{PacketBuffer, PacketMetadata};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpEndpoint};
use unisono_core::reliable::{Config, Side};
use unisono_driver::{HostPtr, Link, PacketLink};
use unisono_link_packet::{Channel, HostBytes, ReliableLink};
use unisono_link_udp::stack::{Stack, StackPort};
use unisono_link_udp::{ETHERNET, UdpPort};
use unisono_testkit::link::{LinkHarness, link_suite};
use unisono_testkit::packet::{Faults, Faulty, TestClock};

const WINDOW: usize = 16;
const DEPTH: usize = 8;

type Channels = Vec<Channel<HostPtr, WINDOW, ETHERNET, DEPTH>>;
type Udp<P> =
    ReliableLink<Faulty<P>, TestClock, HostBytes<HostPtr>, Channels, WINDOW, ETHERNET, DEPTH>;

/// The clock stands still while the suite works, so nothing here depends on how fast that is.
const TURN: Duration = Duration::from_micros(100);

fn end<P: PacketLink>(port: Faulty<P>, side: Side, clock: &TestClock) -> Udp<P> {
    let mut config = Config::new(77, side);
    config.tries = 60;
    config.silence = Duration::from_secs(8);
    config.rto_max = Duration::from_millis(100);
    config.keep_alive = Some(Duration::from_secs(1));
    let channels = (0..2).map(|_| Channel::new()).collect();
    ReliableLink::new(port, clock.clone(), HostBytes::new(), channels, config)
        .expect("UDP takes packets of this size")
}

/// Sockets of the operating system.
struct Sockets {
    faults: Faults,
    seed: u64,
    clock: TestClock,
}

impl LinkHarness for Sockets {
    type Link = Udp<UdpPort>;

    fn pair(&mut self) -> (Self::Link, Self::Link) {
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a free port"));
        let addresses = [1, 0].map(|i: usize| sockets[i].local_addr().expect("bound"));
        let mut sides = [Side::Low, Side::High].into_iter();
        let mut ends = sockets.into_iter().zip(addresses).map(|(socket, peer)| {
            socket.connect(peer).expect("an address of this machine");
            let port = UdpPort::new(socket, ETHERNET).expect("connected");
            self.seed += 1;
            let port = Faulty::new(port, self.faults, self.seed);
            end(port, sides.next().expect("two ends"), &self.clock)
        });
        (ends.next().expect("an end"), ends.next().expect("an end"))
    }

    fn turn(&mut self, ends: &mut [&mut Self::Link]) {
        self.clock.pass(TURN);
        ends.iter_mut().for_each(|end| end.poll());
    }
}

fn over_sockets(faults: Faults) {
    link_suite(&mut Sockets { faults, seed: 20, clock: TestClock::default() });
}

#[test]
fn sockets_pass_the_suite_of_all_links() {
    over_sockets(Faults::default());
}

#[test]
fn sockets_pass_with_1_percent_lost() {
    over_sockets(Faults { loss: 10, twice: 10, late: 20, damage: 0 });
}

#[test]
fn sockets_pass_with_10_percent_lost() {
    over_sockets(Faults { loss: 100, twice: 50, late: 100, damage: 10 });
}

#[test]
fn sockets_pass_with_50_percent_lost() {
    over_sockets(Faults { loss: 500, twice: 100, late: 200, damage: 0 });
}

type Loop = Stack<'static, Loopback, TestClock>;

/// Two ports of one smoltcp stack whose card sends to itself.
struct Stacks {
    faults: Faults,
    seed: u64,
    clock: TestClock,
}

impl LinkHarness for Stacks {
    type Link = Udp<StackPort<'static, 'static, Loopback, TestClock>>;

    fn pair(&mut self) -> (Self::Link, Self::Link) {
        let address = IpAddress::v4(10, 0, 0, 1);
        let stack = Loop::new(
            Loopback::new(Medium::Ip),
            self.clock.clone(),
            HardwareAddress::Ip,
            IpCidr::new(address, 24),
            SocketSet::new(vec![]),
        );
        // Ports refer to their stack for as long as they live: for a test, for ever.
        let stack: &'static RefCell<Loop> =
            Box::leak(Box::new(RefCell::new(stack.expect("room for an address"))));
        let buffer = || PacketBuffer::new(vec![PacketMetadata::EMPTY; 32], vec![0; 32 * ETHERNET]);
        let mut port = |local: u16, peer: u16, side| {
            let peer = IpEndpoint::new(address, peer);
            let buffers = [buffer(), buffer()];
            let socket = stack.borrow_mut().bind(local, buffers).expect("a port");
            let port = StackPort::new(stack, socket, peer, ETHERNET);
            self.seed += 1;
            end(Faulty::new(port, self.faults, self.seed), side, &self.clock)
        };
        (port(7001, 7002, Side::Low), port(7002, 7001, Side::High))
    }

    fn turn(&mut self, ends: &mut [&mut Self::Link]) {
        self.clock.pass(TURN);
        ends.iter_mut().for_each(|end| end.poll());
    }
}

#[test]
fn smoltcp_passes_the_suite_of_all_links() {
    let faults = Faults::default();
    link_suite(&mut Stacks { faults, seed: 20, clock: TestClock::default() });
}

#[test]
fn smoltcp_passes_with_10_percent_lost() {
    let faults = Faults { loss: 100, twice: 50, late: 100, damage: 10 };
    link_suite(&mut Stacks { faults, seed: 20, clock: TestClock::default() });
}
