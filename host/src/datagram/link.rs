//! The link, shared by its member and the keeper.

use super::keeper::Keeper;
use super::port::{self, MTU, Port, Since};
use std::io;
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use unisono_core::reliable::{Config, Side};
use unisono_core::wire::frame::Header;
use unisono_driver::{HostPtr, Incoming, Link, LinkCaps, LinkError, Outgoing};
use unisono_link_packet::{Channel, HostBytes, ReliableLink};
use unisono_rendezvous::Datagrams;

/// Packets of a channel under way each way, and frames that wait.
const PACKETS: usize = 64;
const DEPTH: usize = 32;

/// Names of channels are in the low bits of a session.
const CHANNELS: u32 = 32;

/// How long the end of a link waits for a peer that answers nothing.
const LINGER: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_micros(200);

type Storage = Vec<Channel<HostPtr, PACKETS, MTU, DEPTH>>;
type Packets = ReliableLink<Port, Since, HostBytes<HostPtr>, Storage, PACKETS, MTU, DEPTH>;

/// What the member and the keeper use.
#[derive(Debug)]
pub(super) struct Shared {
    packets: Mutex<Packets>,
    lifeline: TcpStream,
    over: Arc<AtomicBool>,
    /// How often the member has polled.
    polls: AtomicU32,
}

impl Shared {
    fn packets(&self) -> MutexGuard<'_, Packets> {
        // A panic in it ends the process in any case (see the member's `NoUnwind`).
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packets of other sessions.
    #[cfg(test)]
    pub(super) fn foreign(&self) -> u64 {
        self.packets().stats().foreign
    }

    pub(super) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Looks at the lifeline.
    pub(super) fn watch(&self) {
        if port::has_ended(&self.lifeline) {
            self.over.store(true, Ordering::Release);
        }
    }

    /// Does what the link has to do by itself, if nobody else is at it; true if packets have come.
    pub(super) fn tend(&self) -> bool {
        let Ok(mut packets) = self.packets.try_lock() else { return false };
        let before = packets.stats().received;
        packets.poll();
        packets.stats().received != before
    }
}

/// One end of a link over UDP.
#[derive(Debug)]
pub(crate) struct UdpLink {
    shared: Arc<Shared>,
    /// A second descriptor of the socket, to sleep on.
    socket: UdpSocket,
    channels: usize,
}

impl UdpLink {
    /// A link with so many channels, which `keeper` looks after from now on.
    ///
    /// # Errors
    /// If the system refuses to set the sockets up.
    pub fn new(
        datagrams: Datagrams,
        low: bool,
        channels: usize,
        keeper: &mut Keeper,
    ) -> io::Result<Self> {
        port::prepare(&datagrams)?;
        let Datagrams { socket, lifeline, session, first } = datagrams;
        let (over, own) = (Arc::new(AtomicBool::new(false)), socket.try_clone()?);
        let side = if low { Side::Low } else { Side::High };
        let mut config = Config::new(session & !(CHANNELS - 1), side);
        config.first_seq = first;
        config.rto_min = Duration::from_millis(5);
        config.rto_max = Duration::from_millis(200);
        // The lifeline says when a peer is gone.
        config.silence = Duration::from_secs(u32::MAX.into());
        let storage = (0..channels).map(|_| Channel::new()).collect();
        let port = Port::new(socket, over.clone())?;
        let packets = ReliableLink::new(port, Since::now(), HostBytes::new(), storage, config);
        let packets = Mutex::new(packets.map_err(io::Error::other)?);
        let shared = Arc::new(Shared { packets, lifeline, over, polls: AtomicU32::new(0) });
        keeper.add(&shared);
        Ok(Self { shared, socket: own, channels })
    }

    fn packets(&self) -> MutexGuard<'_, Packets> {
        self.shared.packets()
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl AsFd for UdpLink {
    /// Can be read when there is something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Link for UdpLink {
    type Mem = HostPtr;

    fn caps(&self) -> LinkCaps {
        LinkCaps { spans: false, puts: false, inline_max: 0, channels: self.channels }
    }

    fn poll(&mut self) {
        self.shared.polls.fetch_add(1, Ordering::Relaxed);
        self.packets().poll();
    }

    fn has_room(&mut self, channel: usize) -> bool {
        self.packets().has_room(channel)
    }

    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<HostPtr>,
        token: u32,
    ) -> Result<(), LinkError> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.packets().send(channel, header, payload, token) }
    }

    fn poll_sent(&mut self, channel: usize) -> Option<u32> {
        self.packets().poll_sent(channel)
    }

    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<HostPtr>>, LinkError> {
        self.packets().poll_frame(channel)
    }

    fn take(&mut self, channel: usize) {
        self.packets().take(channel);
    }

    unsafe fn receive(&mut self, channel: usize, into: Option<HostPtr>) -> Result<bool, LinkError> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.packets().receive(channel, into) }
    }

    fn enter(&mut self, _: usize, _: u32) -> bool {
        false
    }

    fn exit(&mut self, _: usize, _: u32, _: bool) {}

    fn release(&mut self, _: usize, _: u32) {}

    fn withdraw(&mut self, channel: usize) -> bool {
        self.packets().withdraw(channel)
    }
}

/// The peer must have everything before the lifeline ends: perhaps the end of a call that has
/// succeeded here.
impl Drop for UdpLink {
    fn drop(&mut self) {
        let mut packets = self.packets();
        for channel in 0..self.channels {
            packets.withdraw(channel);
        }
        let (mut heard, mut since) = (0, Instant::now());
        loop {
            packets.poll();
            self.shared.watch();
            let received = packets.stats().received;
            if received != heard {
                (heard, since) = (received, Instant::now());
            }
            let over = self.shared.over.load(Ordering::Acquire);
            if over || packets.is_idle() || since.elapsed() >= LINGER {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        // The keeper may still have its hand on it; if it has ended, there is nothing to end.
        let _ = self.shared.lifeline.shutdown(Shutdown::Both);
    }
}
