//! A link over packets that get lost: [`ReliableLink`], driven by the event loop.
//!
//! The link under test is the real one. What is here joins it to the simulated network and memory,
//! and checks that memory which a member has lent is used only until it comes back.

use super::{CHANNELS, depth};
use crate::check::access::{Access, User};
use crate::hub::{Event, Hub};
use crate::memory::Mem;
use crate::net::send_packet;
use crate::scenario::WINDOW_MAX;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::Instant;
use unisono_core::reliable::{Config, Side, Stats};
use unisono_core::wire::frame::Header;
use unisono_driver::PacketLink as Port;
use unisono_driver::{Clock, Incoming, Link, LinkCaps, LinkError, Memory, Outgoing};
use unisono_link_packet::{Bytes, Channel, ReliableLink};

/// Packets under way, and bytes of a packet.
const WINDOW: usize = 16;
const MTU: usize = 300;
/// Frames that wait to be sent.
const DEPTH: usize = depth(WINDOW_MAX);

type Channels = Box<[Channel<Mem, WINDOW, MTU, DEPTH>]>;
type Inner = ReliableLink<Wire, LocalClock, SimBytes, Channels, WINDOW, MTU, DEPTH>;

/// Sends into the simulated network; the event loop brings what comes out of it.
#[derive(Debug)]
struct Wire {
    hub: Rc<Hub>,
    me: usize,
    peer: usize,
}

impl Port for Wire {
    fn mtu(&self) -> usize {
        MTU
    }

    fn has_room(&mut self) -> bool {
        true
    }

    fn send(&mut self, datagram: &[u8]) -> Result<(), LinkError> {
        send_packet(&self.hub, self.me, self.peer, datagram);
        Ok(())
    }

    fn receive(&mut self, _: &mut [u8]) -> Result<Option<usize>, LinkError> {
        Ok(None)
    }
}

/// A member's own clock.
#[derive(Debug)]
struct LocalClock {
    hub: Rc<Hub>,
    /// What it is ahead of virtual time.
    ahead: u64,
}

impl Clock for LocalClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.hub.now() + self.ahead)
    }
}

/// The checked memory of the simulation.
#[derive(Debug)]
struct SimBytes {
    hub: Rc<Hub>,
    me: usize,
}

impl Bytes for SimBytes {
    type Mem = Mem;

    unsafe fn read(&mut self, from: Mem, at: usize, into: &mut [u8]) {
        match self.hub.memory.borrow().read(from.offset(at as u64), into.len()) {
            Ok(bytes) => into.copy_from_slice(bytes),
            Err(why) => self.hub.complain(why),
        }
    }

    unsafe fn write(&mut self, to: Mem, at: usize, bytes: &[u8]) {
        let put = self.hub.memory.borrow_mut().put(self.me as u16, to.offset(at as u64), bytes);
        self.hub.check(put);
    }
}

/// One member's end, which the event loop shares.
#[derive(Debug)]
pub struct End {
    hub: Rc<Hub>,
    me: usize,
    peer: usize,
    ahead: u64,
    link: Inner,
    numbers: u64,
    /// What each channel was lent and has not given back: number and place.
    lent: [VecDeque<(u64, Mem)>; CHANNELS],
    timer_at: u64,
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
) -> ([PacketLink; 2], [SharedEnd; 2]) {
    let end = |side: usize| {
        let (me, peer, ahead) = (members[side], members[1 - side], ahead[side]);
        let session = 1 + (members[0] * 256 + members[1]) as u32 * CHANNELS as u32;
        let mut config = Config::new(session, Side::of(me as u16, peer as u16));
        // Numbers of fragments wrap; begin near the end.
        config.first_seq = u32::MAX - 20;
        // At 30 % loss both ways, 30 time-outs in a row happen once in 10^9 times.
        config.tries = 30;
        config.silence = Duration::from_secs(8);
        config.rto_max = Duration::from_millis(400);
        config.keep_alive = Some(Duration::from_secs(1));
        let wire = Wire { hub: hub.clone(), me, peer };
        let clock = LocalClock { hub: hub.clone(), ahead };
        let bytes = SimBytes { hub: hub.clone(), me };
        let channels = (0..CHANNELS).map(|_| Channel::new()).collect();
        let link = ReliableLink::new(wire, clock, bytes, channels, config);
        let end = End {
            hub: hub.clone(),
            me,
            peer,
            ahead,
            link: link.expect("the wire takes packets of this size"),
            numbers: 0,
            lent: Default::default(),
            timer_at: u64::MAX,
        };
        Rc::new(RefCell::new(end))
    };
    let ends = [end(0), end(1)];
    (ends.each_ref().map(|end| PacketLink(end.clone())), ends)
}

impl End {
    /// The counters of the link.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.link.stats()
    }

    /// A packet has come in.
    pub fn handle_packet(&mut self, bytes: &[u8]) {
        self.link.handle_packet(bytes);
        self.handle();
    }

    /// The timer may be due.
    pub fn handle_timer(&mut self) {
        if self.timer_at <= self.hub.now() {
            self.timer_at = u64::MAX;
        }
        self.handle();
    }

    /// The link begins its keep-alive.
    pub fn begin(&mut self) {
        self.handle();
    }

    /// Something has happened to the link: if there is news, its member gets round to it.
    fn handle(&mut self) {
        self.pump();
        if self.link.has_news() {
            self.hub.wake(self.me);
        }
    }

    /// Lets the link do its own work and sets the timer.
    fn pump(&mut self) {
        self.link.poll();
        if let Some(at) = self.link.poll_timeout() {
            let at = at.as_nanos() - self.ahead;
            if at < self.timer_at {
                self.timer_at = at;
                self.hub.at(at, Event::Timer { member: self.me, peer: self.peer });
            }
        }
    }

    const fn user(&self, number: u64) -> User {
        let frame = 1 << 62 | (self.me as u64) << 48 | (self.peer as u64) << 40 | number;
        User::Lent { frame, to: self.peer as u16, entered: false }
    }

    /// The oldest memory that a channel was lent comes back.
    fn give_back(&mut self, channel: usize) -> bool {
        let Some((number, mem)) = self.lent[channel].pop_front() else { return false };
        self.hub.memory.borrow_mut().release(self.user(number), mem);
        true
    }
}

impl PacketLink {
    /// This member is gone.
    pub fn leave(&self) {
        let mut end = self.0.borrow_mut();
        (0..CHANNELS).for_each(|channel| while end.give_back(channel) {});
    }
}

impl Link for PacketLink {
    type Mem = Mem;

    fn caps(&self) -> LinkCaps {
        self.0.borrow().link.caps()
    }

    fn has_room(&mut self, channel: usize) -> bool {
        self.0.borrow_mut().link.has_room(channel)
    }

    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<Mem>,
        token: u32,
    ) -> Result<(), LinkError> {
        let end = &mut *self.0.borrow_mut();
        // SAFETY: the caller's promise.
        unsafe { end.link.send(channel, header, payload, token)? };
        end.hub.note_frame(end.me, end.peer, header);
        if let Outgoing::At { mem, bytes, window } = payload {
            let number = end.numbers;
            end.numbers += 1;
            let user = end.user(number);
            let claim = end.hub.memory.borrow_mut().claim(user, Access::Read, mem, bytes as u64);
            end.hub.check(claim);
            end.lent[channel].push_back((number, mem));
            if window.is_some() {
                end.hub.complain("packets are asked for a window".into());
            }
        }
        end.pump();
        Ok(())
    }

    fn poll_sent(&mut self, channel: usize) -> Option<u32> {
        let end = &mut *self.0.borrow_mut();
        let token = end.link.poll_sent(channel)?;
        if !end.give_back(channel) {
            end.hub.complain("a completion of nothing".into());
        }
        Some(token)
    }

    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<Mem>>, LinkError> {
        let end = &mut *self.0.borrow_mut();
        let frame = end.link.poll_frame(channel);
        if frame.as_ref().is_err_and(|why| *why == LinkError::Garbage) {
            end.hub.complain("a frame that is none".into());
        }
        frame
    }

    fn take(&mut self, channel: usize) {
        let end = &mut *self.0.borrow_mut();
        end.link.take(channel);
        end.pump();
    }

    unsafe fn receive(&mut self, channel: usize, into: Option<Mem>) -> Result<bool, LinkError> {
        let end = &mut *self.0.borrow_mut();
        // SAFETY: the caller's promise.
        let received = unsafe { end.link.receive(channel, into) };
        end.pump();
        received
    }

    fn enter(&mut self, channel: usize, handle: u32) -> bool {
        self.0.borrow().hub.complain("packets have no spans to enter".into());
        self.0.borrow_mut().link.enter(channel, handle)
    }

    fn exit(&mut self, _: usize, _: u32, _: bool) {
        self.0.borrow().hub.complain("packets have no spans to leave".into());
    }

    fn release(&mut self, _: usize, _: u32) {
        self.0.borrow().hub.complain("packets have no spans to give back".into());
    }

    fn withdraw(&mut self, channel: usize) -> bool {
        let end = &mut *self.0.borrow_mut();
        let done = end.link.withdraw(channel);
        while done && end.give_back(channel) {}
        end.pump();
        done
    }
}
