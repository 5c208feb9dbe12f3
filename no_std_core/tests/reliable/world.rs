//! Two ends, and the network as a bag of packets that a list of operations controls.
//!
//! The property test and the fuzz target share this file.

use std::time::Duration;
use unisono_core::Instant;
use unisono_core::reliable::{Config, Reliable, Side};

const MTU: usize = 60;
pub type Channel = Reliable<4, MTU>;

#[derive(Clone, Debug)]
pub enum Operation {
    /// Queue a message of this length.
    Send { end: bool, len: usize },
    /// Let an end put at most so many packets into the bag.
    Transmit { end: bool, most: u8 },
    /// Hand some packet of the bag over; keep a copy, perhaps.
    Deliver { end: bool, which: usize, keep: bool },
    /// Hand over a damaged copy.
    Damage { end: bool, which: usize, bit: usize },
    /// Hand over bytes from anywhere.
    Noise { end: bool, bytes: Vec<u8> },
    /// Lose a packet.
    Lose { end: bool, which: usize },
    /// Take a message.
    Recv { end: bool },
    /// Let time pass.
    Wait { micros: u64 },
}

/// All is indexed by an end: its channel, what it sent and got, the packets on their way to it.
pub struct World {
    now: Instant,
    channels: [Channel; 2],
    sent: [Vec<Vec<u8>>; 2],
    got: [Vec<Vec<u8>>; 2],
    bags: [Vec<Vec<u8>>; 2],
}

impl World {
    pub fn new(first_seq: u32) -> Self {
        let channel = |side| {
            let silence = Duration::from_secs(1 << 30);
            Channel::new(Config { first_seq, silence, ..Config::new(5, side) })
        };
        Self {
            now: Instant::ZERO,
            channels: [Side::Low, Side::High].map(channel),
            sent: Default::default(),
            got: Default::default(),
            bags: Default::default(),
        }
    }

    fn transmit(&mut self, end: usize, most: usize) {
        let mut out = [0; MTU];
        for _ in 0..most {
            let Some(len) = self.channels[end].poll_transmit(self.now, &mut out) else { break };
            self.bags[1 - end].push(out[..len].to_vec());
        }
    }

    fn recv(&mut self, end: usize) {
        let mut out = [0; Channel::MESSAGE_MAX];
        if let Ok(len) = self.channels[end].recv(&mut out) {
            self.got[end].push(out[..len].to_vec());
        }
        assert!(self.sent[1 - end].starts_with(&self.got[end]), "each message once and in order");
    }

    pub fn apply(&mut self, operation: Operation) {
        let pick = |bag: &Vec<Vec<u8>>, which: usize| (!bag.is_empty()).then(|| which % bag.len());
        match operation {
            Operation::Send { end, len } => {
                let end = usize::from(end);
                let message = vec![self.sent[end].len() as u8; len];
                let room = self.channels[end].send_room();
                let taken = self.channels[end].send(&message).is_ok();
                assert_eq!(taken, len <= room && room > 0);
                if taken {
                    self.sent[end].push(message);
                }
            }
            Operation::Transmit { end, most } => self.transmit(end.into(), most.into()),
            Operation::Deliver { end, which, keep } => {
                let end = usize::from(end);
                if let Some(i) = pick(&self.bags[end], which) {
                    let bag = &mut self.bags[end];
                    let packet = if keep { bag[i].clone() } else { bag.swap_remove(i) };
                    self.channels[end].handle_packet(self.now, &packet);
                }
            }
            Operation::Damage { end, which, bit } => {
                let end = usize::from(end);
                if let Some(i) = pick(&self.bags[end], which) {
                    let mut packet = self.bags[end][i].clone();
                    let bit = bit % (packet.len() * 8);
                    packet[bit / 8] ^= 1 << (bit % 8);
                    self.channels[end].handle_packet(self.now, &packet);
                }
            }
            Operation::Noise { end, bytes } => {
                self.channels[usize::from(end)].handle_packet(self.now, &bytes);
            }
            Operation::Lose { end, which } => {
                if let Some(i) = pick(&self.bags[usize::from(end)], which) {
                    self.bags[usize::from(end)].swap_remove(i);
                }
            }
            Operation::Recv { end } => self.recv(end.into()),
            Operation::Wait { micros } => {
                self.now = self.now + Duration::from_micros(micros);
                self.channels.iter_mut().for_each(|channel| channel.handle_timeout(self.now));
            }
        }
    }

    /// A good network from now on; panics unless everything arrives.
    pub fn heal(&mut self) {
        for _ in 0..1_000 {
            for end in [0, 1] {
                self.channels[end].handle_timeout(self.now);
                self.transmit(end, usize::MAX);
                for packet in std::mem::take(&mut self.bags[1 - end]) {
                    self.channels[1 - end].handle_packet(self.now, &packet);
                }
                while self.channels[end].message_len().is_some() {
                    self.recv(end);
                }
            }
            let timers = self.channels.each_ref().map(Channel::poll_timeout);
            match timers.into_iter().flatten().min() {
                Some(at) => self.now = self.now.max(at),
                None if self.bags.iter().all(Vec::is_empty) => return self.check(),
                None => {}
            }
        }
        panic!("no end to it");
    }

    fn check(&self) {
        for (end, channel) in self.channels.iter().enumerate() {
            assert_eq!(channel.fault(), None);
            assert!(channel.is_idle());
            assert_eq!(self.got[end], self.sent[1 - end]);
        }
    }
}
