//! UDP over the operating system's sockets.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use unisono_driver::{LinkError, PacketLink};

/// A connected socket that never blocks.
#[derive(Debug)]
pub struct UdpPort {
    socket: UdpSocket,
    mtu: usize,
    /// The datagram that the system has no room for just now; empty if there is none.
    held: Vec<u8>,
    /// Datagrams that the system has refused.
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
        Ok(Self { socket, mtu, held: Vec::with_capacity(mtu), dropped: 0 })
    }

    /// Datagrams that the system has refused, and that are lost.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Sends what is held; false if there is still no room for it.
    fn go(&mut self) -> bool {
        match self.socket.send(&self.held) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            // A socket that is broken says so at the next datagram.
            Err(_) => {
                self.dropped += 1;
                true
            }
            Ok(_) => true,
        }
    }
}

/// Is the socket as good as before? A peer that has not opened its socket yet and a cable that is
/// out cost datagrams, no more.
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
        if !self.held.is_empty() && self.go() {
            self.held.clear();
        }
        self.held.is_empty()
    }

    fn send(&mut self, datagram: &[u8]) -> Result<(), LinkError> {
        match self.socket.send(datagram) {
            Ok(_) => Ok(()),
            // A full buffer is the queue of this host's own card: what does not fit has to wait, or
            // each burst would look like a loss on the way.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.held.extend_from_slice(datagram);
                Ok(())
            }
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
