//! A stream of bytes that loses nothing: what a TCP connection is to a member.
//!
//! All channels share one stream, so a frame with payload holds up everything behind it until its
//! receiver has taken the payload. Frames without payload are set aside on their channel, as a real
//! link has to do with what belongs to a call that has not begun.

use super::{CHANNELS, depth};
use crate::check::access::{Access, User};
use crate::hub::{Event, Hub};
use crate::memory::Mem;
use crate::net::Passage;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use unisono_core::wire::frame::{Header, OVERHEAD_MAX};
use unisono_driver::{Arrived, Incoming, Link, LinkCaps, LinkError, Outgoing};

#[derive(Debug)]
struct Frame {
    channel: usize,
    header: Header,
    /// Where the payload is until it has left.
    payload: Option<(Mem, usize)>,
    token: u32,
    /// The payload, once it has left.
    bytes: Vec<u8>,
    begun: bool,
    whole: bool,
}

/// One direction of a stream; its ends and the event loop share it.
#[derive(Debug)]
pub struct Way {
    hub: Rc<Hub>,
    from: usize,
    to: usize,
    depth: usize,
    /// Frames that are under way or wait to be received, the first of them with number `base`.
    pipe: VecDeque<Frame>,
    base: u64,
    left: u64,
    begun: u64,
    whole: u64,
    /// When the last frame will begin to arrive.
    busy_until: u64,
    aside: [VecDeque<Header>; CHANNELS],
    sent: [VecDeque<u32>; CHANNELS],
    closed: bool,
}

/// A direction that several parts hold.
pub type SharedWay = Rc<RefCell<Way>>;

/// One member's end of a stream.
#[derive(Debug)]
pub struct StreamLink {
    out: SharedWay,
    inc: SharedWay,
}

/// Links two members; also returns both directions, the lower member's first.
#[must_use]
pub fn pair(
    hub: &Rc<Hub>,
    members: [usize; 2],
    window: usize,
) -> ([StreamLink; 2], [SharedWay; 2]) {
    let way = |from: usize, to: usize| {
        let way = Way {
            hub: hub.clone(),
            from,
            to,
            depth: depth(window),
            pipe: VecDeque::new(),
            base: 0,
            left: 0,
            begun: 0,
            whole: 0,
            busy_until: 0,
            aside: Default::default(),
            sent: Default::default(),
            closed: false,
        };
        Rc::new(RefCell::new(way))
    };
    let [low, high] = members;
    let (up, down) = (way(low, high), way(high, low));
    let ends = [
        StreamLink { out: up.clone(), inc: down.clone() },
        StreamLink { out: down.clone(), inc: up.clone() },
    ];
    (ends, [up, down])
}

impl Way {
    const fn user(&self, number: u64) -> User {
        let frame = 1 << 63 | (self.from as u64) << 48 | (self.to as u64) << 40 | number;
        User::Lent { frame, to: self.to as u16, entered: false }
    }

    fn get(&mut self, number: u64) -> Option<&mut Frame> {
        let at = number.checked_sub(self.base)?;
        self.pipe.get_mut(at as usize)
    }

    /// The last byte of the next frame has left: its payload is read now.
    pub fn handle_left(&mut self) {
        let number = self.left;
        self.left += 1;
        let user = self.user(number);
        let hub = self.hub.clone();
        let Some(frame) = self.get(number) else { return };
        if let Some((mem, len)) = frame.payload {
            let (channel, token) = (frame.channel, frame.token);
            match hub.memory.borrow().read(mem, len) {
                Ok(bytes) => frame.bytes = bytes.to_vec(),
                Err(why) => hub.complain(why),
            }
            hub.memory.borrow_mut().release(user, mem);
            self.sent[channel].push_back(token);
            hub.wake(self.from);
        }
    }

    /// The first byte of the next frame has come.
    pub fn handle_begin(&mut self, last: u64, len: u64) {
        let (from, to, now) = (self.from, self.to, self.hub.now());
        let (head, tail) = self.hub.net.borrow_mut().take_in(now, to, len, last);
        self.hub.at(head, Event::Head { from, to });
        self.hub.at(tail, Event::Tail { from, to });
    }

    /// The header of the next frame is here.
    pub fn handle_head(&mut self) {
        let number = self.begun;
        self.begun += 1;
        let Some(frame) = self.get(number) else { return };
        frame.begun = true;
        if frame.payload.is_some() {
            self.hub.wake(self.to);
        }
    }

    /// The next frame is all here.
    pub fn handle_tail(&mut self) {
        let number = self.whole;
        self.whole += 1;
        let Some(frame) = self.get(number) else { return };
        frame.whole = true;
        self.set_aside();
        self.hub.wake(self.to);
    }

    /// The receiver learns that nothing more will come.
    pub fn handle_reset(&mut self) {
        self.closed = true;
        self.hub.wake(self.to);
    }

    /// The sender is gone: what has not left will never arrive.
    pub fn cut(&mut self) {
        let left = (self.left - self.base) as usize;
        for (at, frame) in self.pipe.iter().enumerate().skip(left) {
            if let Some((mem, _)) = frame.payload {
                let user = self.user(self.base + at as u64);
                self.hub.memory.borrow_mut().release(user, mem);
            }
        }
        self.pipe.truncate(left);
        let (from, to) = (self.from, self.to);
        let late = self.hub.rng.borrow_mut().within(100_000, 50_000_000);
        self.hub.at(self.hub.now().max(self.busy_until) + late, Event::Reset { from, to });
    }

    /// Frames without payload make room for what is behind them.
    fn set_aside(&mut self) {
        while self.pipe.front().is_some_and(|f| f.whole && f.payload.is_none()) {
            let Some(frame) = self.pipe.pop_front() else { return };
            self.base += 1;
            self.aside[frame.channel].push_back(frame.header);
            if self.aside[frame.channel].len() > self.depth {
                let (from, to, depth) = (self.from, self.to, self.depth);
                self.hub.complain(format!("{to} has more than {depth} frames of {from} set aside"));
            }
        }
    }

    fn push(&mut self, frame: Frame) {
        let number = self.base + self.pipe.len() as u64;
        let len = frame.payload.map_or(0, |(_, len)| len);
        if let Some((mem, len)) = frame.payload {
            let user = self.user(number);
            let claim = self.hub.memory.borrow_mut().claim(user, Access::Read, mem, len as u64);
            self.hub.check(claim);
        }
        let len = (OVERHEAD_MAX + len) as u64;
        let (from, to, now) = (self.from, self.to, self.hub.now());
        let Passage { left, first, last } = self.hub.net.borrow_mut().leave(now, from, to, len);
        let first = first.max(self.busy_until);
        self.busy_until = first;
        self.hub.at(left, Event::Left { from, to });
        self.hub.at(first, Event::Begin { from, to, last, len });
        self.hub.note_frame(from, to, &frame.header);
        self.pipe.push_back(frame);
    }

    /// Is everything of this channel's payloads read?
    fn is_free(&self, channel: usize) -> bool {
        let left = (self.left - self.base.min(self.left)) as usize;
        !self.pipe.iter().skip(left).any(|f| f.channel == channel && f.payload.is_some())
    }
}

impl StreamLink {
    /// This member is gone.
    pub fn leave(&self) {
        self.out.borrow_mut().cut();
    }
}

impl Link for StreamLink {
    type Mem = Mem;

    fn caps(&self) -> LinkCaps {
        LinkCaps { spans: false, puts: false, inline_max: 0, channels: CHANNELS }
    }

    fn has_room(&mut self, channel: usize) -> bool {
        let out = self.out.borrow();
        out.pipe.iter().filter(|f| f.channel == channel).count() < out.depth
            || self.inc.borrow().closed
    }

    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<Mem>,
        token: u32,
    ) -> Result<(), LinkError> {
        if self.inc.borrow().closed {
            return Err(LinkError::Closed);
        }
        let mut out = self.out.borrow_mut();
        let payload = match payload {
            Outgoing::None => None,
            Outgoing::At { mem, bytes, window: None } => Some((mem, bytes)),
            Outgoing::At { .. } | Outgoing::Put => {
                out.hub.complain("a stream is asked for a window".into());
                None
            }
        };
        let header = *header;
        let (bytes, begun, whole) = (Vec::new(), false, false);
        out.push(Frame { channel, header, payload, token, bytes, begun, whole });
        Ok(())
    }

    fn poll_sent(&mut self, channel: usize) -> Option<u32> {
        self.out.borrow_mut().sent[channel].pop_front()
    }

    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<Mem>>, LinkError> {
        let inc = self.inc.borrow();
        if let Some(header) = inc.aside[channel].front() {
            return Ok(Some(Incoming { header: *header, payload: Arrived::None }));
        }
        let head = inc.pipe.front().filter(|f| f.channel == channel && f.begun);
        match head {
            Some(frame) if frame.whole || !inc.closed => {
                Ok(Some(Incoming { header: frame.header, payload: Arrived::Stream }))
                    .map(|head| head.filter(|_| frame.payload.is_some()))
            }
            _ if inc.closed => Err(LinkError::Closed),
            _ => Ok(None),
        }
    }

    fn take(&mut self, channel: usize) {
        let mut inc = self.inc.borrow_mut();
        if inc.aside[channel].pop_front().is_none() {
            inc.hub.complain("takes a frame where there is none".into());
        }
    }

    unsafe fn receive(&mut self, channel: usize, into: Option<Mem>) -> Result<bool, LinkError> {
        let inc = &mut *self.inc.borrow_mut();
        let to = inc.to as u16;
        let Some(frame) = inc.pipe.front().filter(|f| f.channel == channel && f.begun) else {
            inc.hub.complain("receives a payload where there is none".into());
            return Err(LinkError::Garbage);
        };
        if !frame.whole && inc.closed {
            return Err(LinkError::Closed);
        }
        // Half of a payload that is still coming in has been written already.
        let here = if frame.whole { frame.bytes.len() } else { frame.bytes.len() / 2 };
        if let Some(into) = into {
            let put = inc.hub.memory.borrow_mut().put(to, into, &frame.bytes[..here]);
            inc.hub.check(put);
        }
        let whole = frame.whole;
        if whole {
            inc.pipe.pop_front();
            inc.base += 1;
            inc.set_aside();
            // Frames of other channels may have been waiting behind this one.
            inc.hub.wake(inc.to);
        }
        Ok(whole)
    }

    fn enter(&mut self, _: usize, _: u32) -> bool {
        self.inc.borrow().hub.complain("a stream has no spans to enter".into());
        false
    }

    fn exit(&mut self, _: usize, _: u32, _: bool) {
        self.inc.borrow().hub.complain("a stream has no spans to leave".into());
    }

    fn release(&mut self, _: usize, _: u32) {
        self.inc.borrow().hub.complain("a stream has no spans to give back".into());
    }

    fn withdraw(&mut self, channel: usize) -> bool {
        let mut out = self.out.borrow_mut();
        out.sent[channel].clear();
        out.is_free(channel)
    }
}
