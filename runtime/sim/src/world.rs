//! The event loop: a whole group in one thread.

use crate::check::agreement::{self, Cause};
use crate::check::bits::{self, Expected};
use crate::check::liveness::{self, EVENTS_MAX, ROUNDS_MAX, TIME_MAX_NS};
use crate::device::SimDevice;
use crate::hub::{Event, Hub};
use crate::link::packet::{self, SharedEnd};
use crate::link::stream::{self, SharedWay};
use crate::link::{CHANNELS, LinkKind, SimLink, span};
use crate::member::{Member, PATIENCE, SimEngine};
use crate::net::{Net, handle_reach};
use crate::report::Report;
use crate::scenario::{CallPlan, Fault, Scenario, WINDOW_MAX};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::Kind;

/// Something that the scenario does at an instant.
#[derive(Clone, Copy, Debug)]
enum Act {
    Ready { member: usize, call: usize, upto: u64 },
    Cancel { member: usize, call: usize },
    Kill { member: usize },
}

/// A group that runs.
pub struct World {
    hub: Rc<Hub>,
    plans: Vec<Rc<CallPlan>>,
    faults: Vec<Fault>,
    members: Vec<Member>,
    ends: BTreeMap<(usize, usize), SharedEnd>,
    ways: BTreeMap<(usize, usize), SharedWay>,
    acts: Vec<Act>,
    causes: Vec<Vec<Cause>>,
    expected: Vec<Expected>,
    seen_failures: usize,
}

impl World {
    /// The group of a scenario, at time zero.
    #[must_use]
    pub fn new(scenario: Scenario, readable: bool) -> Self {
        let Scenario { members, links, weather, partitions, heals_at, calls, faults, .. } =
            scenario;
        let nics = members.iter().map(|m| m.nic).collect();
        let net = Net::new(nics, weather, partitions, heals_at);
        let thinks = members.iter().map(|m| m.think).collect();
        let hub = Rc::new(Hub::new(scenario.rng, net, thinks, readable));
        let mut ends = BTreeMap::new();
        let mut ways = BTreeMap::new();
        let mut table: Vec<Vec<Option<SimLink>>> =
            members.iter().map(|_| members.iter().map(|_| None).collect()).collect();
        for low in 0..members.len() {
            for high in low + 1..members.len() {
                let pair = [low, high];
                let linked: [SimLink; 2] = match links[low][high] {
                    LinkKind::Packet => {
                        let ahead = pair.map(|m| members[m].ahead);
                        let (linked, both) = packet::pair(&hub, pair, ahead);
                        let [a, b] = both;
                        ends.insert((low, high), a);
                        ends.insert((high, low), b);
                        linked.map(SimLink::Packet)
                    }
                    LinkKind::Stream => {
                        let (linked, [up, down]) = stream::pair(&hub, pair, WINDOW_MAX);
                        ways.insert((low, high), up);
                        ways.insert((high, low), down);
                        linked.map(SimLink::Stream)
                    }
                    LinkKind::Span { delay_ns, puts, inline_max } => {
                        span::pair(&hub, pair, delay_ns, puts, inline_max, WINDOW_MAX)
                            .map(SimLink::Span)
                    }
                };
                let [a, b] = linked;
                table[low][high] = Some(a);
                table[high][low] = Some(b);
            }
        }
        let members = members.iter().zip(table).enumerate().map(|(id, (model, links))| {
            let (device, inside) = SimDevice::new(hub.clone(), id, model.device);
            let links = links.into_iter().collect();
            let engine: Box<SimEngine> = Box::new(SimEngine::new(id as u16, 0, device, links));
            Member::new(hub.clone(), id, model.ahead, engine, inside)
        });
        let members = members.collect();
        let plans: Vec<Rc<CallPlan>> = calls.into_iter().map(Rc::new).collect();
        let causes = vec![Vec::new(); plans.len()];
        let expected = plans.iter().map(|_| Expected::default()).collect();
        let acts = Vec::new();
        let (hub2, seen_failures) = (hub, 0);
        let mut world = Self {
            hub: hub2,
            plans,
            faults,
            members,
            ends,
            ways,
            acts,
            causes,
            expected,
            seen_failures,
        };
        world.prepare();
        world
    }

    fn prepare(&mut self) {
        for fault in self.faults.clone() {
            self.hub.note(&[3], || format!("planned: {fault:?}"));
            match fault {
                Fault::Death { member, at } => self.act_at(at, Act::Kill { member }),
                Fault::Mismatch { call, .. } => self.causes[call].push(Cause::Mismatch),
                Fault::Deadline { call, .. } => self.causes[call].push(Cause::Deadline),
                Fault::Cancel { .. } | Fault::Device { .. } => {}
            }
        }
        self.ends.values().for_each(|end| end.borrow_mut().begin());
        for member in &mut self.members {
            member.due = self.plans.first().map_or(0, |plan| plan.starts[member.id].after);
            self.hub.wake_at(member.id, member.due);
        }
    }

    fn act_at(&mut self, at: u64, act: Act) {
        self.acts.push(act);
        self.hub.at(at, Event::Act { act: self.acts.len() - 1 });
    }

    /// What all parts of the group share.
    #[must_use]
    pub fn hub(&self) -> Rc<Hub> {
        self.hub.clone()
    }

    /// Runs until every call has ended on every member that is there, or far too long.
    #[must_use]
    pub fn run(mut self, seed: u64) -> Report {
        let calls = self.plans.len();
        let mut events = 0;
        while !liveness::is_over(&self.members, calls) {
            let Some(event) = self.hub.next() else { break };
            events += 1;
            if events == EVENTS_MAX {
                self.hub.complain("so much happens that something must go round in circles".into());
            }
            if self.hub.now() > TIME_MAX_NS || !self.hub.complaints.borrow().is_empty() {
                break;
            }
            self.dispatch(event);
        }
        if self.hub.complaints.borrow().is_empty() {
            liveness::check(&self.hub, &self.members, calls);
            for call in 0..calls {
                agreement::check(&self.hub, &self.members, call, &self.causes[call]);
            }
        }
        let resent = self.ends.values().map(|end| end.borrow().stats().resent).sum();
        Report::new(seed, &self.hub, &self.members, resent)
    }

    fn dispatch(&mut self, event: Event) {
        let alive = |m: usize| self.members[m].engine.is_some();
        match event {
            Event::Poll { member } => self.poll(member),
            Event::Job { member, serial } if alive(member) => {
                self.members[member].device.borrow_mut().finish(serial);
                self.blame_devices();
            }
            Event::Packet { from, to, bytes } if alive(to) => {
                self.hub.note(&[4, from as u64, to as u64, bytes.len() as u64], || {
                    format!("packet {from} -> {to}, {} bytes", bytes.len())
                });
                if let Some(end) = self.ends.get(&(to, from)) {
                    end.borrow_mut().handle_packet(&bytes);
                }
            }
            Event::Timer { member, peer } if alive(member) => {
                if let Some(end) = self.ends.get(&(member, peer)) {
                    end.borrow_mut().handle_timer();
                }
            }
            Event::Left { from, to } if alive(from) => self.way(from, to, stream::Way::handle_left),
            Event::Reach { from, to, last, bytes } => {
                handle_reach(&self.hub, from, to, last, &bytes);
            }
            Event::Begin { from, to, last, len } => {
                self.way(from, to, |way| way.handle_begin(last, len));
            }
            Event::Head { from, to } => self.way(from, to, stream::Way::handle_head),
            Event::Tail { from, to } => self.way(from, to, stream::Way::handle_tail),
            Event::Reset { from, to } => self.way(from, to, stream::Way::handle_reset),
            Event::Act { act } => self.act(self.acts[act]),
            _ => {}
        }
    }

    fn way(&self, from: usize, to: usize, handle: impl FnOnce(&mut stream::Way)) {
        if let Some(way) = self.ways.get(&(from, to)) {
            handle(&mut way.borrow_mut());
        }
    }

    fn act(&mut self, act: Act) {
        self.hub.note(&[5], || format!("{act:?}"));
        match act {
            Act::Ready { member, call, upto } => self.members[member].source_ready(call, upto),
            Act::Cancel { member, call } => {
                if self.members[member].cancel(call) {
                    self.causes[call].push(Cause::Cancelled(member as u16));
                }
            }
            Act::Kill { member } => {
                for (call, plan) in self.plans.iter().enumerate() {
                    if member < plan.members() {
                        self.causes[call].push(Cause::PeerLost(member as u16));
                    }
                }
                self.members[member].kill();
            }
        }
    }

    /// Notes which calls the latest failures of devices belong to.
    fn blame_devices(&mut self) {
        let failures = self.hub.device_failures.borrow()[self.seen_failures..].to_vec();
        self.seen_failures += failures.len();
        for (member, token) in failures {
            let channel = (token >> 16) as usize;
            let calls = self.members[member].calls.iter().enumerate();
            let running = calls.filter(|(_, begun)| begun.outcome.is_none());
            for (call, _) in running.filter(|(call, _)| call % CHANNELS == channel) {
                self.causes[call].push(Cause::DeviceFailed(member as u16));
            }
        }
    }

    /// A member looks after its engine.
    fn poll(&mut self, id: usize) {
        while self.members[id].engine.is_some() {
            let mut again = self.begin_due(id);
            let member = &mut self.members[id];
            let local = member.local();
            let Some(engine) = &mut member.engine else { return };
            engine.handle_time(local);
            let mut rounds = 0;
            while engine.poll() && rounds < ROUNDS_MAX {
                rounds += 1;
            }
            if rounds == ROUNDS_MAX {
                self.hub.complain(format!("{id} is busy with nothing"));
            }
            self.blame_devices();
            again |= self.collect(id);
            if !again {
                break;
            }
        }
        let member = &self.members[id];
        if let Some(at) = member.engine.as_ref().and_then(|engine| engine.poll_timeout()) {
            // What is over already waits for something else; look again a little later.
            let at = at.as_nanos().saturating_sub(member.ahead);
            let at = if at <= self.hub.now() { self.hub.now() + 10_000_000 } else { at };
            self.hub.wake_at(id, at);
        }
    }

    /// Begins the member's next call if it is time; true if it has.
    fn begin_due(&mut self, id: usize) -> bool {
        let call = self.members[id].calls.len();
        let member = &mut self.members[id];
        if call >= self.plans.len() || self.hub.now() < member.due || !member.can_begin() {
            return false;
        }
        let now = self.hub.now();
        let (plan, deadline, cancel) = self.disturbed(call, id);
        let starts = plan.starts[id];
        let len = plan.layout.input_len(id as u16);
        let member = &mut self.members[id];
        member.begin(plan, deadline);
        if let Some(next) = self.plans.get(call + 1) {
            member.due = now + next.starts[id].after;
            self.hub.wake_at(id, member.due);
        }
        if let Some(after) = cancel {
            self.act_at(now + after, Act::Cancel { member: id, call });
        }
        let mut at = now;
        for step in 1..=starts.steps {
            at += self.hub.rng.borrow_mut().below(200_000);
            let upto = if step == starts.steps { len } else { len * step / starts.steps };
            self.act_at(at, Act::Ready { member: id, call, upto });
        }
        true
    }

    /// What a member calls, by when, and when it gives up, with the faults that are planned.
    fn disturbed(&self, call: usize, id: usize) -> (Rc<CallPlan>, Duration, Option<u64>) {
        let mut plan = self.plans[call].clone();
        let (mut deadline, mut cancel) = (PATIENCE, None);
        for fault in &self.faults {
            match fault {
                Fault::Mismatch { call: c, member, variant } if (*c, *member) == (call, id) => {
                    plan = Rc::new(variant.0.clone());
                }
                Fault::Deadline { call: c, member, after } if (*c, *member) == (call, id) => {
                    deadline = Duration::from_nanos(*after);
                }
                Fault::Cancel { call: c, member, after } if (*c, *member) == (call, id) => {
                    cancel = Some(*after);
                }
                _ => {}
            }
        }
        (plan, deadline, cancel)
    }

    /// Takes results and progress from a member's engine; true if a call has ended.
    fn collect(&mut self, id: usize) -> bool {
        let mut ended = false;
        for call in 0..self.members[id].calls.len() {
            if self.members[id].calls[call].outcome.is_some() {
                continue;
            }
            self.watch_progress(id, call);
            let Some(engine) = &mut self.members[id].engine else { return ended };
            let Some(result) = engine.result(call as u64) else { continue };
            ended = true;
            let member = &mut self.members[id];
            member.over(call, Some(result));
            let begun = &member.calls[call];
            let Some(outcome) = &begun.outcome else { continue };
            let ours = Rc::ptr_eq(&begun.plan, &self.plans[call]);
            if result.is_ok() && ours {
                let want = self.expected[call].output(&self.plans[call], id);
                bits::check(&self.hub, call, id, &outcome.output, want);
            }
            if let Some(input) = &outcome.input {
                let ready = begun.ready as usize * begun.plan.dtype.size();
                let want = begun.plan.input(id as u16);
                if input.get(..ready) != want.get(..ready) {
                    self.hub.complain(format!("call {call} of {id} has changed its input"));
                }
            }
        }
        ended
    }

    /// What a member is told is final has to be so.
    fn watch_progress(&mut self, id: usize, call: usize) {
        let begun = &mut self.members[id].calls[call];
        let ours = Rc::ptr_eq(&begun.plan, &self.plans[call]);
        let whole = matches!(begun.plan.layout.kind, Kind::AllReduce | Kind::Broadcast);
        let (before, output) = (begun.progress, begun.buffers.output);
        let engine = self.members[id].engine.as_ref();
        let Some(progress) = engine.and_then(|engine| engine.progress(call as u64)) else { return };
        if !ours || !whole || progress == before {
            return;
        }
        if progress < before {
            self.hub.complain(format!("the progress of call {call} of {id} goes back"));
        }
        let plan = &self.plans[call];
        let len = progress as usize * plan.dtype.size();
        let want = self.expected[call].output(plan, id).get(..len).unwrap_or(&[]).to_vec();
        match self.hub.memory.borrow().read(output, len) {
            Ok(got) => bits::check(&self.hub, call, id, got, &want),
            Err(why) => self.hub.complain(why),
        }
        self.members[id].calls[call].progress = progress;
    }
}
