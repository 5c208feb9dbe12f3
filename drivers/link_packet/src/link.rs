//! The link itself.

use crate::Bytes;
use crate::channel::Channel;
use core::borrow::BorrowMut;
use core::time::Duration;
use unisono_core::reliable::{Config, Stats};
use unisono_core::route::Rank;
use unisono_core::time::Instant;
use unisono_core::wire::frame::Header;
use unisono_driver::{Clock, Incoming, Link, LinkCaps, LinkError, Outgoing, PacketLink};

/// The packets of a link are too long for what carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("packets of {mtu} bytes do not fit the port, which takes {most}: use a smaller MTU")]
pub struct MtuError {
    /// Bytes of the link's packets.
    pub mtu: usize,
    /// Most bytes that the port takes.
    pub most: usize,
}

/// The session of the link between two members in an epoch: the same for both, another one for each
/// pair and each of the last 8192 epochs. Members are below 128; up to 32 channels.
#[must_use]
pub const fn session(epoch: u32, a: Rank, b: Rank) -> u32 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    epoch << 19 | (low as u32 & 127) << 12 | (high as u32 & 127) << 5
}

/// A port without room is given up only after it has been asked so often: a pause of this side is
/// no fault of the port.
const ASKED: u32 = 1000;

/// Where a packet of a reliable machine names its session.
const SESSION_AT: usize = 4;

/// One end of a link over the packets of `P`, to the one peer that `P` leads to. See the crate's
/// head for the constants and the format.
#[derive(Debug)]
pub struct ReliableLink<P, C, B, S, const WINDOW: usize, const MTU: usize, const DEPTH: usize> {
    port: P,
    clock: C,
    bytes: B,
    session: u32,
    channels: S,
    /// The peer is silent, or the port is closed.
    closed: bool,
    /// Since when the port has had no room, and how often it was asked.
    stuck: Option<(Instant, u32)>,
    silence: Duration,
    foreign: u64,
}

impl<P, C, B, S, const WINDOW: usize, const MTU: usize, const DEPTH: usize>
    ReliableLink<P, C, B, S, WINDOW, MTU, DEPTH>
where
    P: PacketLink,
    C: Clock,
    B: Bytes,
    S: BorrowMut<[Channel<B::Mem, WINDOW, MTU, DEPTH>]>,
{
    /// A link over `port`.
    ///
    /// # Errors
    /// [`MtuError`] if `port` does not take packets of `MTU` bytes.
    ///
    /// Both ends have the same `config` but for its side, and the same constants. Sessions from
    /// `config.session` on, one for each of `channels`, are this link's: no other link may use
    /// them. An idle peer that is gone is only noticed with [`Config::keep_alive`], which needs
    /// both ends to be polled also when no call is under way.
    pub fn new(
        port: P,
        clock: C,
        bytes: B,
        mut channels: S,
        config: Config,
    ) -> Result<Self, MtuError> {
        let most = port.mtu();
        if most < MTU {
            return Err(MtuError { mtu: MTU, most });
        }
        for (index, channel) in channels.borrow_mut().iter_mut().enumerate() {
            let session = config.session.wrapping_add(index as u32);
            // One channel is enough to find out whether the peer lives.
            let keep_alive = config.keep_alive.filter(|_| index == 0);
            channel.reset(Config { session, keep_alive, ..config });
        }
        let Config { session, silence, .. } = config;
        let (closed, stuck, foreign) = (false, None, 0);
        Ok(Self { port, clock, bytes, session, channels, closed, stuck, silence, foreign })
    }

    /// What carries the packets.
    pub const fn port(&self) -> &P {
        &self.port
    }

    /// The same, to be changed.
    pub const fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// How payload is reached.
    pub const fn bytes(&self) -> &B {
        &self.bytes
    }

    /// Counters of all channels together.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut sum = Stats { foreign: self.foreign, ..Stats::default() };
        for stats in self.channels.borrow().iter().map(|c| c.arq.stats()) {
            sum.sent += stats.sent;
            sum.resent += stats.resent;
            sum.received += stats.received;
            sum.duplicates += stats.duplicates;
            sum.damaged += stats.damaged;
            sum.foreign += stats.foreign;
            sum.timeouts += stats.timeouts;
        }
        sum
    }

    /// Has the peer acknowledged everything? Until then, a link must be polled, not dropped.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.channels.borrow().iter().all(|c| c.arq.is_idle() && !c.is_sending())
    }

    /// When [`Link::poll`] has to be called, if no packet comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.channels.borrow().iter().filter_map(|c| c.arq.poll_timeout()).min()
    }

    /// Is there anything that the engine has not taken yet?
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.closed || self.channels.borrow().iter().any(Channel::has_news)
    }

    /// A packet has come in: for callers that are told of packets, and whose port receives none.
    /// Call [`Link::poll`] afterwards.
    pub fn handle_packet(&mut self, packet: &[u8]) {
        let now = self.clock.now();
        self.take_in(now, packet);
    }

    fn take_in(&mut self, now: Instant, packet: &[u8]) {
        let session = packet.get(SESSION_AT..).and_then(<[u8]>::first_chunk);
        let session = session.map(|bytes| u32::from_le_bytes(*bytes));
        let index = session.map_or(usize::MAX, |s| s.wrapping_sub(self.session) as usize);
        match self.channels.borrow_mut().get_mut(index) {
            Some(channel) => channel.arq.handle_packet(now, packet),
            None => self.foreign += 1,
        }
    }

    /// Takes in packets, at most as many as may be under way: a flood must not stop everything
    /// else.
    fn receive_packets(&mut self, now: Instant) {
        let mut packet = [0; MTU];
        for _ in 0..self.channels.borrow().len() * WINDOW {
            match self.port.receive(&mut packet) {
                Ok(Some(len)) => self.take_in(now, packet.get(..len).unwrap_or_default()),
                Ok(None) => return,
                Err(_) => {
                    self.closed = true;
                    return;
                }
            }
        }
    }

    /// Moves frames of a channel into its machine and what the machine says into the port.
    fn pump(&mut self, index: usize, now: Instant) {
        let Self { port, bytes, channels, closed, .. } = self;
        let Some(channel) = channels.borrow_mut().get_mut(index) else { return };
        let mut packet = [0; MTU];
        loop {
            channel.fill(bytes);
            if *closed || !port.has_room() {
                break;
            }
            let Some(len) = channel.arq.poll_transmit(now, &mut packet) else { break };
            if port.send(packet.get(..len).unwrap_or_default()).is_err() {
                *closed = true;
            }
        }
    }

    /// A port that has no room for as long as a peer may be silent never will.
    fn notice_stuck(&mut self, now: Instant) {
        if self.port.has_room() {
            self.stuck = None;
            return;
        }
        let (since, asked) = self.stuck.get_or_insert((now, 0));
        *asked = asked.saturating_add(1);
        self.closed |= *asked > ASKED && now - *since >= self.silence;
    }

    /// A peer that is silent on one channel is gone for all of them.
    fn notice_end(&mut self) {
        self.closed |= self.channels.borrow().iter().any(|c| c.broken() == Some(LinkError::Closed));
        for channel in self.channels.borrow_mut() {
            if self.closed || channel.broken().is_some() {
                channel.free_all();
            }
        }
    }
}

impl<P, C, B, S, const WINDOW: usize, const MTU: usize, const DEPTH: usize> Link
    for ReliableLink<P, C, B, S, WINDOW, MTU, DEPTH>
where
    P: PacketLink,
    C: Clock,
    B: Bytes,
    S: BorrowMut<[Channel<B::Mem, WINDOW, MTU, DEPTH>]>,
{
    type Mem = B::Mem;

    fn caps(&self) -> LinkCaps {
        LinkCaps {
            spans: false,
            puts: false,
            inline_max: 0,
            channels: self.channels.borrow().len(),
        }
    }

    fn poll(&mut self) {
        let now = self.clock.now();
        if !self.closed {
            self.receive_packets(now);
        }
        for index in 0..self.channels.borrow().len() {
            if let Some(channel) = self.channels.borrow_mut().get_mut(index) {
                channel.arq.handle_timeout(now);
            }
            self.pump(index, now);
        }
        self.notice_stuck(now);
        self.notice_end();
    }

    fn has_room(&mut self, channel: usize) -> bool {
        // On a link that is closed, sending says so.
        let room = |c: &Channel<_, WINDOW, MTU, DEPTH>| c.has_room() || c.broken().is_some();
        self.closed || self.channels.borrow().get(channel).is_none_or(room)
    }

    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<B::Mem>,
        token: u32,
    ) -> Result<(), LinkError> {
        let Some(c) = self.channels.borrow_mut().get_mut(channel) else {
            return Err(LinkError::Closed);
        };
        if self.closed || c.broken().is_some() {
            return Err(LinkError::Closed);
        }
        c.push(header, payload, token)?;
        let now = self.clock.now();
        self.pump(channel, now);
        Ok(())
    }

    fn poll_sent(&mut self, channel: usize) -> Option<u32> {
        self.channels.borrow_mut().get_mut(channel)?.poll_sent()
    }

    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<B::Mem>>, LinkError> {
        let closed = self.closed;
        self.channels.borrow_mut().get_mut(channel).ok_or(LinkError::Closed)?.poll_frame(closed)
    }

    fn take(&mut self, channel: usize) {
        if let Some(channel) = self.channels.borrow_mut().get_mut(channel) {
            channel.take();
        }
    }

    unsafe fn receive(&mut self, channel: usize, into: Option<B::Mem>) -> Result<bool, LinkError> {
        let Self { bytes, channels, closed, .. } = self;
        let c = channels.borrow_mut().get_mut(channel).ok_or(LinkError::Closed)?;
        // SAFETY: the caller's promise.
        unsafe { c.receive(bytes, into, *closed) }
    }

    fn enter(&mut self, _: usize, _: u32) -> bool {
        false
    }

    fn exit(&mut self, _: usize, _: u32, _: bool) {}

    fn release(&mut self, _: usize, _: u32) {}

    fn withdraw(&mut self, channel: usize) -> bool {
        if let Some(channel) = self.channels.borrow_mut().get_mut(channel) {
            channel.withdraw();
        }
        true
    }
}
