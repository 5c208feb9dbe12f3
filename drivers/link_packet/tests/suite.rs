//! The link over packets against the suite of all links, on cables of every quality.

use std::time::Duration;
use unisono_core::reliable::{Config, Side};
use unisono_driver::{HostPtr, Link};
use unisono_link_packet::{Channel, HostBytes, ReliableLink};
use unisono_testkit::link::{LinkHarness, link_suite};
use unisono_testkit::packet::{Cable, Faults, Faulty, TestClock, cable};

type Port = Faulty<Cable>;
type Packets<const W: usize, const MTU: usize, const D: usize> =
    ReliableLink<Port, TestClock, HostBytes<HostPtr>, Vec<Channel<HostPtr, W, MTU, D>>, W, MTU, D>;

/// Makes pairs over cables with these faults.
struct Cables<const W: usize, const MTU: usize, const D: usize> {
    faults: Faults,
    seed: u64,
    clock: TestClock,
}

fn config(side: Side) -> Config {
    let mut config = Config::new(0xffff_fffe, side);
    config.first_seq = u32::MAX - 5;
    // At 50 % loss both ways a try succeeds once in four times.
    config.tries = 60;
    config.silence = Duration::from_secs(8);
    config.rto_max = Duration::from_millis(100);
    config.keep_alive = Some(Duration::from_secs(1));
    config
}

impl<const W: usize, const MTU: usize, const D: usize> LinkHarness for Cables<W, MTU, D> {
    type Link = Packets<W, MTU, D>;

    fn pair(&mut self) -> (Self::Link, Self::Link) {
        let (a, b) = cable(MTU);
        let mut end = |port, side| {
            self.seed += 1;
            let port = Faulty::new(port, self.faults, self.seed);
            let channels = (0..3).map(|_| Channel::new()).collect();
            ReliableLink::new(port, self.clock.clone(), HostBytes::new(), channels, config(side))
                .expect("the cable takes these packets")
        };
        (end(a, Side::Low), end(b, Side::High))
    }

    fn turn(&mut self, ends: &mut [&mut Self::Link]) {
        self.clock.pass(Duration::from_micros(100));
        ends.iter_mut().for_each(|end| end.poll());
    }
}

fn run<const W: usize, const MTU: usize, const D: usize>(faults: Faults) {
    link_suite(&mut Cables::<W, MTU, D> { faults, seed: 7, clock: TestClock::default() });
}

/// What a small board has, and what a host has.
fn run_sizes(faults: Faults) {
    run::<4, 160, 2>(faults);
    run::<8, 512, 4>(faults);
    run::<32, 1472, 24>(faults);
}

#[test]
fn passes_the_suite_of_all_links() {
    run_sizes(Faults::default());
}

#[test]
fn passes_with_one_packet_in_a_hundred_lost() {
    run_sizes(Faults { loss: 10, twice: 10, late: 10, damage: 10 });
}

#[test]
fn passes_with_one_packet_in_ten_lost() {
    run_sizes(Faults { loss: 100, twice: 100, late: 100, damage: 50 });
}

#[test]
fn passes_with_every_second_packet_lost() {
    run_sizes(Faults { loss: 500, twice: 100, late: 100, damage: 0 });
}
