//! UDP over smoltcp: the network of a firmware that has a network card and no operating system.
//!
//! A [`Stack`] is the card and its addresses; [`StackPort`]s share it. It allocates nothing: the
//! board lends the buffers.

use core::cell::RefCell;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::Device;
use smoltcp::socket::udp::{PacketBuffer, SendError, Socket};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr, IpEndpoint};
use unisono_driver::{Clock, LinkError, PacketLink};

/// A network card with its addresses and sockets.
pub struct Stack<'a, D: Device, C> {
    device: D,
    clock: C,
    interface: Interface,
    sockets: SocketSet<'a>,
}

/// An address that the stack has no room for: smoltcp's `iface-max-addr-count` is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressError;

impl<'a, D: Device, C: Clock> Stack<'a, D, C> {
    /// A stack over this card. `sockets` has room for one socket a port.
    ///
    /// # Errors
    /// [`AddressError`].
    pub fn new(
        mut device: D,
        clock: C,
        hardware: HardwareAddress,
        address: IpCidr,
        sockets: SocketSet<'a>,
    ) -> Result<Self, AddressError> {
        let now = instant(&clock);
        let mut interface = Interface::new(Config::new(hardware), &mut device, now);
        let mut added = Ok(());
        interface.update_ip_addrs(|all| added = all.push(address));
        added.map_err(|_| AddressError)?;
        Ok(Self { device, clock, interface, sockets })
    }

    /// The card.
    pub const fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// Routes, further addresses.
    pub const fn interface(&mut self) -> &mut Interface {
        &mut self.interface
    }

    /// Opens the local `port`, for as long as the stack lives. The buffers hold what has come in
    /// and what is to go out: a window of datagrams each. `None` if the port is 0.
    ///
    /// # Panics
    /// If `sockets` is memory that was lent and has no room for one more.
    pub fn bind(
        &mut self,
        port: u16,
        [receive, send]: [PacketBuffer<'a>; 2],
    ) -> Option<SocketHandle> {
        let mut socket = Socket::new(receive, send);
        socket.bind(port).ok()?;
        Some(self.sockets.add(socket))
    }

    /// Moves what has come in to the sockets, and out what they have to send.
    pub fn poll(&mut self) {
        let Self { device, clock, interface, sockets } = self;
        interface.poll(instant(clock), device, sockets);
    }
}

/// The clock as smoltcp reads it.
fn instant(clock: &impl Clock) -> Instant {
    Instant::from_micros((clock.now().as_nanos() / 1000) as i64)
}

/// A socket of a [`Stack`], to one peer. The socket stays open when the port is gone: the next port
/// of that socket may have another peer.
pub struct StackPort<'s, 'a, D: Device, C> {
    stack: &'s RefCell<Stack<'a, D, C>>,
    socket: SocketHandle,
    peer: IpEndpoint,
    mtu: usize,
}

impl<'s, 'a, D: Device, C: Clock> StackPort<'s, 'a, D, C> {
    /// A port to `peer` over a socket that [`Stack::bind`] has opened, and that no other port uses.
    pub const fn new(
        stack: &'s RefCell<Stack<'a, D, C>>,
        socket: SocketHandle,
        peer: IpEndpoint,
        mtu: usize,
    ) -> Self {
        Self { stack, socket, peer, mtu }
    }
}

impl<D: Device, C: Clock> PacketLink for StackPort<'_, '_, D, C> {
    fn mtu(&self) -> usize {
        self.mtu
    }

    fn has_room(&mut self) -> bool {
        let Ok(mut stack) = self.stack.try_borrow_mut() else { return false };
        stack.poll();
        stack.sockets.get::<Socket<'_>>(self.socket).can_send()
    }

    fn send(&mut self, datagram: &[u8]) -> Result<(), LinkError> {
        let Ok(mut stack) = self.stack.try_borrow_mut() else { return Ok(()) };
        let socket = stack.sockets.get_mut::<Socket<'_>>(self.socket);
        match socket.send_slice(datagram, self.peer) {
            // What there was no room for after all is lost, as on any hop.
            Ok(()) | Err(SendError::BufferFull) => {}
            Err(SendError::Unaddressable) => return Err(LinkError::Closed),
        }
        stack.poll();
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        let Ok(mut stack) = self.stack.try_borrow_mut() else { return Ok(None) };
        stack.poll();
        let socket = stack.sockets.get_mut::<Socket<'_>>(self.socket);
        while let Ok((datagram, from)) = socket.recv() {
            let place = into.get_mut(..datagram.len());
            if let Some(place) = place.filter(|_| from.endpoint == self.peer) {
                place.copy_from_slice(datagram);
                return Ok(Some(datagram.len()));
            }
        }
        Ok(None)
    }
}
