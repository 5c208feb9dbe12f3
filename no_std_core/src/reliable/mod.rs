//! One machine that makes a lossy packet link a reliable channel of messages, in order.
//!
//! Packets may get lost, doubled, overtaken, delayed or damaged (damaged is lost: the checksum sees
//! to it); every message is delivered exactly once, in the order sent, or the channel says that its
//! peer is silent. Nothing above it needs a protocol of its own against loss.
//!
//! # Driving it
//!
//! ```text
//! handle_packet(now, bytes)    a packet has come in
//! handle_timeout(now)          the instant of poll_timeout() has come
//! send(message)                queue a message
//!     after each of these:     while there is room for a packet, poll_transmit(now, room)
//!                              while message_len() is some, recv(room)
//!                              note poll_timeout()
//! ```
//!
//! It does no I/O and reads no clock; `now` is the caller's and never runs backwards. All storage
//! lies inside: `2 * WINDOW` fragments.
//!
//! # How it works
//!
//! A message is cut into fragments, numbered in a row modulo 2^32; the last one is marked. Every
//! packet tells which fragments have arrived (all below a number, and a bit map of those after it)
//! and how many more there is room for. A packet that needs an answer gets one at once: on a
//! fragment that is due anyway, or else alone. So acknowledgements are never held back, and the
//! time-out has not to allow for it.
//!
//! A fragment in `[una, end)` at the sender, `una` being the oldest that the peer may not have:
//!
//! ```text
//! state    event                                            next state
//! Queued   sent, as credit and congestion window allow      Flight
//! Flight   acknowledged                                     Acked
//! Flight   a packet sent 3 later has arrived, or time-out   Lost
//! Lost     sent again, before anything queued               Flight
//! Lost     acknowledged after all                           Acked
//! Acked    everything before it is acknowledged too         its slot is free
//! ```
//!
//! A fragment in the window `[read, read + WINDOW)` at the receiver:
//!
//! ```text
//! Empty    arrives                                          Full
//! Full     arrives again (as if outside of the window)      Full, nothing changes
//! Full     its message is whole and taken                   Empty, for the number WINDOW further
//! ```
//!
//! The channel; its timer is the keep-alive, the time-out, or none:
//!
//! ```text
//! Idle     there is something to send                       Waiting
//! Idle     keep-alive: the peer is asked for an answer      Waiting
//! Waiting  the peer has answered and acknowledged all       Idle
//! Waiting  time-out: see Flight; doubles the next one       Waiting
//! Waiting  time-out after a long silence                    Failed
//! any      the peer breaks the rules                        Failed
//! Failed   for good: make a new channel, in a new session
//! ```
//!
//! The time-out follows RFC 6298. Each packet carries its sender's clock, and the answer echoes
//! the oldest clock that it answers, so a retransmission is measured as well as a first
//! transmission, and a time-out that was too short is soon corrected. If credit is used up, the
//! time-out asks for the answer whose credit may have got lost. The congestion window is described
//! in `aimd.rs`.
//!
//! # What it does not do
//!
//! Packets of another session change nothing, so a session number must not be used again while
//! packets of its first use may be under way: derive it from the group's epoch. There is no defence
//! against somebody who can see the session and forge packets; that is for the link (a closed
//! network, or authenticated packets).

mod aimd;
mod config;
mod error;
mod messages;
pub mod packet;
mod receiver;
mod rtt;
mod sender;

pub use config::{Config, Side, Stats};
pub use error::{Fault, RecvError, SendError};

use crate::time::Instant;
use core::time::Duration;
use packet::{OVERHEAD, Packet, stamp};
use receiver::Receiver;
use rtt::Rtt;
use sender::{Ack, Sender};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Retransmit(Instant),
    KeepAlive(Instant),
}

/// A channel: up to `WINDOW` fragments under way each way, packets of up to `MTU` bytes.
///
/// `WINDOW` is a power of two up to 64, `MTU` more than [`packet::OVERHEAD`]; anything else does
/// not compile. Both ends have the same. See the [module](crate::reliable) for how to drive it.
#[derive(Debug)]
pub struct Reliable<const WINDOW: usize, const MTU: usize> {
    config: Config,
    sender: Sender<WINDOW, MTU>,
    receiver: Receiver<WINDOW, MTU>,
    rtt: Rtt,
    timer: Option<Timer>,
    /// Last sign of life, or when the wait for one began.
    since: Instant,
    /// Time-outs since then.
    tries: u32,
    /// The peer has to be answered, and the oldest clock to echo.
    ack_due: bool,
    echo: Option<u32>,
    /// The peer is to be asked for an answer; it owes one.
    ping_due: bool,
    ping_open: bool,
    fault: Option<Fault>,
    stats: Stats,
}

impl<const WINDOW: usize, const MTU: usize> Reliable<WINDOW, MTU> {
    /// Longest message in bytes.
    pub const MESSAGE_MAX: usize = WINDOW * Self::FRAGMENT;
    /// Most bytes of a message in one packet.
    pub const FRAGMENT: usize = {
        assert!(WINDOW.is_power_of_two(), "the window must divide 2^32, where numbers wrap");
        assert!(WINDOW <= 64, "the bit map of acknowledgements has 64 bits");
        assert!(MTU > OVERHEAD, "a packet must have room for a part of a message");
        MTU - OVERHEAD
    };

    /// A channel on which nothing has been sent.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        const { assert!(Self::FRAGMENT > 0) };
        Self {
            sender: Sender::new(config.first_seq),
            receiver: Receiver::new(config.first_seq),
            rtt: Rtt::new(config.rto_initial, config.rto_min, config.rto_max),
            timer: None,
            since: Instant::ZERO,
            tries: 0,
            ack_due: false,
            echo: None,
            ping_due: false,
            ping_open: false,
            fault: None,
            stats: Stats::ZERO,
            config,
        }
    }

    /// Begins anew, as [`Reliable::new`] does, without moving the storage.
    pub fn reset(&mut self, config: Config) {
        self.sender.reset(config.first_seq);
        self.receiver.reset(config.first_seq);
        self.rtt = Rtt::new(config.rto_initial, config.rto_min, config.rto_max);
        self.timer = None;
        (self.since, self.tries) = (Instant::ZERO, 0);
        (self.ack_due, self.ping_due, self.ping_open) = (false, false, false);
        (self.echo, self.fault) = (None, None);
        self.stats = Stats::ZERO;
        self.config = config;
    }

    /// Why the channel has failed, if it has. Messages that are whole can still be taken.
    #[must_use]
    pub const fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// The smoothed round-trip time, once one has been measured.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// Has the peer acknowledged every message?
    ///
    /// A peer that leaves should stay a while after this, to answer packets that are sent again
    /// because its last answer got lost.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.sender.is_idle()
    }

    /// A packet has come in. Anything but a whole packet of this session is counted and ignored.
    pub fn handle_packet(&mut self, now: Instant, bytes: &[u8]) {
        if self.fault.is_some() {
            return;
        }
        let Ok(packet) = packet::decode(bytes) else {
            self.stats.damaged += 1;
            return;
        };
        if packet.session != self.config.session || packet.side == self.config.side {
            self.stats.foreign += 1;
            return;
        }
        self.stats.received += 1;
        let ack = self.sender.acknowledge(&packet);
        let too_long = packet.data.is_some_and(|f| f.bytes.len() > Self::FRAGMENT);
        if ack == Ack::Impossible || too_long {
            self.fail(Fault::Protocol);
            return;
        }
        self.heard(now, &packet, ack == Ack::Progress);
        if let Some(fragment) = &packet.data {
            self.stats.duplicates += u64::from(!self.receiver.accept(fragment));
        }
        if packet.data.is_some() || packet.ping {
            self.ack_due = true;
            // The oldest clock: a round trip includes the time that the answer took.
            self.echo.get_or_insert(packet.stamp);
        }
        if self.receiver.is_stuck() {
            self.fail(Fault::Protocol);
        }
    }

    /// The peer is alive, and has perhaps received something.
    fn heard(&mut self, now: Instant, packet: &Packet<'_>, progress: bool) {
        self.since = now;
        self.tries = 0;
        self.ping_open = false;
        if progress {
            self.rtt.progress();
            if let Some(echo) = packet.echo {
                let ticks = stamp(now).wrapping_sub(echo);
                // An echo from the future comes from a peer in error, and measures nothing.
                if ticks < 1 << 31 {
                    self.rtt.sample(Duration::from_nanos(u64::from(ticks) << 10));
                }
            }
        }
        if progress || !matches!(self.timer, Some(Timer::Retransmit(_))) {
            self.timer = None;
        }
        self.arm(now);
    }

    /// Sets the timer that the state calls for, unless it is running.
    fn arm(&mut self, now: Instant) {
        let waiting = !self.sender.is_idle() || self.ping_open;
        match self.timer {
            Some(Timer::Retransmit(_)) if waiting => {}
            _ if waiting => {
                self.since = now;
                self.timer = Some(Timer::Retransmit(now + self.rtt.timeout()));
            }
            Some(Timer::KeepAlive(_)) => {}
            _ => {
                let at = self.config.keep_alive.map(|after| Timer::KeepAlive(now + after));
                self.timer = at;
            }
        }
    }

    fn fail(&mut self, fault: Fault) {
        self.fault = Some(fault);
        self.timer = None;
    }

    /// When to call [`Reliable::handle_timeout`], if nothing happens before.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.timer {
            Some(Timer::Retransmit(at) | Timer::KeepAlive(at)) => Some(at),
            None => None,
        }
    }

    /// The instant of [`Reliable::poll_timeout`] may have come; does nothing before.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return;
        }
        if let Some(Timer::KeepAlive(_)) = self.timer {
            self.ping_due = true;
            self.ping_open = true;
            self.arm(now);
            return;
        }
        let unsent = self.sender.due().is_some() || self.ping_due;
        if self.sender.in_flight() || !unsent {
            self.stats.timeouts += 1;
            self.tries = self.tries.saturating_add(1);
            if self.tries >= self.config.tries && now - self.since >= self.config.silence {
                self.fail(Fault::PeerSilent);
                return;
            }
            self.rtt.back_off();
            self.sender.time_out();
            self.ping_due |= self.sender.due().is_none();
        }
        // Otherwise this side's own link had no room: that is no fault of the peer.
        self.timer = Some(Timer::Retransmit(now + self.rtt.timeout()));
    }

    /// Writes the packet that is to be sent now, if there is one; returns its length.
    ///
    /// The packet counts as sent: call only with room on the link, and until it returns `None`.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8; MTU]) -> Option<usize> {
        if self.fault.is_some() {
            return None;
        }
        self.arm(now);
        let due = self.sender.due();
        if due.is_none() && !self.ping_due && !self.ack_due {
            return None;
        }
        let clock = stamp(now);
        let mut packet = Packet {
            session: self.config.session,
            side: self.config.side,
            credit: self.receiver.credit(),
            ack: self.receiver.ack(),
            sack: self.receiver.sack(),
            stamp: clock,
            echo: self.echo,
            ping: self.ping_due,
            data: None,
        };
        if let Some(seq) = due {
            let (fragment, again) = self.sender.transmit(seq, clock);
            packet.data = Some(fragment);
            self.stats.resent += u64::from(again);
        }
        let len = packet::encode(&packet, out).ok()?;
        self.receiver.tell();
        self.stats.sent += 1;
        self.ack_due = false;
        self.echo = None;
        self.ping_due = false;
        Some(len)
    }
}
