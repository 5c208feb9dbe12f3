//! What a channel is told at the start, and what it counts.

use crate::route::Rank;
use core::time::Duration;

/// Which end of the channel this is: packets of the own side, thrown back by a line that echoes,
/// are none of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Side {
    /// The end with the lower rank.
    Low,
    /// The end with the higher rank.
    High,
}

impl Side {
    /// The side of rank `own` on its channel to rank `peer`.
    #[must_use]
    pub const fn of(own: Rank, peer: Rank) -> Self {
        if own < peer { Self::Low } else { Self::High }
    }
}

/// Settings of a channel; both ends use the same `session` and `first_seq`, and different sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Names the channel between two peers; packets of another session are ignored.
    pub session: u32,
    /// Which end this is.
    pub side: Side,
    /// Number of the first fragment.
    pub first_seq: u32,
    /// Time-out before the first round trip has been measured.
    pub rto_initial: Duration,
    /// Shortest time-out: what the peer may take to get round to answering.
    pub rto_min: Duration,
    /// Longest time-out, back-off included.
    pub rto_max: Duration,
    /// A peer that owes an answer and says nothing for this long is given up, ...
    pub silence: Duration,
    /// ... but not before this many time-outs have passed: a pause of this side is no silence.
    pub tries: u32,
    /// An idle peer is asked for a sign of life when nothing has been heard for this long.
    pub keep_alive: Option<Duration>,
}

impl Config {
    /// The settings for a local network: time-outs 100 ms at first, then 2 ms to 1 s; a peer is
    /// given up after 5 s and 5 time-outs; an idle one is left alone.
    #[must_use]
    pub const fn new(session: u32, side: Side) -> Self {
        Self {
            session,
            side,
            first_seq: 0,
            rto_initial: Duration::from_millis(100),
            rto_min: Duration::from_millis(2),
            rto_max: Duration::from_secs(1),
            silence: Duration::from_secs(5),
            tries: 5,
            keep_alive: None,
        }
    }
}

/// Counters since the channel was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Stats {
    /// Packets sent.
    pub sent: u64,
    /// Of these, fragments sent again.
    pub resent: u64,
    /// Packets of this session received.
    pub received: u64,
    /// Of these, fragments that were here already or that there was no room for.
    pub duplicates: u64,
    /// Packets ignored because they were damaged or none of this protocol.
    pub damaged: u64,
    /// Packets ignored because they belong to another session.
    pub foreign: u64,
    /// Time-outs.
    pub timeouts: u64,
}

impl Stats {
    pub(super) const ZERO: Self = Self {
        sent: 0,
        resent: 0,
        received: 0,
        duplicates: 0,
        damaged: 0,
        foreign: 0,
        timeouts: 0,
    };
}
