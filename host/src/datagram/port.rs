//! A socket that ends with the process at its other end.

use rustix::net::sockopt;
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unisono_driver::{Clock, LinkError, PacketLink};
use unisono_link_udp::UdpPort;
use unisono_rendezvous::Datagrams;

/// Most bytes of a packet: 1500, which every Ethernet carries, without the headers of IPv6 and UDP.
pub(super) const MTU: usize = 1452;

/// What the system should have room for: packets of all channels while their member computes. It
/// gives as much of it as it likes.
const BUFFER: usize = 2 << 20;

/// A peer's host that has not answered for about so long is gone.
const IDLE: Duration = Duration::from_secs(15);
const INTERVAL: Duration = Duration::from_secs(4);
const PROBES: u32 = 4;

/// Time since it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since(std::time::Instant);

impl Since {
    pub(super) fn now() -> Self {
        Self(std::time::Instant::now())
    }
}

impl Clock for Since {
    fn now(&self) -> unisono_core::Instant {
        unisono_core::Instant::from_nanos(self.0.elapsed().as_nanos() as u64)
    }
}

/// The socket, until the peer is gone.
#[derive(Debug)]
pub(super) struct Port {
    port: UdpPort,
    /// The lifeline has ended.
    over: Arc<AtomicBool>,
}

impl Port {
    pub(super) fn new(socket: UdpSocket, over: Arc<AtomicBool>) -> io::Result<Self> {
        // With less there are more losses, no more.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER);
        let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER);
        Ok(Self { port: UdpPort::new(socket, MTU)?, over })
    }
}

impl PacketLink for Port {
    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn has_room(&mut self) -> bool {
        self.port.has_room()
    }

    fn send(&mut self, datagram: &[u8]) -> Result<(), LinkError> {
        self.port.send(datagram)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        // Before the socket is asked: what the peer has sent before its end is there by then.
        let over = self.over.load(Ordering::Acquire);
        match self.port.receive(into)? {
            None if over => Err(LinkError::Closed),
            datagram => Ok(datagram),
        }
    }
}

/// Makes a lifeline ready to tell of its end.
pub(super) fn prepare(Datagrams { lifeline, .. }: &Datagrams) -> io::Result<()> {
    lifeline.set_nonblocking(true)?;
    sockopt::set_socket_keepalive(lifeline, true)?;
    sockopt::set_tcp_keepidle(lifeline, IDLE)?;
    sockopt::set_tcp_keepintvl(lifeline, INTERVAL)?;
    sockopt::set_tcp_keepcnt(lifeline, PROBES)?;
    Ok(())
}

/// Has the peer's process ended the lifeline, or its host fallen silent?
pub(super) fn has_ended(lifeline: &TcpStream) -> bool {
    let mut byte = [0];
    match io::Read::read(&mut &*lifeline, &mut byte) {
        // Nothing is ever sent on it.
        Ok(_) => true,
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        }
    }
}
