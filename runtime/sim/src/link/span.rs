//! A span link in virtual time: payload stays where it is, the peer reads it there.
//!
//! ```text
//! Sent   entered by the receiver                   Busy
//! Busy   left by the receiver                      Sent
//! Sent   taken back by the sender                  Revoked
//! any    given back for good by the receiver       Freed: the sender may see it a little later
//! ```

mod frame;

use super::{CHANNELS, depth};
use crate::check::access::{Access, User};
use crate::hub::Hub;
use crate::memory::Mem;
use frame::{Frame, Ring, Span, State, answer, copy};
use std::cell::RefCell;
use std::rc::Rc;
use unisono_core::wire::frame::Header;
use unisono_driver::{Arrived, Incoming, Link, LinkCaps, LinkError, Outgoing};

/// What both ends share: rings by the end that writes (the lower member's are first) and channel.
#[derive(Debug)]
pub struct Shared {
    hub: Rc<Hub>,
    members: [usize; 2],
    delay_ns: u64,
    puts: bool,
    inline_max: usize,
    depth: usize,
    rings: [[Ring; CHANNELS]; 2],
    /// When the other end sees that this one is gone.
    gone: [Option<u64>; 2],
}

/// One end of a link between two members that share memory.
#[derive(Debug)]
pub struct SpanLink {
    shared: Rc<RefCell<Shared>>,
    /// 0 for the lower member.
    side: usize,
}

/// Links two members, lower one first.
#[must_use]
pub fn pair(
    hub: &Rc<Hub>,
    members: [usize; 2],
    delay_ns: u64,
    puts: bool,
    inline_max: usize,
    window: usize,
) -> [SpanLink; 2] {
    let shared = Shared {
        hub: hub.clone(),
        members,
        delay_ns,
        puts,
        inline_max,
        depth: depth(window),
        rings: Default::default(),
        gone: [None; 2],
    };
    let shared = Rc::new(RefCell::new(shared));
    [0, 1].map(|side| SpanLink { shared: shared.clone(), side })
}

impl Shared {
    /// Names a frame in the whole simulation.
    fn name(&self, side: usize, channel: usize, handle: u32) -> u64 {
        let [low, high] = self.members.map(|m| m as u64);
        low << 56 | high << 48 | (side as u64) << 40 | (channel as u64) << 32 | u64::from(handle)
    }

    fn user(&self, side: usize, channel: usize, handle: u32, entered: bool) -> User {
        let frame = self.name(side, channel, handle);
        User::Lent { frame, to: self.members[1 - side] as u16, entered }
    }

    fn lend(&self, side: usize, channel: usize, handle: u32, span: &Span) {
        let user = self.user(side, channel, handle, false);
        let mut memory = self.hub.memory.borrow_mut();
        let mut result = memory.claim(user, Access::Read, span.mem, span.bytes);
        if let Some(window) = span.window {
            result = result.and(memory.claim(user, Access::Write, window, span.answer));
        }
        drop(memory);
        self.hub.check(result);
    }

    /// The bytes and the window belong to the sender again.
    fn unlend(&self, side: usize, channel: usize, handle: u32, span: &Span) {
        let user = self.user(side, channel, handle, false);
        let mut memory = self.hub.memory.borrow_mut();
        memory.release(user, span.mem);
        if let Some(window) = span.window {
            memory.release(user, window);
        }
        if span.inline {
            let freed = memory.free(span.mem).map(|_| ());
            drop(memory);
            self.hub.check(freed);
        }
    }

    fn set_entered(&self, side: usize, channel: usize, handle: u32, span: &Span, on: bool) {
        let name = self.name(side, channel, handle);
        let mut memory = self.hub.memory.borrow_mut();
        memory.set_entered(name, span.mem, on);
        if let Some(window) = span.window {
            memory.set_entered(name, window, on);
        }
    }

    fn tell(&self, side: usize) -> u64 {
        let now = self.hub.now();
        // The bell rings when the other side can see it.
        self.hub.wake_at(self.members[1 - side], now + self.delay_ns);
        now + self.delay_ns
    }

    fn free(&mut self, side: usize, channel: usize, handle: u32) {
        let Some(frame) = self.rings[side][channel].frames.get(&handle) else {
            self.hub.complain(format!("frame {handle} is given back twice"));
            return;
        };
        let (span, was) = (frame.span, frame.state);
        if matches!(was, State::Freed { .. }) {
            self.hub.complain(format!("frame {handle} is given back twice"));
            return;
        }
        if let (Some(span), State::Sent | State::Busy) = (&span, was) {
            self.unlend(side, channel, handle, span);
        }
        let seen_at = self.tell(1 - side);
        if let Some(frame) = self.rings[side][channel].frames.get_mut(&handle) {
            frame.state = State::Freed { seen_at };
        }
    }

    /// Takes back what one end has sent; false if the peer is at some of it.
    fn revoke(&mut self, side: usize, channel: usize) -> bool {
        let mut all = true;
        let handles: Vec<u32> = self.rings[side][channel].frames.keys().copied().collect();
        for handle in handles {
            let Some(frame) = self.rings[side][channel].frames.get_mut(&handle) else { continue };
            frame.token = frame.token.filter(|_| frame.state == State::Busy);
            // What rides in the frame was complete at once: it stays readable, whatever becomes of
            // the sender. Its window is the sender's memory all the same.
            let Some(span) = frame.span.filter(|s| !s.inline || s.window.is_some()) else {
                continue;
            };
            match frame.state {
                State::Sent => {
                    frame.state = State::Revoked;
                    self.unlend(side, channel, handle, &span);
                }
                State::Busy => all = false,
                State::Revoked | State::Freed { .. } => {}
            }
        }
        self.rings[side][channel].copied.clear();
        all
    }

    fn has_gone(&self, side: usize) -> bool {
        self.gone[side].is_some_and(|at| at <= self.hub.now())
    }

    fn leave(&mut self, side: usize) {
        for channel in 0..CHANNELS {
            self.revoke(side, channel);
            let theirs = &self.rings[1 - side][channel].frames;
            let busy = theirs.iter().filter(|(_, f)| f.state == State::Busy);
            let busy: Vec<u32> = busy.map(|(handle, _)| *handle).collect();
            busy.into_iter().for_each(|handle| self.free(1 - side, channel, handle));
        }
        self.gone[side] = Some(self.tell(side));
    }
}

impl SpanLink {
    /// This member is gone: what it was reading is free, what it had lent can be read no more.
    pub fn leave(&self) {
        self.shared.borrow_mut().leave(self.side);
    }
}

impl Link for SpanLink {
    type Mem = Mem;

    fn caps(&self) -> LinkCaps {
        let Shared { puts, inline_max, .. } = *self.shared.borrow();
        LinkCaps { spans: true, puts, inline_max, channels: CHANNELS }
    }

    fn has_room(&mut self, channel: usize) -> bool {
        let shared = &mut *self.shared.borrow_mut();
        let now = shared.hub.now();
        let ring = &mut shared.rings[self.side][channel];
        let over = |f: &Frame| matches!(f.state, State::Freed { seen_at } if seen_at <= now);
        ring.frames.retain(|_, f| f.token.is_some() || !over(f));
        ring.frames.len() < shared.depth || shared.gone[1 - self.side].is_some_and(|at| at <= now)
    }

    unsafe fn send(
        &mut self,
        channel: usize,
        header: &Header,
        payload: Outgoing<Mem>,
        token: u32,
    ) -> Result<(), LinkError> {
        let shared = &mut *self.shared.borrow_mut();
        if shared.has_gone(1 - self.side) {
            return Err(LinkError::Closed);
        }
        let ring = &mut shared.rings[self.side][channel];
        assert!(ring.frames.len() < shared.depth, "a frame without room for it");
        let handle = ring.next;
        ring.next += 1;
        let mut put = false;
        let mut waits = None;
        let span = match payload {
            Outgoing::None => None,
            Outgoing::Put => {
                put = true;
                None
            }
            Outgoing::At { mem, bytes, window } => {
                let inline = bytes <= shared.inline_max;
                let mem = if inline { copy(&shared.hub, mem, bytes) } else { mem };
                match inline && window.is_none() {
                    true => ring.copied.push_back(token),
                    false => waits = Some(token),
                }
                let answer = answer(header);
                Some(Span { mem, bytes: bytes as u64, window, answer, inline })
            }
        };
        ring.unread.push_back(handle);
        if let Some(span) = &span {
            shared.lend(self.side, channel, handle, span);
        }
        let seen_at = shared.tell(self.side);
        let (header, token, state) = (*header, waits, State::Sent);
        let frame = Frame { header, span, put, token, state, seen_at };
        shared.rings[self.side][channel].frames.insert(handle, frame);
        let (from, to) = (shared.members[self.side], shared.members[1 - self.side]);
        shared.hub.note_frame(from, to, &header);
        Ok(())
    }

    fn poll_sent(&mut self, channel: usize) -> Option<u32> {
        let shared = &mut *self.shared.borrow_mut();
        let now = shared.hub.now();
        if shared.has_gone(1 - self.side) {
            // Nobody reads any more: all memory is free.
            let ring = &shared.rings[self.side][channel];
            let lent = |f: &Frame| f.span.is_some() && f.state == State::Sent;
            let lent = ring.frames.iter().filter(|(_, f)| lent(f)).map(|(handle, _)| *handle);
            for handle in lent.collect::<Vec<_>>() {
                shared.free(self.side, channel, handle);
            }
        }
        let ring = &mut shared.rings[self.side][channel];
        if let Some(token) = ring.copied.pop_front() {
            return Some(token);
        }
        let over = |f: &Frame| matches!(f.state, State::Freed { seen_at } if seen_at <= now);
        ring.frames.values_mut().filter(|f| over(f)).find_map(|f| f.token.take())
    }

    fn poll_frame(&mut self, channel: usize) -> Result<Option<Incoming<Mem>>, LinkError> {
        let shared = self.shared.borrow();
        let ring = &shared.rings[1 - self.side][channel];
        let now = shared.hub.now();
        let head = ring.unread.front().and_then(|handle| Some((*handle, ring.frames.get(handle)?)));
        let Some((handle, frame)) = head.filter(|(_, frame)| frame.seen_at <= now) else {
            let gone = shared.has_gone(1 - self.side);
            return if gone { Err(LinkError::Closed) } else { Ok(None) };
        };
        let payload = match (&frame.span, frame.put) {
            (Some(span), _) => Arrived::Span { mem: span.mem, window: span.window, handle },
            (None, true) => Arrived::Put,
            (None, false) => Arrived::None,
        };
        Ok(Some(Incoming { header: frame.header, payload }))
    }

    fn take(&mut self, channel: usize) {
        let shared = &mut *self.shared.borrow_mut();
        let side = 1 - self.side;
        let Some(handle) = shared.rings[side][channel].unread.pop_front() else {
            return shared.hub.complain("takes a frame where there is none".into());
        };
        let bare =
            shared.rings[side][channel].frames.get(&handle).is_some_and(|f| f.span.is_none());
        if bare {
            shared.free(side, channel, handle);
        }
    }

    unsafe fn receive(&mut self, _: usize, _: Option<Mem>) -> Result<bool, LinkError> {
        Err(LinkError::Garbage)
    }

    fn enter(&mut self, channel: usize, handle: u32) -> bool {
        let shared = &mut *self.shared.borrow_mut();
        let side = 1 - self.side;
        let frame = shared.rings[side][channel].frames.get_mut(&handle);
        match frame.map(|f| (f.state, f.span, &mut f.state)) {
            Some((State::Sent, Some(span), state)) => {
                *state = State::Busy;
                shared.set_entered(side, channel, handle, &span, true);
                true
            }
            Some((State::Revoked, _, _)) => false,
            other => {
                let other = other.map(|(state, ..)| state);
                shared.hub.complain(format!("enters frame {handle}, which is {other:?}"));
                false
            }
        }
    }

    fn exit(&mut self, channel: usize, handle: u32, _: bool) {
        let shared = &mut *self.shared.borrow_mut();
        let side = 1 - self.side;
        let frame = shared.rings[side][channel].frames.get_mut(&handle);
        match frame.map(|f| (f.state, f.span, &mut f.state)) {
            Some((State::Busy, Some(span), state)) => {
                *state = State::Sent;
                shared.set_entered(side, channel, handle, &span, false);
            }
            other => {
                let other = other.map(|(state, ..)| state);
                shared.hub.complain(format!("leaves frame {handle}, which is {other:?}"));
            }
        }
        // A sender that wants its memory back may be waiting for this.
        shared.tell(self.side);
    }

    fn release(&mut self, channel: usize, handle: u32) {
        self.shared.borrow_mut().free(1 - self.side, channel, handle);
    }

    fn withdraw(&mut self, channel: usize) -> bool {
        self.shared.borrow_mut().revoke(self.side, channel)
    }
}
