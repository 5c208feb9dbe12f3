//! The network: how long bytes take, and what happens to packets on their way.
//!
//! Time follows the model of [`unisono_core::plan`]: a member sends and receives at the same time,
//! each at its own rate and one message after the other, and `alpha` passes on the way. A message
//! goes on while it comes in (cut-through).

use crate::hub::{Event, Hub};

/// How fast one member is at its end of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Nanoseconds from sending to arrival.
    pub alpha_ns: u64,
    /// Picoseconds per byte, each way.
    pub ps_per_byte: u64,
}

impl Nic {
    const fn nanos(self, bytes: u64) -> u64 {
        self.ps_per_byte * bytes / 1000
    }
}

/// What happens to packets, in parts per million of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Lost.
    pub loss_ppm: u64,
    /// Delivered twice.
    pub twice_ppm: u64,
    /// Held back, so that later ones overtake them.
    pub held_ppm: u64,
    /// Delivered with a bit changed.
    pub damage_ppm: u64,
    /// Every packet is late by up to so many nanoseconds.
    pub jitter_ns: u64,
    /// A receiver that is more than so many nanoseconds behind drops packets; 0: it never does.
    pub queue_ns: u64,
}

impl Weather {
    /// Nothing happens.
    pub const CALM: Self =
        Self { loss_ppm: 0, twice_ppm: 0, held_ppm: 0, damage_ppm: 0, jitter_ns: 0, queue_ns: 0 };
}

/// Two parts of the group that cannot reach each other for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// First instant.
    pub from: u64,
    /// First instant after it.
    pub until: u64,
    /// One part: bit m is member m.
    pub side: u32,
}

/// When a message is where, as far as its sender decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The last byte has left.
    pub left: u64,
    /// The first byte comes to the receiver, ...
    pub first: u64,
    /// ... and the last one.
    pub last: u64,
}

/// Counters of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sent.
    pub sent: u64,
    /// Lost, for whatever reason.
    pub lost: u64,
    /// Delivered twice.
    pub twice: u64,
    /// Damaged.
    pub damaged: u64,
}

/// The network between all members.
#[derive(Clone, Debug)]
pub struct Net {
    nics: Vec<Nic>,
    sends_until: Vec<u64>,
    receives_until: Vec<u64>,
    partitions: Vec<Partition>,
    weather: Weather,
    heals_at: u64,
    dead: u32,
    counts: Counts,
}

impl Net {
    /// A network with this weather until it heals; afterwards nothing happens to packets.
    #[must_use]
    pub fn new(
        nics: Vec<Nic>,
        weather: Weather,
        partitions: Vec<Partition>,
        heals_at: u64,
    ) -> Self {
        let idle = vec![0; nics.len()];
        let (sends_until, receives_until) = (idle.clone(), idle);
        let (dead, counts) = (0, Counts::default());
        Self { nics, sends_until, receives_until, partitions, weather, heals_at, dead, counts }
    }

    /// The counters.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// A member is no longer there.
    pub const fn kill(&mut self, member: usize) {
        self.dead |= 1 << member;
    }

    /// Is a member no longer there?
    #[must_use]
    pub const fn is_dead(&self, member: usize) -> bool {
        self.dead >> member & 1 != 0
    }

    /// What happens to packets now.
    const fn weather(&self, now: u64) -> Weather {
        if now < self.heals_at { self.weather } else { Weather::CALM }
    }

    /// Until when two members cannot reach each other, if they cannot now.
    fn cut_until(&self, now: u64, a: usize, b: usize) -> Option<u64> {
        let parts = |p: &&Partition| p.side >> a & 1 != p.side >> b & 1;
        let now = |p: &&Partition| (p.from..p.until).contains(&now);
        self.partitions.iter().filter(parts).filter(now).map(|p| p.until).max()
    }

    /// Sends `bytes` bytes; a partition holds them up.
    pub fn leave(&mut self, now: u64, from: usize, to: usize, bytes: u64) -> Passage {
        let (out, into) = (self.nics[from], self.nics[to]);
        let start = self.sends_until[from].max(now);
        let left = start + out.nanos(bytes);
        self.sends_until[from] = left;
        let alpha = out.alpha_ns.max(into.alpha_ns);
        let open = self.cut_until(now, from, to).unwrap_or(0);
        Passage { left, first: (start + alpha).max(open), last: (left + alpha).max(open) }
    }

    /// The first byte of a message has come to its receiver: when it is taken in, from the first
    /// byte to the last.
    pub fn take_in(&mut self, now: u64, to: usize, bytes: u64, last: u64) -> (u64, u64) {
        let head = self.receives_until[to].max(now);
        let tail = last.max(head + self.nics[to].nanos(bytes));
        self.receives_until[to] = tail;
        (head, tail)
    }
}

/// Sends a packet into the weather.
pub fn send_packet(hub: &Hub, from: usize, to: usize, bytes: &[u8]) {
    let now = hub.now();
    let mut net = hub.net.borrow_mut();
    net.counts.sent += 1;
    let cut = net.cut_until(now, from, to).is_some();
    let Passage { first, last, .. } = net.leave(now, from, to, bytes.len() as u64);
    if cut || net.is_dead(to) || hub.rng.borrow_mut().rarely(net.weather(now).loss_ppm) {
        net.counts.lost += 1;
        return;
    }
    hub.at(first, Event::Reach { from, to, last, bytes: bytes.to_vec() });
}

/// The first byte of a packet has come to its receiver.
pub fn handle_reach(hub: &Hub, from: usize, to: usize, last: u64, bytes: &[u8]) {
    let now = hub.now();
    let mut net = hub.net.borrow_mut();
    let mut rng = hub.rng.borrow_mut();
    let weather = net.weather(now);
    if weather.queue_ns > 0 && net.receives_until[to] > now + weather.queue_ns {
        net.counts.lost += 1;
        return;
    }
    let (_, tail) = net.take_in(now, to, bytes.len() as u64, last);
    let copies = 1 + u64::from(rng.rarely(weather.twice_ppm));
    net.counts.twice += copies - 1;
    for _ in 0..copies {
        let late = rng.below(weather.jitter_ns + 1);
        let held = if rng.rarely(weather.held_ppm) { rng.below(2_000_000) } else { 0 };
        let mut bytes = bytes.to_vec();
        if rng.rarely(weather.damage_ppm) {
            let bit = rng.below(bytes.len() as u64 * 8);
            bytes[bit as usize / 8] ^= 1 << (bit % 8);
            net.counts.damaged += 1;
        }
        hub.at(tail + late + held, Event::Packet { from, to, bytes });
    }
}
