//! A board behind a window whose links are UDP over a network card: commands, log and tensors go
//! through the window, the data of calls over the network.

use crate::board::{Board, Descr};
use crate::window::{Platform, WindowBoard};
use core::borrow::{Borrow, BorrowMut};
use core::cell::{RefCell, RefMut};
use core::net::SocketAddrV4;
use core::time::Duration;
use heapless::{LinearMap, Vec};
use smoltcp::iface::{SocketHandle, SocketSet, SocketStorage};
use smoltcp::phy::Device;
use smoltcp::socket::udp::{PacketBuffer, PacketMetadata};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpEndpoint};
use static_cell::{ConstStaticCell, StaticCell};
use unisono_core::reliable::{Config, Side};
use unisono_core::route::Rank;
use unisono_core::time::Instant;
use unisono_core::wire::board::Join;
use unisono_driver::{Clock, HostPtr};
use unisono_link_packet::{Channel, HostBytes, ReliableLink, session};
use unisono_link_udp::stack::{Stack, StackPort};
use unisono_link_udp::{BOARD_PORT, ETHERNET};

/// Packets of a channel under way each way, and its frames that wait.
pub const PACKETS: usize = 8;
const DEPTH: usize = 16;
/// Datagrams of a socket that wait each way: a window of two channels.
const DATAGRAMS: usize = 2 * PACKETS;
/// Most bytes of a chunk: it goes in as many packets as it takes.
const PAYLOAD: u32 = 16 << 10;
/// A member that owes an answer is given up after so long.
const SILENCE: Duration = Duration::from_secs(10);

/// Storage of a link's channels.
type Channels<const CALLS: usize> = Vec<Channel<HostPtr, PACKETS, ETHERNET, DEPTH>, CALLS>;

/// What one link needs: channels, and buffers of its socket.
struct LinkMemory<const CALLS: usize> {
    channels: StaticCell<RefCell<Channels<CALLS>>>,
    metadata: [StaticCell<[PacketMetadata; DATAGRAMS]>; 2],
    bytes: [ConstStaticCell<[u8; DATAGRAMS * ETHERNET]>; 2],
}

/// Memory of a network: `LINKS` links for `CALLS` calls in flight. A static of it takes no place in
/// the image.
pub struct Memory<const CALLS: usize, const LINKS: usize> {
    links: [LinkMemory<CALLS>; LINKS],
    sockets: StaticCell<[SocketStorage<'static>; LINKS]>,
}

impl<const CALLS: usize, const LINKS: usize> Memory<CALLS, LINKS> {
    /// Unused memory.
    #[must_use]
    pub const fn new() -> Self {
        let links = [const {
            LinkMemory {
                channels: StaticCell::new(),
                metadata: [const { StaticCell::new() }; 2],
                bytes: [const { ConstStaticCell::new([0; DATAGRAMS * ETHERNET]) }; 2],
            }
        }; LINKS];
        Self { links, sockets: StaticCell::new() }
    }
}

impl<const CALLS: usize, const LINKS: usize> Default for Memory<CALLS, LINKS> {
    fn default() -> Self {
        Self::new()
    }
}

/// Channels that a link has borrowed; they go back when it is dropped.
pub struct Lent<const CALLS: usize>(RefMut<'static, Channels<CALLS>>);

impl<const CALLS: usize> Borrow<[Channel<HostPtr, PACKETS, ETHERNET, DEPTH>]> for Lent<CALLS> {
    fn borrow(&self) -> &[Channel<HostPtr, PACKETS, ETHERNET, DEPTH>] {
        &self.0
    }
}

impl<const CALLS: usize> BorrowMut<[Channel<HostPtr, PACKETS, ETHERNET, DEPTH>]> for Lent<CALLS> {
    fn borrow_mut(&mut self) -> &mut [Channel<HostPtr, PACKETS, ETHERNET, DEPTH>] {
        &mut self.0
    }
}

/// A card with its addresses and sockets, which ports share.
pub type SharedStack<D, C> = RefCell<Stack<'static, D, C>>;

/// A link over UDP.
pub type UdpLink<D, C, const CALLS: usize> = ReliableLink<
    StackPort<'static, 'static, D, C>,
    C,
    HostBytes<HostPtr>,
    Lent<CALLS>,
    PACKETS,
    ETHERNET,
    DEPTH,
>;

/// The end of a way to a member: an open socket, and the channels of the link over it.
type Slot<const CALLS: usize> = (SocketHandle, &'static RefCell<Channels<CALLS>>);

/// A network that is up.
pub struct Network<D: Device + 'static, C: 'static, const CALLS: usize, const LINKS: usize> {
    stack: &'static SharedStack<D, C>,
    clock: C,
    slots: Vec<Slot<CALLS>, LINKS>,
    /// Where members of the next group are.
    peers: LinearMap<Rank, SocketAddrV4, LINKS>,
}

impl<D: Device + 'static, C: Clock + Copy, const CALLS: usize, const LINKS: usize>
    Network<D, C, CALLS, LINKS>
{
    /// Opens a socket for each link on this card. `None` if some of the memory is in use.
    pub fn start(
        card: D,
        clock: C,
        (hardware, address): (HardwareAddress, IpCidr),
        stack: &'static StaticCell<SharedStack<D, C>>,
        memory: &'static Memory<CALLS, LINKS>,
    ) -> Option<Self> {
        let sockets = memory.sockets.try_init_with(|| [SocketStorage::EMPTY; LINKS])?;
        let sockets = SocketSet::new(&mut sockets[..]);
        let up = Stack::new(card, clock, hardware, address, sockets).ok()?;
        let stack: &'static SharedStack<D, C> = stack.try_init_with(|| RefCell::new(up))?;
        let mut slots = Vec::new();
        for (port, memory) in (BOARD_PORT..).zip(&memory.links) {
            let socket = stack.try_borrow_mut().ok()?.bind(port, buffers(memory)?)?;
            slots.push((socket, channels(memory)?)).ok()?;
        }
        Some(Self { stack, clock, slots, peers: LinearMap::new() })
    }

    fn link(&mut self, join: &Join, peer: Rank) -> Option<UdpLink<D, C, CALLS>> {
        let at = self.peers.remove(&peer)?;
        // One slot for each member but this one.
        let slot = usize::from(peer).checked_sub(usize::from(peer > join.rank))?;
        let (socket, channels) = self.slots.get(slot)?;
        let channels = Lent(channels.try_borrow_mut().ok()?);
        let at = IpEndpoint::new(IpAddress::Ipv4(*at.ip()), at.port());
        let port = StackPort::new(self.stack, *socket, at, ETHERNET);
        let session = session(join.epoch, join.rank, peer);
        let mut config = Config::new(session, Side::of(join.rank, peer));
        config.rto_initial = Duration::from_millis(20);
        config.rto_max = Duration::from_millis(200);
        config.tries = 20;
        config.silence = SILENCE;
        ReliableLink::new(port, self.clock, HostBytes::new(), channels, config).ok()
    }
}

/// The buffers of a link's socket; `None` if they are in use.
fn buffers<const CALLS: usize>(
    memory: &'static LinkMemory<CALLS>,
) -> Option<[PacketBuffer<'static>; 2]> {
    let [receive, send] = [0, 1].map(|way: usize| {
        let metadata = memory.metadata.get(way)?.try_init_with(|| [PacketMetadata::EMPTY; _])?;
        let bytes = memory.bytes.get(way)?.try_take()?;
        Some(PacketBuffer::new(&mut metadata[..], &mut bytes[..]))
    });
    Some([receive?, send?])
}

/// The channels of a link. They are made one by one: each needs room on the stack meanwhile.
#[inline(never)]
fn channels<const CALLS: usize>(
    memory: &'static LinkMemory<CALLS>,
) -> Option<&'static RefCell<Channels<CALLS>>> {
    let cell = memory.channels.try_init_with(|| RefCell::new(Vec::new()))?;
    let channels = cell.get_mut();
    while !channels.is_full() {
        channels.push(Channel::new()).ok()?;
    }
    Some(cell)
}

/// A board behind a window, with links over UDP.
pub struct UdpBoard<P, D, C, const CALLS: usize, const LINKS: usize>
where
    P: Platform,
    D: Device + 'static,
    C: 'static,
{
    board: WindowBoard<P>,
    network: Network<D, C, CALLS, LINKS>,
}

impl<P, D, C, const CALLS: usize, const LINKS: usize> UdpBoard<P, D, C, CALLS, LINKS>
where
    P: Platform,
    D: Device + 'static,
    C: Clock + Copy,
{
    /// This board with links over this network.
    pub const fn new(board: WindowBoard<P>, network: Network<D, C, CALLS, LINKS>) -> Self {
        Self { board, network }
    }
}

impl<P, D, C, const CALLS: usize, const LINKS: usize> Board for UdpBoard<P, D, C, CALLS, LINKS>
where
    P: Platform,
    D: Device + 'static,
    C: Clock + Copy,
{
    type Link = UdpLink<D, C, CALLS>;
    type Device = P::Device;
    type Line = <WindowBoard<P> as Board>::Line;

    fn descr(&self) -> Descr {
        self.board.descr()
    }

    fn now(&self) -> Instant {
        self.board.now()
    }

    fn line(&mut self) -> &mut Self::Line {
        self.board.line()
    }

    fn device(&mut self) -> P::Device {
        self.board.device()
    }

    fn sources_max(&self) -> u16 {
        self.board.sources_max()
    }

    fn peer(&mut self, rank: Rank, at: SocketAddrV4) {
        if self.network.peers.insert(rank, at).is_err() {
            defmt::warn!("no room for the address of member {=u16}", rank);
        }
    }

    fn link(&mut self, join: &Join, peer: Rank) -> Option<Self::Link> {
        self.network.link(join, peer)
    }

    fn payload_max(&self) -> u32 {
        PAYLOAD
    }

    fn scratch(&self, call: usize) -> (HostPtr, u32) {
        self.board.scratch(call)
    }

    fn memory(&self) -> (HostPtr, u32) {
        self.board.memory()
    }

    fn has_posted(&mut self, _: bool) -> bool {
        // No link goes through the window.
        self.board.has_posted(false)
    }

    fn is_cut(&self) -> bool {
        self.board.is_cut()
    }

    fn renew(&mut self) -> bool {
        self.board.renew()
    }

    fn turn(&mut self) -> bool {
        // Also without a group: the network asks who is there.
        if let Ok(mut stack) = self.network.stack.try_borrow_mut() {
            stack.poll();
        }
        self.board.turn()
    }
}
