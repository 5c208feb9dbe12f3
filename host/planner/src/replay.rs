//! How long a call takes: every chunk's routes are played through ports, links and folds.
//!
//! A member sends one message after the other, receives one after the other and folds one after
//! the other; the three go on at the same time, on chunks of a window. A message leaves at the rate
//! of the slowest place on its way, arrives `alpha` later and is taken in when the receiver's port
//! is free. Where it was measured that a member does not send and receive at the same time, or that
//! each message takes some of its time, that is counted. Limits travel as the machine sends them:
//! with data, or by themselves. That is Hockney's model with LogP's ports and overhead; what it
//! adds is what formulas leave out: how long it takes until all are busy, who waits for whom, and
//! what a window costs.
//!
//! Long calls are not played to their end: a schedule repeats itself, so the time of more chunks
//! follows from that of some.

mod event;
mod lane;

use crate::model::{Model, Port};
use event::{At, Event, Message};
use lane::{Lane, Next};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use unisono_core::route::Rank;
use unisono_core::wire::frame::OVERHEAD_MAX;
use unisono_core::{DType, Kind, Layout, Schedule};

/// Fewest chunks that are played before the rest is extrapolated.
const CHUNKS: u64 = 64;

/// A call to be predicted.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// By which schedule.
    pub schedule: &'a Schedule,
    /// How it is cut.
    pub layout: Layout,
    /// Element type.
    pub dtype: DType,
    /// Chunks in flight.
    pub window: u16,
    /// Chunks that may be sent unasked.
    pub eager: u64,
}

/// Nanoseconds from the beginning to the end of a call that all members begin together; `None` if
/// the schedule cannot do it in this group.
#[must_use]
pub fn replay(model: &Model, question: &Question<'_>) -> Option<f64> {
    let Question { schedule, layout, .. } = question;
    let members = usize::from(schedule.members(layout.ranks));
    let rooted = layout.kind.is_rooted() && layout.root >= layout.ranks;
    if members > model.members()
        || layout.ranks != model.ranks
        || layout.chunk == 0
        || rooted
        || !schedule.supports(layout.kind, layout.ranks)
    {
        return None;
    }
    if layout.ranks == 1 || layout.count == 0 {
        return Some(0.0);
    }
    // Whole turns of owners, so that the second half is like any later one.
    let turn = match schedule {
        Schedule::Direct(owners) => owners.table().len() as u64,
        _ => u64::from(layout.ranks),
    };
    let blocks = layout.chunks() / layout.pieces().max(1);
    let some = CHUNKS.max(2 * u64::from(question.window)).next_multiple_of(turn).div_ceil(blocks);
    let pieces = layout.pieces();
    let cut = |pieces: u64| {
        let count = layout.count.min(pieces * layout.chunk);
        Play::new(model, &Question { layout: Layout { count, ..*layout }, ..*question }).run()
    };
    if pieces <= 2 * some {
        return Some(cut(pieces));
    }
    let (half, whole) = (cut(some), cut(2 * some));
    Some(whole + (whole - half) / some as f64 * (pieces - 2 * some) as f64)
}

struct Node {
    port: Port,
    sends_until: f64,
    receives_until: f64,
    /// When it has time for another message.
    hands_until: f64,
    folds_until: f64,
    base: u64,
    lanes: VecDeque<Lane>,
    /// Of each peer: chunks below this may be sent to it, it has been told this, it needs this.
    may_send: Vec<u64>,
    told: Vec<u64>,
    needed: Vec<u64>,
}

impl Node {
    /// It is told of a message that takes so much of its time.
    fn takes(&mut self, now: f64, time: f64) {
        self.hands_until = self.hands_until.max(now) + time;
    }
}

struct Play<'a> {
    model: &'a Model,
    question: Question<'a>,
    chunks: u64,
    nodes: Vec<Node>,
    /// When the ports of each host are free again, out and in.
    hosts: Vec<[f64; 2]>,
    events: BinaryHeap<Reverse<At>>,
    made: u64,
    now: f64,
}

impl<'a> Play<'a> {
    fn new(model: &'a Model, question: &Question<'a>) -> Self {
        let count = usize::from(question.schedule.members(question.layout.ranks));
        let chunks = question.layout.chunks();
        let eager = question.eager.min(chunks);
        let node = |at: usize| Node {
            port: model.ports[at],
            sends_until: 0.0,
            receives_until: 0.0,
            hands_until: 0.0,
            folds_until: 0.0,
            base: 0,
            lanes: VecDeque::new(),
            may_send: vec![eager; count],
            told: vec![eager; count],
            needed: vec![0; count],
        };
        Self {
            model,
            question: *question,
            chunks,
            nodes: (0..count).map(node).collect(),
            hosts: vec![[0.0; 2]; model.hosts.len()],
            events: BinaryHeap::new(),
            made: 0,
            now: 0.0,
        }
    }

    fn run(mut self) -> f64 {
        for member in 0..self.nodes.len() {
            self.open(member);
            // Where memory is lent, nobody asks.
            for peer in 0..self.nodes.len() {
                if peer != member && self.model.wire(peer, member).lends {
                    let window = self.window();
                    self.nodes[peer].may_send[member] = window;
                    self.nodes[member].told[peer] = window;
                }
            }
        }
        for member in 0..self.nodes.len() {
            self.tell(member);
            self.step_all(member);
        }
        while let Some(Reverse(At(time, _, event))) = self.events.pop() {
            self.now = f64::from_bits(time);
            match event {
                Event::Head { message, last } => self.take_in(message, last),
                Event::Here(message) => self.here(&message),
                Event::Left { from, chunk } => {
                    if let Some(lane) = self.lane(from, chunk) {
                        lane.unsent -= 1;
                    }
                    self.step(from, chunk);
                }
                Event::Done { member, chunk } => {
                    if let Some(lane) = self.lane(member, chunk) {
                        lane.finish();
                    }
                    self.step(member, chunk);
                }
            }
        }
        self.now.max(self.agreement())
    }

    /// Members that data does not connect agree by dissemination, as the machine has it.
    fn agreement(&self) -> f64 {
        let Question { schedule, layout, .. } = &self.question;
        let connected = match schedule {
            Schedule::Star(aggregators) => aggregators.count() == 1,
            Schedule::Direct(owners) if owners.aggregators() > 0 => {
                let mut used =
                    (0..self.chunks.min(owners.table().len() as u64)).map(|c| owners.owner(c));
                owners.aggregators() == 1 && used.any(|owner| owner == owners.ranks())
            }
            _ => true,
        };
        if connected && !matches!(layout.kind, Kind::Broadcast | Kind::Reduce) {
            return 0.0;
        }
        let count = self.nodes.len();
        let rounds = count.next_power_of_two().trailing_zeros();
        let time = |round: u32| {
            let one = |from: usize| {
                let wire = self.model.wire(from, (from + (1 << round)) % count);
                let bytes = if wire.lends { 0.0 } else { OVERHEAD_MAX as f64 };
                wire.alpha + bytes * wire.byte
            };
            (0..count).map(one).fold(0.0, f64::max)
        };
        (0..rounds).map(time).sum()
    }

    fn window(&self) -> u64 {
        self.chunks.min(self.question.window.into())
    }

    fn at(&mut self, time: f64, event: Event) {
        self.made += 1;
        self.events.push(Reverse(At(time.to_bits(), self.made, event)));
    }

    fn lane(&mut self, member: usize, chunk: u64) -> Option<&mut Lane> {
        let node = &mut self.nodes[member];
        node.lanes.get_mut(chunk.checked_sub(node.base)? as usize)
    }

    /// Opens lanes as far as the window reaches.
    fn open(&mut self, member: usize) {
        let Question { schedule, layout, window, .. } = self.question;
        let node = &mut self.nodes[member];
        let until = self.chunks.min(node.base + u64::from(window));
        for chunk in node.base + node.lanes.len() as u64..until {
            let lane = Lane::new(schedule, &layout, chunk, member as Rank);
            for from in lane.sources() {
                node.needed[usize::from(from)] = chunk + 1;
            }
            node.lanes.push_back(lane);
        }
    }

    /// Tells peers their new limits, if the news is worth a message.
    fn tell(&mut self, member: usize) {
        let window = u64::from(self.question.window);
        let step = (window / 2).max(1);
        for peer in 0..self.nodes.len() {
            let node = &self.nodes[member];
            let limit = self.chunks.min(node.base + window);
            let (told, needed) = (node.told[peer], node.needed[peer]);
            let news = limit - told;
            if needed > told && (news >= step || (told <= node.base && news > 0)) {
                self.send(Message { from: member, to: peer, bytes: 0.0, limit, value: None });
            }
        }
    }

    /// Puts a message on its way.
    fn send(&mut self, message: Message) {
        let Message { from, to, bytes, .. } = message;
        self.nodes[from].told[to] = message.limit;
        let wire = self.model.wire(from, to);
        let node = &mut self.nodes[from];
        let mut start = node.hands_until.max(self.now);
        if wire.lends {
            // A line of memory says where the value is.
            node.takes(self.now, wire.message);
            self.at(start + wire.alpha, Event::Here(message));
            self.left(from, &message, start);
            return;
        }
        let bytes = bytes + OVERHEAD_MAX as f64;
        let port = node.port;
        start = start.max(node.sends_until);
        let (home, there) = (usize::from(port.host), usize::from(self.nodes[to].port.host));
        if home != there {
            start = start.max(self.hosts[home][0]);
            self.hosts[home][0] = start + bytes * self.model.hosts[home][0];
        }
        let left = start + bytes * port.out;
        self.nodes[from].sends_until = left;
        self.nodes[from].takes(self.now, wire.message + bytes * port.serial);
        self.left(from, &message, left);
        // On a slow way it arrives later than it leaves.
        let last = (start + bytes * wire.byte).max(left) + wire.alpha;
        self.at(start + wire.alpha, Event::Head { message, last });
    }

    fn left(&mut self, from: usize, message: &Message, time: f64) {
        if let Some((chunk, _)) = message.value {
            self.at(time, Event::Left { from, chunk });
        }
    }

    /// The receiver's port takes a message in.
    fn take_in(&mut self, message: Message, last: f64) {
        let Message { from, to, .. } = message;
        let bytes = message.bytes + OVERHEAD_MAX as f64;
        let (home, there) = (usize::from(self.nodes[from].port.host), self.nodes[to].port.host);
        let node = &mut self.nodes[to];
        let mut head = node.receives_until.max(node.hands_until).max(self.now);
        let mut tail = last;
        if home != usize::from(there) {
            let until = &mut self.hosts[usize::from(there)][1];
            head = head.max(*until);
            *until = head + bytes * self.model.hosts[usize::from(there)][1];
            tail = tail.max(*until);
        }
        node.receives_until = head + bytes * node.port.into;
        let own = self.model.wire(from, to).message + bytes * node.port.serial;
        node.takes(self.now, own);
        let tail = tail.max(node.receives_until);
        self.at(tail, Event::Here(message));
    }

    fn here(&mut self, message: &Message) {
        let Message { from, to, limit, value, .. } = *message;
        let news = limit > self.nodes[to].may_send[from];
        self.nodes[to].may_send[from] = limit.max(self.nodes[to].may_send[from]);
        if let Some((chunk, result)) = value {
            if let Some(lane) = self.lane(to, chunk) {
                lane.arrived(from as Rank, result);
            }
            self.step(to, chunk);
        }
        if news {
            self.step_all(to);
        }
    }

    fn step_all(&mut self, member: usize) {
        let base = self.nodes[member].base;
        for chunk in base..base + self.nodes[member].lanes.len() as u64 {
            self.step(member, chunk);
        }
    }

    /// Does for one chunk what can be done now, and moves the window on.
    fn step(&mut self, member: usize, chunk: u64) {
        while self.advance(member, chunk) {}
        let before = self.nodes[member].base;
        while self.nodes[member].lanes.front().is_some_and(Lane::is_done) {
            self.nodes[member].lanes.pop_front();
            self.nodes[member].base += 1;
            self.open(member);
            // An empty route is over at once; others begin here.
            if let Some(last) = self.nodes[member].lanes.len().checked_sub(1) {
                let newest = self.nodes[member].base + last as u64;
                while self.advance(member, newest) {}
            }
        }
        if self.nodes[member].base > before {
            self.tell(member);
        }
    }

    /// One move of a lane; false if it has to wait.
    fn advance(&mut self, member: usize, chunk: u64) -> bool {
        let node = &mut self.nodes[member];
        let Some(at) = chunk.checked_sub(node.base) else { return false };
        let may_send = &node.may_send;
        let Some(lane) = node.lanes.get_mut(at as usize) else { return false };
        let Question { layout, dtype, window, .. } = self.question;
        let elements = layout.len(chunk) as f64;
        match lane.next(|to| chunk < may_send[usize::from(to)]) {
            Next::Wait => return false,
            Next::Step => {}
            Next::Send(to) => {
                let (result, bytes) = (lane.is_result(), elements * lane.bytes(dtype));
                let limit = self.chunks.min(node.base + u64::from(window));
                let (to, value) = (usize::from(to), Some((chunk, result)));
                self.send(Message { from: member, to, bytes, limit, value });
            }
            Next::Fold(leaves, partials) => {
                let bytes = f64::from(leaves) * dtype.size() as f64
                    + f64::from(partials) * dtype.acc().size() as f64;
                let time = elements * bytes * node.port.fold;
                self.work(member, chunk, time);
            }
            Next::Store { from, answered } => {
                let wire = self.model.wire(usize::from(from), member);
                // An owner's fold writes its result where it is wanted.
                let copies = wire.lends && !answered;
                let bytes = elements * dtype.size() as f64;
                self.work(member, chunk, if copies { bytes * wire.byte } else { 0.0 });
            }
        }
        true
    }

    /// Occupies the member's device.
    fn work(&mut self, member: usize, chunk: u64, time: f64) {
        let node = &mut self.nodes[member];
        let until = node.folds_until.max(self.now) + time;
        if time > 0.0 {
            node.folds_until = until;
        }
        self.at(if time > 0.0 { until } else { self.now }, Event::Done { member, chunk });
    }
}
