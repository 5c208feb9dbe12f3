//! What all parts of one simulated group share: virtual time, events, memory, the network.

use crate::memory::MemoryMap;
use crate::net::Net;
use crate::rng::Rng;
use crate::trace::Trace;
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};
use unisono_core::wire::frame::Header;

/// Something that happens at an instant of virtual time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A member gets round to looking after its engine.
    Poll {
        /// The member.
        member: usize,
    },
    /// A device has finished a job.
    Job {
        /// The member whose device it is.
        member: usize,
        /// The job's number on that device.
        serial: u32,
    },
    /// The first byte of a packet comes to its receiver, who may have others to take in first.
    Reach {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
        /// When the last byte comes.
        last: u64,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// The same for a frame of a stream.
    Begin {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
        /// When the last byte comes.
        last: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// A packet has arrived.
    Packet {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
        /// Its bytes, perhaps damaged.
        bytes: Vec<u8>,
    },
    /// A packet end's timer may be due.
    Timer {
        /// The end's member,
        member: usize,
        /// and the other one.
        peer: usize,
    },
    /// The last byte of a stream's frame has left its sender.
    Left {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
    },
    /// The header of a stream's frame has arrived.
    Head {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
    },
    /// All of a stream's frame has arrived.
    Tail {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
    },
    /// A stream's receiver learns that its sender is gone.
    Reset {
        /// The one that is gone.
        from: usize,
        /// The one that learns it.
        to: usize,
    },
    /// The scenario does something.
    Act {
        /// Which of its acts.
        act: usize,
    },
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    at: u64,
    order: u64,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives its greatest first; equal times keep the order of scheduling.
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// How long a member takes to notice something, in nanoseconds: between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Think {
    /// At least.
    pub least: u64,
    /// At most.
    pub most: u64,
}

/// What the parts of a simulated group share.
#[derive(Debug)]
pub struct Hub {
    now: Cell<u64>,
    order: Cell<u64>,
    queue: RefCell<BinaryHeap<Entry>>,
    /// When each member is going to be polled.
    polls: RefCell<Vec<BTreeSet<u64>>>,
    thinks: Vec<Think>,
    /// Chance during the run.
    pub rng: RefCell<Rng>,
    /// Every byte of every member.
    pub memory: RefCell<MemoryMap>,
    /// The network between them.
    pub net: RefCell<Net>,
    /// What has happened.
    pub trace: RefCell<Trace>,
    /// Rules that were broken.
    pub complaints: RefCell<Vec<String>>,
    /// Frames that were sent.
    pub frames: Cell<u64>,
    /// Devices that have failed: member and the token of the job.
    pub device_failures: RefCell<Vec<(usize, u32)>>,
}

/// More complaints than these say nothing new.
const COMPLAINTS_MAX: usize = 20;

impl Hub {
    /// A hub for as many members as there are `thinks`.
    #[must_use]
    pub fn new(rng: Rng, net: Net, thinks: Vec<Think>, readable: bool) -> Self {
        Self {
            now: Cell::new(0),
            order: Cell::new(0),
            queue: RefCell::default(),
            polls: RefCell::new(vec![BTreeSet::new(); thinks.len()]),
            thinks,
            rng: RefCell::new(rng),
            memory: RefCell::default(),
            net: RefCell::new(net),
            trace: RefCell::new(Trace::new(readable)),
            complaints: RefCell::default(),
            frames: Cell::new(0),
            device_failures: RefCell::default(),
        }
    }

    /// Virtual nanoseconds since the start.
    pub const fn now(&self) -> u64 {
        self.now.get()
    }

    /// Lets an event happen at an instant (now, if it is in the past).
    pub fn at(&self, at: u64, event: Event) {
        let order = self.order.get();
        self.order.set(order + 1);
        let at = at.max(self.now());
        self.queue.borrow_mut().push(Entry { at, order, event });
    }

    /// Something has happened to a member: it gets round to it after a while.
    pub fn wake(&self, member: usize) {
        let Think { least, most } = self.thinks[member];
        let at = self.now() + self.rng.borrow_mut().within(least, most);
        let sooner = self.polls.borrow()[member].first().is_some_and(|&planned| planned <= at);
        if !sooner {
            self.wake_at(member, at);
        }
    }

    /// A member is to be polled at this instant, because there is something to see from then on.
    pub fn wake_at(&self, member: usize, at: u64) {
        let at = at.max(self.now());
        if self.polls.borrow_mut()[member].insert(at) {
            self.at(at, Event::Poll { member });
        }
    }

    /// Moves on to the next event.
    pub fn next(&self) -> Option<Event> {
        let Entry { at, event, .. } = self.queue.borrow_mut().pop()?;
        assert!(at >= self.now(), "time does not run backwards");
        self.now.set(at);
        if let Event::Poll { member } = event {
            self.polls.borrow_mut()[member].remove(&at);
        }
        Some(event)
    }

    /// A rule was broken.
    pub fn complain(&self, what: String) {
        let now = self.now();
        self.trace.borrow_mut().note(now, &[0xbad], || format!("BROKEN: {what}"));
        let mut complaints = self.complaints.borrow_mut();
        if complaints.len() < COMPLAINTS_MAX {
            complaints.push(format!("at {:.3} us: {what}", now as f64 / 1e3));
        }
    }

    /// Complains if something went wrong.
    pub fn check(&self, result: Result<(), String>) {
        if let Err(what) = result {
            self.complain(what);
        }
    }

    /// A frame has been given to a link.
    pub fn note_frame(&self, from: usize, to: usize, header: &Header) {
        self.frames.set(self.frames.get() + 1);
        self.note(&[6, from as u64, to as u64, header.op], || {
            format!("{from} -> {to}, call {}: {:?}", header.op, header.body)
        });
    }

    /// Notes something in the trace.
    pub fn note(&self, words: &[u64], text: impl FnOnce() -> String) {
        self.trace.borrow_mut().note(self.now(), words, text);
    }
}
