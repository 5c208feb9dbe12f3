//! Two ends and the link between them; everything follows from the seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;
use unisono_core::Instant;
use unisono_core::reliable::{Config, Reliable, Side};

/// xorshift64*: small, seeded, good enough to draw faults from.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A number in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    fn happens(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}

/// What a link does to packets. Probabilities in 1/1000.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u64,
    pub duplicate: u64,
    pub corrupt: u64,
    /// Random bytes beside a packet.
    pub noise: u64,
    /// Delay of each packet, in microseconds, and a random part of up to so much more: where it
    /// exceeds the distance of two packets, they overtake each other.
    pub delay: u64,
    pub jitter: u64,
    /// Time to put a packet on the line, in microseconds; the link has room for one at a time.
    pub pace: u64,
}

impl Faults {
    /// The fault mix itself is drawn from the seed.
    pub fn swarm(rng: &mut Rng) -> Self {
        let mut draw = |most: u64| if rng.below(3) == 0 { 0 } else { rng.below(most + 1) };
        Self {
            loss: draw(500),
            duplicate: draw(300),
            corrupt: draw(100),
            noise: draw(100),
            delay: draw(3_000),
            jitter: draw(5_000),
            pace: draw(100),
        }
    }
}

/// One direction.
struct Link {
    faults: Faults,
    rng: Rng,
    flying: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    serial: u64,
    free_at: Instant,
}

fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}

impl Link {
    fn fly(&mut self, now: Instant, packet: Vec<u8>) {
        let at = now + micros(self.faults.delay + self.rng.below(self.faults.jitter + 1));
        self.serial += 1;
        self.flying.push(Reverse((at, self.serial, packet)));
    }

    fn send(&mut self, now: Instant, packet: &[u8]) {
        let Faults { loss, duplicate, corrupt, noise, pace, .. } = self.faults;
        self.free_at = now + micros(pace);
        if self.rng.happens(noise) {
            let len = self.rng.below(90) as usize;
            let garbage = self.rng.bytes(len);
            self.fly(now, garbage);
        }
        if self.rng.happens(duplicate) {
            self.fly(now, packet.to_vec());
        }
        if self.rng.happens(loss) {
            return;
        }
        let mut packet = packet.to_vec();
        if self.rng.happens(corrupt) {
            for _ in 0..=self.rng.below(3) {
                let bit = self.rng.below(packet.len() as u64 * 8);
                packet[bit as usize / 8] ^= 1 << (bit % 8);
            }
        }
        self.fly(now, packet);
    }

    fn arrive(&mut self, now: Instant) -> Option<Vec<u8>> {
        let Reverse((at, ..)) = self.flying.peek()?;
        if *at > now {
            return None;
        }
        self.flying.pop().map(|Reverse((_, _, packet))| packet)
    }
}

/// An end with its application: what it still has to send, what it has got.
pub struct End<const W: usize, const M: usize> {
    pub channel: Box<Reliable<W, M>>,
    pub to_send: VecDeque<Vec<u8>>,
    pub got: Vec<Vec<u8>>,
    /// The application takes messages only at multiples of this time.
    pub read_every: Duration,
    next_read: Instant,
}

impl<const W: usize, const M: usize> End<W, M> {
    fn application(&mut self, now: Instant) {
        while self.to_send.front().is_some_and(|m| m.len() <= self.channel.send_room()) {
            // An empty message needs a slot as well, which the room in bytes does not show.
            let Some(message) = self.to_send.front() else { break };
            if self.channel.send(message).is_err() {
                break;
            }
            self.to_send.pop_front();
        }
        if now >= self.next_read {
            let mut buf = vec![0; Reliable::<W, M>::MESSAGE_MAX];
            while let Ok(len) = self.channel.recv(&mut buf) {
                self.got.push(buf[..len].to_vec());
            }
            if self.read_every > Duration::ZERO {
                self.next_read = now + self.read_every;
            }
        }
    }
}

/// Two ends and two directions.
pub struct Pair<const W: usize, const M: usize> {
    pub now: Instant,
    pub ends: [End<W, M>; 2],
    links: [Link; 2],
}

impl<const W: usize, const M: usize> Pair<W, M> {
    pub fn new(config: Config, faults: Faults, seed: u64) -> Self {
        let sides = [Side::Low, Side::High];
        Self {
            now: Instant::from_nanos(seed << 30),
            ends: sides.map(|side| End {
                channel: Box::new(Reliable::new(Config { side, ..config })),
                to_send: VecDeque::new(),
                got: Vec::new(),
                read_every: Duration::ZERO,
                next_read: Instant::ZERO,
            }),
            links: sides.map(|side| Link {
                faults,
                rng: Rng::new(seed * 2 + side as u64),
                flying: BinaryHeap::new(),
                serial: 0,
                free_at: Instant::ZERO,
            }),
        }
    }

    pub fn set_faults(&mut self, faults: Faults) {
        self.links.iter_mut().for_each(|link| link.faults = faults);
    }

    /// Lets both ends do all they can now; returns when the next thing happens, if anything does.
    pub fn step(&mut self) -> Option<Instant> {
        let now = self.now;
        let mut next = None;
        let mut note = |at: Option<Instant>| next = [next, at].into_iter().flatten().min();
        for i in [0, 1] {
            while let Some(packet) = self.links[1 - i].arrive(now) {
                self.ends[i].channel.handle_packet(now, &packet);
            }
            let end = &mut self.ends[i];
            end.channel.handle_timeout(now);
            end.application(now);
            let mut packet = [0; M];
            while self.links[i].free_at <= now {
                let Some(len) = end.channel.poll_transmit(now, &mut packet) else { break };
                self.links[i].send(now, &packet[..len]);
                end.application(now);
            }
            let paused = self.links[i].free_at;
            note(Some(paused).filter(|at| *at > now));
            note(end.channel.poll_timeout());
            note(Some(end.next_read).filter(|at| *at > now && end.channel.message_len().is_some()));
        }
        for link in &self.links {
            note(link.flying.peek().map(|Reverse((at, ..))| *at));
        }
        next
    }

    /// Runs until both ends have sent all and know that it has arrived, or the time is over.
    pub fn run(&mut self, limit: Duration) -> bool {
        let end = self.now + limit;
        while self.now < end {
            let next = self.step();
            let done = |e: &End<W, M>| e.to_send.is_empty() && e.channel.is_idle();
            let taken = |e: &End<W, M>| e.channel.message_len().is_none();
            if self.ends.iter().all(|e| done(e) && taken(e)) {
                return true;
            }
            if self.ends.iter().any(|e| e.channel.fault().is_some()) {
                return false;
            }
            let next = next.expect("work is left, so something must be going to happen");
            self.now = self.now.max(next);
        }
        false
    }

    /// Gives both ends messages of random lengths up to `longest`; returns what each has to get.
    pub fn load(&mut self, rng: &mut Rng, count: u64, longest: usize) -> [Vec<Vec<u8>>; 2] {
        let mut messages = || -> Vec<Vec<u8>> {
            let mut len = || rng.below(longest as u64 + 1) as usize;
            let lens: Vec<usize> = (0..count).map(|_| len()).collect();
            lens.into_iter().map(|len| rng.bytes(len)).collect()
        };
        let (a, b) = (messages(), messages());
        self.ends[0].to_send.extend(a.iter().cloned());
        self.ends[1].to_send.extend(b.iter().cloned());
        [b, a]
    }
}
