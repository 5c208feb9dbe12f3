//! UDP over the operating system's sockets.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use unisono_driver::{LinkError, PacketLink};

/// A connected socket that never blocks.
#[derive(Debug)]
pub struct UdpPort {
    socket: UdpSocket,
    mtu: usize,
    /// Datagrams that the system had no room for.
    dropped: u64,
}

impl UdpPort {
    /// A port over a socket that is [connected](UdpSocket::connect) to the peer, for datagrams of
    /// up to `mtu` bytes: [`crate::ETHERNET`] unless all of the way carries more.
    ///
    /// # Errors
    /// If the socket is not connected or cannot be made non-blocking.
    pub fn new(socket: UdpSocket, mtu: usize) -> io::Result<Self> {
        socket.peer_addr()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, mtu, dropped: 0 })
    }

    /// Datagrams that the system had no room for, and that are lost.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Is the socket as good as before? A peer that has not opened its socket yet, a full buffer and a
/// cable that is out cost datagrams, no more.
fn is_passing(error: &io::Error) -> bool {
    use ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkDown,
        NetworkUnreachable, OutOfMemory, PermissionDenied, WouldBlock,
    };
    matches!(
        error.kind(),
        ConnectionRefused
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkDown
            | NetworkUnreachable
            | OutOfMemory
            | PermissionDenied
            | WouldBlock
    )
}

impl PacketLink for UdpPort {
    fn mtu(&self) -> usize {
        self.mtu
    }

    fn has_room(&mut self) -> bool {
        // A buffer that is full drops the datagram, as any hop on the way may.
        true
    }

    fn send(&mut self, datagram: &[u8]) -> Result<(), LinkError> {
        match self.socket.send(datagram) {
            Ok(_) => Ok(()),
            Err(error) if is_passing(&error) => {
                self.dropped += 1;
                Ok(())
            }
            Err(_) => Err(LinkError::Closed),
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        match self.socket.recv(into) {
            Ok(len) => Ok(Some(len)),
            Err(error) if is_passing(&error) => Ok(None),
            Err(_) => Err(LinkError::Closed),
        }
    }
}
