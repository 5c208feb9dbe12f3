//! Links between members: a bounded queue of frames a direction, and the payloads under way.

use super::memory::{Ref, Value};
use super::{Event, Join, Rank, World};
use std::collections::VecDeque;
use unisono_core::Form;
use unisono_core::machine::Place;
use unisono_core::wire::frame::Header;

/// A payload that a member has sent and that is not completed.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    pub from: Rank,
    pub to: Rank,
    pub op: u64,
    pub token: u32,
    /// `None` if it was put into the receiver's window.
    pub at: Option<Ref>,
    pub elems: u64,
    pub window: Option<Ref>,
    /// Jobs of the receiver that use it.
    pub entered: u32,
    /// The receiver has given it back, or the link has copied it.
    pub over: bool,
}

/// A payload as the link carries it.
#[derive(Clone, Debug)]
pub enum Carried {
    None,
    Put,
    Span(u32),
    /// Not copied yet.
    Copying(u32),
    Bytes(Vec<Value>),
}

#[derive(Clone, Debug)]
pub struct Frame {
    pub header: Header,
    pub carried: Carried,
}

/// One direction of a link.
#[derive(Default)]
pub struct Link {
    pub queue: VecDeque<Frame>,
    /// The head frame has its event.
    pub awake: bool,
    /// The receiver had no place for the head frame.
    pub later: bool,
    pub placing: Option<Place<Ref>>,
    /// Chunks below it may be sent, as far as the sender can know.
    pub known: u64,
}

impl Link {
    pub fn clear(&mut self) {
        self.queue.clear();
        self.awake = false;
        self.later = false;
        self.placing = None;
        self.known = 0;
    }
}

impl World {
    pub fn link(&mut self, from: Rank, to: Rank) -> &mut Link {
        let n = self.members.len();
        &mut self.links[usize::from(from) * n + usize::from(to)]
    }

    /// Makes sure that the head frame of a link is looked at.
    pub fn wake(&mut self, from: Rank, to: Rank) {
        if self.cut.contains(&(from, to)) {
            return;
        }
        let link = self.link(from, to);
        let there = match link.queue.front() {
            None | Some(Frame { carried: Carried::Copying(_), .. }) => false,
            Some(_) => true,
        };
        if there && !link.awake {
            link.awake = true;
            self.push(Event::Deliver(from, to));
        }
    }

    /// Puts a frame on a link.
    pub fn enqueue(&mut self, to: Rank, header: Header, carried: Carried) {
        self.link(header.from, to).queue.push_back(Frame { header, carried });
        self.wake(header.from, to);
    }

    /// Takes the head frame of a link away; its sender may have waited for room.
    pub fn dequeue(&mut self, from: Rank, to: Rank) -> Frame {
        let frame = self.link(from, to).queue.pop_front().expect("a frame at the head");
        self.touch(from);
        self.wake(from, to);
        frame
    }

    /// Sends a payload: it stays locked until its completion.
    pub fn launch(&mut self, header: Header, form: Form, sending: Sending) {
        let (from, to) = (sending.from, sending.to);
        if let Some(at) = sending.at {
            self.member(from).memory.lock_read(at.at, sending.elems, form);
        }
        let id = self.free.pop().unwrap_or(self.sends.len() as u32);
        if id as usize == self.sends.len() {
            self.sends.push(None);
        }
        self.sends[id as usize] = Some(sending);
        let carried = match (sending.at, self.case.join(from, to)) {
            (None, _) => {
                self.puts += 1;
                self.sending(id).over = true;
                self.push(Event::Sent(id));
                Carried::Put
            }
            (Some(_), Join::Bytes) => {
                self.push(Event::Copied(id));
                Carried::Copying(id)
            }
            (Some(_), _) => Carried::Span(id),
        };
        self.enqueue(to, header, carried);
    }

    pub fn sending(&mut self, id: u32) -> &mut Sending {
        self.sends[id as usize].as_mut().expect("a payload under way")
    }

    /// Is the payload still there for its receiver?
    pub fn is_there(&self, id: u32) -> bool {
        self.sends[id as usize].as_ref().is_some_and(|s| !s.over)
    }

    /// A link has copied a payload away.
    pub fn copied(&mut self, id: u32) {
        let Sending { from, to, at, elems, .. } = *self.sending(id);
        let at = at.expect("only payload in memory is copied").at;
        let values = (at..at + elems as u32).map(|i| self.member(from).memory.get(i)).collect();
        let link = self.link(from, to);
        let is_it = |f: &&mut Frame| matches!(f.carried, Carried::Copying(i) if i == id);
        let frame = link.queue.iter_mut().find(is_it).expect("the frame waits for its copy");
        frame.carried = Carried::Bytes(values);
        self.sending(id).over = true;
        self.push(Event::Sent(id));
        self.wake(from, to);
    }

    /// The receiver has given a payload back.
    pub fn release(&mut self, by: Rank, id: u32) {
        if self.lost.contains(&id) {
            return;
        }
        let sending = self.sending(id);
        assert_eq!(sending.to, by, "releases a frame of somebody else");
        assert!(!sending.over, "releases a frame twice");
        assert_eq!(sending.entered, 0, "releases a frame that a job still uses");
        sending.over = true;
        self.push(Event::Sent(id));
    }

    /// A payload's memory may be changed again.
    pub fn sent(&mut self, id: u32) {
        let Some(sending) = self.sends[id as usize].take() else { return };
        self.free.push(id);
        self.unlock(&sending);
        let member = self.member(sending.from);
        member.machine.handle_sent(sending.token);
        self.completion(sending.from);
    }

    fn unlock(&mut self, sending: &Sending) {
        if let Some(at) = sending.at {
            self.member(sending.from).memory.unlock_read(at.at, sending.elems);
        }
    }

    /// Something has been completed: what had to wait for it is tried again.
    pub fn completion(&mut self, rank: Rank) {
        self.note_progress(rank);
        self.touch(rank);
        if !core::mem::take(&mut self.member(rank).later) {
            return;
        }
        for from in 0..self.members.len() as Rank {
            if core::mem::take(&mut self.link(from, rank).later) {
                self.wake(from, rank);
            }
        }
    }

    /// Takes back all payloads that a member has sent in its call; false while a peer uses one.
    pub fn withdraw(&mut self, rank: Rank) -> bool {
        let op = self.member(rank).op;
        let mine = |s: &Sending| s.from == rank && s.op == op;
        if self.sends.iter().flatten().any(|s| mine(s) && s.entered > 0) {
            return false;
        }
        for id in 0..self.sends.len() as u32 {
            let Some(sending) = self.sends[id as usize].filter(mine) else { continue };
            self.unlock(&sending);
            let link = self.link(rank, sending.to);
            link.queue.retain(|f| !matches!(f.carried, Carried::Copying(i) if i == id));
            // A span's number stays taken while a frame may still name it.
            self.sends[id as usize] = None;
            self.lost.push(id);
            self.events.retain(|&e| e != Event::Sent(id) && e != Event::Copied(id));
            self.wake(rank, sending.to);
        }
        true
    }
}
