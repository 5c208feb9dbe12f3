//! The link against the suite of all links, over real sockets: both families, and buffers so small
//! that hardly a frame passes in one piece.

mod common;

use common::{Buffers, pair, sleep_on};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use unisono_driver::{HostPtr, Link};
use unisono_link_tcp::TcpLink;
use unisono_testkit::link::{LinkHarness, link_suite};

struct Sockets {
    address: IpAddr,
    buffers: Buffers,
    channels: usize,
}

impl LinkHarness for Sockets {
    type Link = TcpLink<HostPtr>;

    fn pair(&mut self) -> (Self::Link, Self::Link) {
        pair(self.address, self.channels, self.buffers)
    }

    fn turn(&mut self, ends: &mut [&mut Self::Link]) {
        if self.buffers == Buffers::Tiny {
            // What the system does by timers takes more time than the suite is ready to spin.
            sleep_on(&ends.iter().map(|end| &**end).collect::<Vec<_>>(), Duration::from_millis(1));
        }
        ends.iter_mut().for_each(|end| end.poll());
    }
}

#[test]
fn passes_over_ipv4() {
    let address = Ipv4Addr::LOCALHOST.into();
    link_suite(&mut Sockets { address, buffers: Buffers::System, channels: 4 });
}

#[test]
fn passes_over_ipv6() {
    let address = Ipv6Addr::LOCALHOST.into();
    link_suite(&mut Sockets { address, buffers: Buffers::System, channels: 2 });
}

#[test]
fn passes_with_tiny_buffers() {
    let address = Ipv4Addr::LOCALHOST.into();
    link_suite(&mut Sockets { address, buffers: Buffers::Tiny, channels: 2 });
}
