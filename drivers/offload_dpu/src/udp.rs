//! Boards with a window for commands, log and tensors, and links over UDP.
//!
//! QEMU's own network leads from sockets of this machine to the board and back; nothing of it needs
//! rights, and nobody else reaches it: all sockets are on the loopback address.

use crate::board::{Board, Options};
use crate::error::{BoardError, Problem};
use crate::keeper::Life;
use crate::serial::HostClock;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;
use unisono_core::reliable::{Config, Side};
use unisono_core::route::Rank;
use unisono_core::wire::board::{Identity, Join};
use unisono_driver::{HostMemory, LinkError, PacketLink};
use unisono_link_packet::{Channel, HostBytes, ReliableLink, session};
use unisono_link_udp::{BOARD_PORT, ETHERNET, UdpPort};

/// Packets of a channel under way each way, as in the firmware, and frames that wait here.
const PACKETS: usize = 8;
const DEPTH: usize = 16;
/// This machine, as the board sees it.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Ports are chosen before the machine opens them; somebody else may be faster.
const STARTS: u32 = 5;

/// A socket to a board, until the board is gone.
#[derive(Debug)]
pub struct BoardPort {
    port: UdpPort,
    life: Life,
}

impl BoardPort {
    fn check(&self) -> Result<(), LinkError> {
        if self.life.is_over() { Err(LinkError::Closed) } else { Ok(()) }
    }
}

impl PacketLink for BoardPort {
    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn has_room(&mut self) -> bool {
        self.port.has_room()
    }

    fn send(&mut self, datagram: &[u8]) -> Result<(), LinkError> {
        self.check()?;
        self.port.send(datagram)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        self.check()?;
        self.port.receive(into)
    }
}

/// The host's end of a link to a board.
pub type UdpLink<M> = ReliableLink<
    BoardPort,
    HostClock,
    HostBytes<M>,
    Vec<Channel<M, PACKETS, ETHERNET, DEPTH>>,
    PACKETS,
    ETHERNET,
    DEPTH,
>;

/// A member's way to the board.
#[derive(Debug)]
pub struct Way {
    /// A socket that is connected to the board, or to what leads there.
    pub socket: UdpSocket,
    /// The port of this machine at which the board finds the member.
    pub port: u16,
}

impl Way {
    /// Straight to the board.
    ///
    /// # Errors
    /// If there is no socket.
    pub fn straight(board: SocketAddrV4) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(board)?;
        let port = socket.local_addr()?.port();
        Ok(Self { socket, port })
    }
}

/// A board that runs, with links over UDP. Dropping it ends it.
pub struct UdpBoard {
    board: Board,
    /// Ports of this machine that lead to those of the board.
    ports: Vec<u16>,
    clock: HostClock,
    silence: Duration,
}

impl UdpBoard {
    /// Starts a board that has links to as many members as `options` says, and asks it what it is.
    ///
    /// # Errors
    /// Whatever keeps it from being used.
    pub fn start(options: &Options) -> Result<Self, BoardError> {
        let mut tries = STARTS;
        loop {
            tries -= 1;
            match Self::start_once(options) {
                Err(BoardError { problem: Problem::Gone(why), .. })
                    if tries > 0 && why.contains("host forwarding") => {}
                result => return result,
            }
        }
    }

    fn start_once(options: &Options) -> Result<Self, BoardError> {
        let failed = |error| {
            let board = options.machine.name.to_owned();
            BoardError { board, problem: Problem::Socket(error) }
        };
        let ports = free_ports(options.peers).map_err(failed)?;
        let mut all = options.clone();
        // No link goes through the window.
        all.peers = 0;
        all.args.extend(network(&ports));
        let board = Board::start(&all)?;
        Ok(Self { board, ports, clock: HostClock::start(), silence: options.silence })
    }

    /// Everything but joining is as with any board behind a window.
    pub const fn board(&mut self) -> &mut Board {
        &mut self.board
    }

    /// What the board is and can do.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        self.board.identity()
    }

    /// Process id of its machine.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.board.pid()
    }

    /// Makes the board a member of a group; returns this side's ends of its links to `peers`, in
    /// their order: all members but the board. Ends of an earlier group must be gone.
    ///
    /// # Errors
    /// If the board refuses, or sockets cannot be had.
    pub fn join<M: HostMemory>(
        &mut self,
        join: Join,
        peers: &[Rank],
    ) -> Result<Vec<UdpLink<M>>, BoardError> {
        self.join_by(join, peers, |_, board| Way::straight(board))
    }

    /// The same for members that reach the board in another way than straight: `way` is told who
    /// and where the board is.
    ///
    /// # Errors
    /// As [`UdpBoard::join`].
    pub fn join_by<M: HostMemory>(
        &mut self,
        join: Join,
        peers: &[Rank],
        way: impl FnMut(Rank, SocketAddrV4) -> io::Result<Way>,
    ) -> Result<Vec<UdpLink<M>>, BoardError> {
        self.try_join(join, peers, way).map_err(|problem| self.board.error(problem))
    }

    fn try_join<M: HostMemory>(
        &mut self,
        join: Join,
        peers: &[Rank],
        mut way: impl FnMut(Rank, SocketAddrV4) -> io::Result<Way>,
    ) -> Result<Vec<UdpLink<M>>, Problem> {
        self.board.leave()?;
        let mut links = Vec::new();
        for &peer in peers {
            let board = self.ports.get(usize::from(peer - u16::from(peer > join.rank)));
            // The board has no link either, and says so.
            let Some(&board) = board else { continue };
            let board = SocketAddrV4::new(Ipv4Addr::LOCALHOST, board);
            let Way { socket, port } = way(peer, board).map_err(Problem::Socket)?;
            self.board.talk().peer(peer, SocketAddrV4::new(GATEWAY, port))?;
            links.push(self.link(join, peer, socket)?);
        }
        self.board.enter(join)?;
        Ok(links)
    }

    /// The end of `peer` of its link to the board.
    fn link<M: HostMemory>(
        &mut self,
        join: Join,
        peer: Rank,
        socket: UdpSocket,
    ) -> Result<UdpLink<M>, Problem> {
        let port = UdpPort::new(socket, ETHERNET).map_err(Problem::Socket)?;
        let port = BoardPort { port, life: self.board.talk().alive().life() };
        let mut config =
            Config::new(session(join.epoch, join.rank, peer), Side::of(peer, join.rank));
        config.rto_initial = Duration::from_millis(20);
        config.rto_max = Duration::from_millis(200);
        config.tries = 20;
        config.silence = self.silence;
        let channels = (0..self.board.identity().calls).map(|_| Channel::new()).collect();
        ReliableLink::new(port, self.clock, HostBytes::new(), channels, config)
            .map_err(|error| Problem::Socket(io::Error::other(error)))
    }
}

/// Ports that nobody has open now.
fn free_ports(count: u16) -> io::Result<Vec<u16>> {
    let sockets: Vec<UdpSocket> =
        (0..count).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
    sockets.iter().map(|socket| Ok(socket.local_addr()?.port())).collect()
}

/// Arguments for a network card whose ports are reached by these of this machine.
fn network(ports: &[u16]) -> Vec<String> {
    let mut user = "user,id=net".to_owned();
    for (board, port) in (BOARD_PORT..).zip(ports) {
        user += &format!(",hostfwd=udp:127.0.0.1:{port}-:{board}");
    }
    let card = "virtio-net-device,netdev=net".to_owned();
    // The machine's default is a version of virtio from before its standard.
    let modern = "virtio-mmio.force-legacy=false".to_owned();
    let [netdev, device, global] = ["-netdev", "-device", "-global"].map(str::to_owned);
    vec![global, modern, netdev, user, device, card]
}
