//! What a member does: begin its call, ask its machine, take what arrives.

use super::links::{Carried, Frame, Link, Sending};
use super::memory::{POISON, Ref, Value};
use super::shapes::Rng;
use super::{Event, Join, Rank, World};
use std::cell::Cell;
use unisono_core::Form;
use unisono_core::machine::{Action, Config, Payload, Place, Refused, Room, Status};
use unisono_core::wire::frame::{Body, Data, Header};

/// What a member can take now; says no at random, as a caller may.
struct Now<'a> {
    /// The channels to the peers, and how many frames they hold.
    links: &'a [Link],
    depth: usize,
    device: bool,
    rng: Option<&'a mut Rng>,
    refused: &'a Cell<bool>,
}

impl Now<'_> {
    fn whim(&mut self) -> bool {
        let whim = self.rng.as_mut().is_some_and(|rng| rng.one_in(8));
        if whim {
            self.refused.set(true);
        }
        whim
    }
}

impl Room for Now<'_> {
    fn send(&mut self, to: Rank) -> bool {
        self.links[usize::from(to)].queue.len() < self.depth && !self.whim()
    }

    fn device(&mut self) -> bool {
        self.device && !self.whim()
    }
}

impl World {
    /// Fills a member's memory for a call; until then nothing is readable.
    pub fn prepare(&mut self, rank: Rank, config: Config) {
        let (layout, in_place) = (config.layout, config.in_place);
        let slots = u32::from(config.slots) * u32::from(config.window);
        let grows = self.case.grows;
        let length = layout.input_len(rank);
        let start = if grows { self.rng.below(length + 1) } else { length };
        let member = self.member(rank);
        member.memory.lay_out(&layout, rank, in_place, slots);
        member.config = Some(config);
        member.ready = 0;
        member.progress = 0;
        self.fill(rank, start);
    }

    /// The input is there up to `upto` elements.
    fn fill(&mut self, rank: Rank, upto: u64) {
        let kind = self.member(rank).config.as_ref().expect("a call").layout.kind;
        let form = if kind.reduces() { Form::Leaf } else { Form::Final };
        let member = self.member(rank);
        for elem in member.ready..upto {
            let at = member.memory.input + elem as u32;
            let cell = member.memory.cells[at as usize];
            assert_eq!(cell.value, POISON, "the input is written before it is there");
            assert_eq!((cell.readers, cell.writers), (0, 0), "the input is in use already");
            let (shape, elem) = (u32::from(rank), elem as u32);
            member.memory.set(at, Value { shape, elem, depth: 0, form: Some(form) });
        }
        member.ready = member.ready.max(upto);
    }

    pub fn grow(&mut self, rank: Rank) {
        let member = self.member(rank);
        let length = member.config.as_ref().expect("a call").layout.input_len(rank);
        let left = length - member.ready;
        let upto = length - self.rng.below(left + 1).min(left.saturating_sub(1));
        self.fill(rank, upto);
        // All there is: said in the one or in the other way.
        let word = if upto == length && self.rng.one_in(2) { u64::MAX } else { upto };
        self.member(rank).machine.source_ready(word);
        self.touch(rank);
        if upto < length && !self.dry {
            self.push(Event::Grow(rank));
        }
    }

    pub fn start(&mut self, rank: Rank) {
        let member = self.member(rank);
        let config = member.config.clone().expect("a call");
        let length = config.layout.input_len(rank);
        let all = member.ready == length;
        let ready = if all { u64::MAX } else { member.ready };
        let (op, eager) = (config.op_id, config.eager);
        member.machine.start(&config, ready).expect("a configuration that runs");
        member.op = op;
        member.dirty = false;
        if !all && !self.dry {
            self.push(Event::Grow(rank));
        }
        self.touch(rank);
        for peer in 0..self.members.len() as Rank {
            self.link(peer, rank).later = false;
            self.link(rank, peer).known = eager;
            self.wake(peer, rank);
        }
        self.note_progress(rank);
    }

    pub fn header(&self, rank: Rank, body: Body) -> Header {
        let member = &self.members[usize::from(rank)];
        let epoch = member.config.as_ref().expect("a call").epoch;
        Header { epoch, op: member.op, from: rank, print: member.machine.fingerprint(), body }
    }

    pub fn poll(&mut self, rank: Rank) {
        let n = self.members.len();
        let depth = self.case.depth;
        let row = usize::from(rank) * n;
        let refused = Cell::new(false);
        let random = self.case.turns == super::Turns::Random;
        let jobs = self.case.jobs;
        let member = &mut self.members[usize::from(rank)];
        let mut now = Now {
            links: &self.links[row..row + n],
            depth,
            device: member.busy < jobs,
            rng: random.then_some(&mut self.rng),
            refused: &refused,
        };
        member.dirty = false;
        let action = member.machine.poll_action(&mut now);
        if action.is_some() || refused.get() {
            self.touch(rank);
        }
        match action {
            None => self.note_progress(rank),
            Some(Action::Control { to, body }) => {
                let header = self.header(rank, body);
                self.enqueue(to, header, Carried::None);
            }
            Some(Action::Send { to, data, payload, window, token }) => {
                self.send(rank, to, data, payload, window, token);
            }
            Some(Action::Fold { lane }) => self.begin_fold(rank, lane),
            Some(Action::Copy { lane, from, to, bytes }) => {
                self.begin_copy(rank, lane, from, to, bytes);
            }
        }
    }

    fn send(
        &mut self,
        rank: Rank,
        to: Rank,
        data: Data,
        payload: Option<Place<Ref>>,
        window: Option<Place<Ref>>,
        token: u32,
    ) {
        let known = self.link(rank, to).known;
        assert!(data.chunk < known, "chunk {} sent, the limit is {known}", data.chunk);
        assert!(window.is_none() || self.case.join(rank, to) == Join::Put, "a useless window");
        let elems = self.elems(rank, data.chunk);
        let config = self.member(rank).config.as_ref().expect("a call");
        assert_eq!(u64::from(data.bytes), config.bytes(elems, data.form));
        for place in payload.iter().chain(&window) {
            self.assert_shared(rank, *place);
        }
        let at = payload.map(|place| self.at(rank, place));
        if let (Some(at), Form::Leaf) = (at, data.form) {
            let value = self.members[usize::from(at.rank)].memory.get(at.at);
            assert_eq!(data.weight, super::Case::weight(value.shape as u16), "a wrong weight");
        }
        let window = window.map(|place| self.at(rank, place));
        let member = self.member(rank);
        if let Some(window) = window {
            member.windows.insert((to, data.chunk), window);
        }
        member.sent += u128::from(data.bytes);
        member.frames += 1;
        let header = self.header(rank, Body::Data(data));
        let op = header.op;
        let sending =
            Sending { from: rank, to, op, token, at, elems, window, entered: 0, over: false };
        self.launch(header, data.form, sending);
    }

    pub fn elems(&self, rank: Rank, chunk: u64) -> u64 {
        self.members[usize::from(rank)].config.as_ref().expect("a call").layout.len(chunk)
    }

    /// Where a place is.
    pub fn at(&self, rank: Rank, place: Place<Ref>) -> Ref {
        let member = &self.members[usize::from(rank)];
        let config = member.config.as_ref().expect("a call");
        let size = config.dtype.size() as u64;
        let memory = &member.memory;
        let at = match place {
            Place::Peer(at) => return at,
            Place::Input(at) => memory.input + (at / size) as u32,
            Place::Output(at) => memory.output + (at / size) as u32,
            Place::Slot(slot) => {
                let most = u32::from(config.slots) * u32::from(config.window);
                assert!(slot < most, "slot {slot} of {most}");
                memory.slots + slot * memory.slot
            }
        };
        Ref { rank, at }
    }

    /// Links and peers reach only memory that is not private.
    fn assert_shared(&self, rank: Rank, place: Place<Ref>) {
        let config = self.members[usize::from(rank)].config.as_ref().expect("a call");
        let private = match place {
            Place::Input(_) => config.input_private,
            Place::Output(_) => config.output_private,
            Place::Slot(_) | Place::Peer(_) => false,
        };
        assert!(!private, "a link touches private memory of {rank}: {place:?}");
    }

    pub fn deliver(&mut self, from: Rank, to: Rank) {
        let op = self.member(to).op;
        let link = self.link(from, to);
        link.awake = false;
        let Some(frame) = link.queue.front() else { return };
        if frame.header.op > op {
            // The member has not come that far: the frame stays in the link.
            return;
        }
        let header = frame.header;
        if matches!(frame.carried, Carried::Bytes(_)) {
            return match self.member(to).machine.placement(&header) {
                Ok(place) => self.receive(&header, to, place),
                Err(Refused::Later) => {
                    self.link(from, to).later = true;
                    self.member(to).later = true;
                }
                Err(Refused::Discard) => {
                    self.dequeue(from, to);
                    self.touch(to);
                }
            };
        }
        let frame = self.dequeue(from, to);
        let payload = match frame.carried {
            Carried::None | Carried::Copying(_) | Carried::Bytes(_) => None,
            Carried::Put => Some(Payload::Put),
            Carried::Span(id) if self.lost.contains(&id) => None,
            Carried::Span(id) => {
                let sending = self.sending(id);
                let (mem, window) = (sending.at.expect("a span"), sending.window);
                Some(Payload::At { mem, window, handle: id })
            }
        };
        if let (Carried::Span(_), None) = (&frame.carried, &payload) {
            // Taken back before it was looked at: there is no frame any more.
            return;
        }
        self.hand_over(to, &frame, payload, None);
    }

    /// Starts to receive the bytes of a head frame.
    fn receive(&mut self, header: &Header, to: Rank, place: Place<Ref>) {
        let Body::Data(data) = header.body else { unreachable!("only data has bytes") };
        let elems = self.elems(to, data.chunk);
        self.assert_shared(to, place);
        let at = self.at(to, place);
        self.member(to).memory.lock_write(at.at, elems, 0);
        let link = self.link(header.from, to);
        link.placing = Some(place);
        link.awake = true;
        self.push(Event::Placed(header.from, to));
    }

    pub fn placed(&mut self, from: Rank, to: Rank) {
        let link = self.link(from, to);
        link.awake = false;
        let place = link.placing.take().expect("a place");
        let frame = self.dequeue(from, to);
        let Carried::Bytes(values) = &frame.carried else { unreachable!("bytes were placed") };
        let at = self.at(to, place).at;
        let memory = &mut self.member(to).memory;
        memory.unlock_write(at, values.len() as u64);
        let mut deepest = 0;
        for (i, value) in (at..).zip(values) {
            deepest = deepest.max(value.depth + 1);
            memory.set(i, Value { depth: value.depth + 1, ..*value });
        }
        self.deepest = self.deepest.max(deepest);
        self.hand_over(to, &frame, Some(Payload::Placed), Some(place));
    }

    /// Gives a frame to the machine.
    fn hand_over(
        &mut self,
        to: Rank,
        frame: &Frame,
        payload: Option<Payload<Ref>>,
        place: Option<Place<Ref>>,
    ) {
        let header = frame.header;
        let ours = self.header(to, header.body);
        let current = (ours.epoch, ours.op) == (header.epoch, header.op);
        if current && self.status(to) == Status::Running {
            self.note_frame(to, &header, payload.is_some_and(|p| matches!(p, Payload::Put)));
        }
        let keeps = self.member(to).machine.handle_frame(&header, payload, place);
        if let Carried::Span(id) = frame.carried
            && !keeps
        {
            self.release(to, id);
        }
        self.note_progress(to);
        self.touch(to);
    }

    /// Keeps account of a frame that arrives.
    fn note_frame(&mut self, to: Rank, header: &Header, put: bool) {
        let limit = match header.body {
            Body::Credit { limit } => limit,
            Body::Data(data) => data.limit,
            Body::Agree { .. } | Body::Abort(_) => 0,
        };
        let link = self.link(to, header.from);
        link.known = link.known.max(limit);
        let Body::Data(data) = header.body else { return };
        self.member(to).received += u128::from(data.bytes);
        if put {
            let layout = self.member(to).config.as_ref().expect("a call").layout;
            let member = self.member(to);
            let key = (header.from, data.chunk);
            let window = member.windows.remove(&key).expect("a window was offered");
            let memory = &mut member.memory;
            let mut deepest = 0;
            for i in 0..layout.len(data.chunk) as u32 {
                let at = window.at + i;
                let value = memory.get(at);
                deepest = value.depth + 1;
                memory.set(at, Value { depth: deepest, ..value });
            }
            self.deepest = self.deepest.max(deepest);
        }
    }
}
