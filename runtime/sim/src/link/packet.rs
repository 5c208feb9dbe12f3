//! A link over packets that get lost: frames are cut into messages of a [`Reliable`] channel.
//!
//! A message is one byte for the channel and a piece of a frame; pieces of a channel's frames come
//! one after the other, and the receiver takes every message at once, so channels never wait for
//! each other. Frames end where their own length says, and carry their own checksum.

mod outbound;

use super::{CHANNELS, depth};
use crate::check::access::{Access, User};
use crate::hub::{Event, Hub};
use crate::memory::Mem;
use crate::net::send_packet;
use outbound::{Outbound, Payload};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::Instant;
use unisono_core::reliable::{Config, Reliable, Side, Stats};
use unisono_core::wire::frame::{self, HEADER_MAX, Header};
use unisono_core::wire::{TRAILER, crc32c};
use unisono_driver::{Arrived, Incoming, Link, LinkCaps, LinkError, Outgoing};

/// Fragments under way, and bytes of a packet.
const WINDOW: usize = 16;
const MTU: usize = 300;
/// Bytes of a frame in one message.
const PIECE: usize = 1000;

#[derive(Debug, Default)]
struct Inbound {
    partial: Vec<u8>,
    frames: VecDeque<(Header, Vec<u8>)>,
}

/// One member's end, which the event loop shares.
#[derive(Debug)]
pub struct End {
    hub: Rc<Hub>,
    me: usize,
    peer: usize,
    /// What this member's clock is ahead of virtual time.
    ahead: u64,
    depth: usize,
    reliable: Box<Reliable<WINDOW, MTU>>,
    out: VecDeque<Outbound>,
    numbers: u64,
    sent: [VecDeque<u32>; CHANNELS],
    inbound: [Inbound; CHANNELS],
    timer_at: u64,
    failed: bool,
}

/// An end that the link and the event loop hold.
pub type SharedEnd = Rc<RefCell<End>>;

/// One member's end of a link over packets.
#[derive(Debug)]
pub struct PacketLink(SharedEnd);

/// Links two members; also returns both ends, the lower member's first.
#[must_use]
pub fn pair(
    hub: &Rc<Hub>,
    members: [usize; 2],
    ahead: [u64; 2],
    window: usize,
) -> ([PacketLink; 2], [SharedEnd; 2]) {
    let end = |side: usize| {
        let (me, peer) = (members[side], members[1 - side]);
        let session = 1 + (members[0] * 256 + members[1]) as u32;
        let mut config = Config::new(session, Side::of(me as u16, peer as u16));
        // Numbers of fragments wrap; begin near the end.
        config.first_seq = u32::MAX - 20;
        // At 30 % loss both ways, 30 time-outs in a row happen once in 10^9 times.
        config.tries = 30;
        config.silence = Duration::from_secs(8);
        config.rto_max = Duration::from_millis(400);
        config.keep_alive = Some(Duration::from_secs(1));
        let end = End {
            hub: hub.clone(),
            me,
            peer,
            ahead: ahead[side],
            depth: depth(window),
            reliable: Box::new(Reliable::new(config)),
            out: VecDeque::new(),
            numbers: 0,
            sent: Default::default(),
            inbound: Default::default(),
            timer_at: u64::MAX,
            failed: false,
        };
        Rc::new(RefCell::new(end))
    };
    let ends = [end(0), end(1)];
    (ends.each_ref().map(|end| PacketLink(end.clone())), ends)
}

impl End {
    fn local(&self) -> Instant {
        Instant::from_nanos(self.hub.now() + self.ahead)
    }

    /// The counters of the channel.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.reliable.stats()
    }

    /// A packet has come in.
    pub fn handle_packet(&mut self, bytes: &[u8]) {
        self.reliable.handle_packet(self.local(), bytes);
        self.pump();
    }

    /// The timer may be due.
    pub fn handle_timer(&mut self) {
        if self.timer_at <= self.hub.now() {
            self.timer_at = u64::MAX;
        }
        self.reliable.handle_timeout(self.local());
        self.pump();
    }

    /// The channel begins its keep-alive.
    pub fn begin(&mut self) {
        self.pump();
    }

    const fn user(&self, number: u64) -> User {
        let frame = 1 << 62 | (self.me as u64) << 48 | (self.peer as u64) << 40 | number;
        User::Lent { frame, to: self.peer as u16, entered: false }
    }

    /// Takes in messages, queues new ones, sends packets, sets the timer.
    fn pump(&mut self) {
        let mut news = self.take_messages();
        news |= self.queue_messages();
        let mut packet = [0; MTU];
        while let Some(len) = self.reliable.poll_transmit(self.local(), &mut packet) {
            send_packet(&self.hub, self.me, self.peer, &packet[..len]);
        }
        if let Some(at) = self.reliable.poll_timeout() {
            let at = at.as_nanos() - self.ahead;
            if at < self.timer_at {
                self.timer_at = at;
                self.hub.at(at, Event::Timer { member: self.me, peer: self.peer });
            }
        }
        if self.reliable.fault().is_some() && !self.failed {
            self.failed = true;
            self.free_all();
            news = true;
        }
        if news {
            self.hub.wake(self.me);
        }
    }

    fn take_messages(&mut self) -> bool {
        let mut message = [0; PIECE + 1];
        let mut news = false;
        while self.reliable.message_len().is_some() {
            let Ok(len) = self.reliable.recv(&mut message) else {
                self.hub.complain("a message that no end sends".into());
                return news;
            };
            let channel = usize::from(message[0]);
            let inbound = &mut self.inbound[channel];
            inbound.partial.extend_from_slice(&message[1..len]);
            if is_whole(&inbound.partial) {
                let bytes = core::mem::take(&mut inbound.partial);
                match frame::decode(&bytes) {
                    Ok((header, payload)) => inbound.frames.push_back((header, payload.to_vec())),
                    Err(why) => self.hub.complain(format!("a frame that is none: {why}")),
                }
                news = true;
            }
            if self.inbound[channel].frames.len() > self.depth {
                let Self { me, peer, depth, .. } = self;
                self.hub.complain(format!("{me} has more than {depth} frames of {peer} waiting"));
            }
        }
        news
    }

    /// Moves frames into the channel as far as there is room; true if one has gone completely.
    fn queue_messages(&mut self) -> bool {
        let mut news = false;
        while let Some(mut frame) = self.out.pop_front() {
            while self.reliable.send_room() > PIECE && frame.done < frame.len() {
                let mut message = vec![frame.channel as u8];
                frame.piece(&self.hub, &mut message);
                if let Err(why) = self.reliable.send(&message) {
                    self.hub.complain(format!("a message is refused: {why}"));
                }
            }
            if frame.done < frame.len() {
                self.out.push_front(frame);
                break;
            }
            news |= self.complete(frame);
        }
        news
    }

    /// A frame's memory is free again.
    fn complete(&mut self, frame: Outbound) -> bool {
        if let Payload::Lent(mem, _) = frame.payload {
            self.hub.memory.borrow_mut().release(self.user(frame.number), mem);
        }
        frame.token.map(|token| self.sent[frame.channel].push_back(token)).is_some()
    }

    /// Nothing is sent any more: all memory is free.
    fn free_all(&mut self) {
        for frame in core::mem::take(&mut self.out) {
            self.complete(frame);
        }
    }
}

/// Is this a frame to its end? (The link that sent it sends nothing else.)
fn is_whole(bytes: &[u8]) -> bool {
    match frame::decode_head(bytes) {
        Ok((header, head)) => bytes.len() == head + header.payload_len() as usize + TRAILER,
        Err(_) => false,
    }
}

impl PacketLink {
    /// This member is gone.
    pub fn leave(&self) {
        self.0.borrow_mut().free_all();
    }
}

impl Link for PacketLink {
    type Mem = Mem;

    fn caps(&self) -> LinkCaps {
        LinkCaps { spans: false, puts: false, inline_max: 0, channels: CHANNELS }
    }

    fn has_room(&mut self, channel: usize) -> bool {
        let end = self.0.borrow();
        end.out.iter().filter(|f| f.channel == channel).count() < end.depth || end.failed
    }

    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<Mem>,
        token: u32,
    ) -> Result<(), LinkError> {
        let end = &mut *self.0.borrow_mut();
        if end.failed {
            return Err(LinkError::Closed);
        }
        let mut head = [0; HEADER_MAX];
        let len = frame::encode_head(header, &mut head).map_err(|_| LinkError::Garbage)?;
        let head = head[..len].to_vec();
        let number = end.numbers;
        let (payload, token) = match payload {
            Outgoing::None => (Payload::Own(Vec::new()), None),
            Outgoing::At { mem, bytes, window: None } => {
                let (user, len) = (end.user(number), bytes as u64);
                let claim = end.hub.memory.borrow_mut().claim(user, Access::Read, mem, len);
                end.hub.check(claim);
                (Payload::Lent(mem, bytes), Some(token))
            }
            Outgoing::At { .. } | Outgoing::Put => {
                end.hub.complain("packets are asked for a window".into());
                (Payload::Own(Vec::new()), None)
            }
        };
        end.numbers += 1;
        let crc = crc32c(&head);
        end.out.push_back(Outbound { channel, head, payload, token, done: 0, crc, number });
        end.hub.note_frame(end.me, end.peer, header);
        end.pump();
        Ok(())
    }

    fn poll_sent(&mut self, channel: usize) -> Option<u32> {
        self.0.borrow_mut().sent[channel].pop_front()
    }

    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<Mem>>, LinkError> {
        let end = self.0.borrow();
        match end.inbound[channel].frames.front() {
            Some((header, _)) => {
                let data = matches!(header.body, frame::Body::Data(_));
                let payload = if data { Arrived::Stream } else { Arrived::None };
                Ok(Some(Incoming { header: *header, payload }))
            }
            None if end.failed => Err(LinkError::Closed),
            None => Ok(None),
        }
    }

    fn take(&mut self, channel: usize) {
        let mut end = self.0.borrow_mut();
        if end.inbound[channel].frames.pop_front().is_none() {
            end.hub.complain("takes a frame where there is none".into());
        }
    }

    unsafe fn receive(&mut self, channel: usize, into: Option<Mem>) -> Result<bool, LinkError> {
        let end = &mut *self.0.borrow_mut();
        let Some((_, bytes)) = end.inbound[channel].frames.pop_front() else {
            end.hub.complain("receives a payload where there is none".into());
            return Err(LinkError::Garbage);
        };
        if let Some(into) = into {
            let put = end.hub.memory.borrow_mut().put(end.me as u16, into, &bytes);
            end.hub.check(put);
        }
        Ok(true)
    }

    fn enter(&mut self, _: usize, _: u32) -> bool {
        self.0.borrow().hub.complain("packets have no spans to enter".into());
        false
    }

    fn exit(&mut self, _: usize, _: u32) {
        self.0.borrow().hub.complain("packets have no spans to leave".into());
    }

    fn release(&mut self, _: usize, _: u32) {
        self.0.borrow().hub.complain("packets have no spans to give back".into());
    }

    fn withdraw(&mut self, channel: usize) -> bool {
        let end = &mut *self.0.borrow_mut();
        end.sent[channel].clear();
        for mut frame in core::mem::take(&mut end.out) {
            let (Payload::Lent(mem, len), true) = (&frame.payload, frame.channel == channel) else {
                end.out.push_back(frame);
                continue;
            };
            let (mem, len) = (*mem, *len);
            let user = end.user(frame.number);
            if frame.done > 0 {
                // The peer waits for the rest of it.
                let bytes = end.hub.memory.borrow().read(mem, len).map(<[u8]>::to_vec);
                frame.payload = Payload::Own(bytes.unwrap_or_else(|why| {
                    end.hub.complain(why);
                    vec![0; len]
                }));
                frame.token = None;
                end.out.push_back(frame);
            }
            end.hub.memory.borrow_mut().release(user, mem);
        }
        true
    }
}
