//! One member: its engine, the calls that it makes, the memory that it brings to them.

use crate::device::{Inside, SimDevice};
use crate::hub::Hub;
use crate::link::{CHANNELS, SimLink};
use crate::memory::Mem;
use crate::scenario::{CallPlan, MEMBERS_MAX, WINDOW_MAX};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use unisono_core::machine::{Config, ConfigError};
use unisono_core::wire::frame::Abort;
use unisono_core::{Form, Instant, Kind, Scalar};
use unisono_driver::Memory;
use unisono_runtime::{BeginError, Buffers, Call, Engine};

/// Most moves of a route over [`MEMBERS_MAX`] members.
const ROUTE: usize = 26;

/// The engine as it is here.
pub type SimEngine = Engine<SimDevice, SimLink, CHANNELS, WINDOW_MAX, ROUTE, MEMBERS_MAX>;

/// Deadline of a call that is not to run into it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A call that a member has begun.
#[derive(Clone, Debug)]
pub struct Begun {
    /// What it calls; not always what the others do.
    pub plan: Rc<CallPlan>,
    /// When.
    pub at: u64,
    /// The buffers as the engine knows them.
    pub buffers: Buffers<Mem>,
    /// The same as they were allocated: input, output (if it is not the same), scratch.
    regions: Vec<Mem>,
    /// Elements of the output that were reported as final.
    pub progress: u64,
    /// Elements of the input that are final.
    pub ready: u64,
    /// What became of it.
    pub outcome: Option<Outcome>,
}

/// How a call ended on one member.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When, in virtual nanoseconds.
    pub at: u64,
    /// The result; `None` if the member has no part in this call.
    pub result: Option<Result<(), Abort>>,
    /// What the output holds.
    pub output: Vec<u8>,
    /// What the input holds, if it was not overwritten.
    pub input: Option<Vec<u8>>,
}

/// One member.
pub struct Member {
    hub: Rc<Hub>,
    /// Its number.
    pub id: usize,
    /// What its clock is ahead of virtual time.
    pub ahead: u64,
    /// `None` once it is gone.
    pub engine: Option<Box<SimEngine>>,
    /// Its device's inside.
    pub device: Rc<RefCell<Inside>>,
    /// Calls that it has begun, in order.
    pub calls: Vec<Begun>,
    /// When it begins the next one.
    pub due: u64,
}

impl Member {
    /// A member that has begun nothing.
    #[must_use]
    pub fn new(
        hub: Rc<Hub>,
        id: usize,
        ahead: u64,
        engine: Box<SimEngine>,
        device: Rc<RefCell<Inside>>,
    ) -> Self {
        Self { hub, id, ahead, engine: Some(engine), device, calls: Vec::new(), due: 0 }
    }

    /// The member's own clock.
    #[must_use]
    pub fn local(&self) -> Instant {
        Instant::from_nanos(self.hub.now() + self.ahead)
    }

    /// Is the channel of the next call free?
    #[must_use]
    pub fn can_begin(&self) -> bool {
        let before = self.calls.len().checked_sub(CHANNELS);
        before.is_none_or(|before| self.calls[before].outcome.is_some())
    }

    /// Begins the next call.
    pub fn begin(&mut self, plan: Rc<CallPlan>, deadline: Duration) {
        let now = self.hub.now();
        let rank = self.id as u16;
        let local = self.local();
        let start = plan.starts[self.id];
        let private = self.private(plan.in_place);
        let Some(engine) = &mut self.engine else { return };
        let mut config = config(&plan, rank);
        config.window = start.window;
        [config.input_private, config.output_private] = private;
        config.deadline = Some(local + deadline);
        // A call that cannot run is refused by `begin`, which is what the scenario wants to see.
        let _ = engine.fit(&mut config);
        config.slots = (config.slots + start.more_slots).min(31);
        let total = plan.layout.input_len(rank);
        let ready = if start.steps == 0 { total } else { 0 };
        let (buffers, regions) = allocate(&self.hub, &plan, rank, ready, &config);
        let source_ready = if start.steps == 0 { u64::MAX } else { 0 };
        hide(&self.hub, &config, &buffers);
        let mut call = Call { config, buffers, source_ready };
        // SAFETY: memory is checked at every access; it is freed when the result is there.
        let begun = unsafe { engine.begin(&mut call) };
        let op = self.calls.len() as u64;
        self.calls.push(Begun {
            plan: plan.clone(),
            at: now,
            buffers,
            regions,
            progress: 0,
            ready,
            outcome: None,
        });
        let id = self.id;
        self.hub
            .note(&[1, op, id as u64], || format!("{id} begins call {op}: {}", plan.describe()));
        match begun {
            Ok(number) if number == op => {}
            Err(BeginError::Config(ConfigError::Rank { .. })) if id >= plan.members() => {
                self.over(op as usize, None);
            }
            other => {
                let what = plan.describe();
                self.hub.complain(format!("{id} cannot begin call {op} ({what}): {other:?}"));
                self.over(op as usize, None);
            }
        }
    }

    /// Are the buffers of a call private, input and output?
    fn private(&self, in_place: bool) -> [bool; 2] {
        let [input, output] = self.device.borrow().model().private;
        [input, if in_place { input } else { output }]
    }

    /// A call is over: its memory goes back to the member, who looks at it.
    pub fn over(&mut self, call: usize, result: Option<Result<(), Abort>>) {
        let begun = &mut self.calls[call];
        let mut contents = Vec::new();
        for mem in begun.regions.drain(..) {
            let freed = self.hub.memory.borrow_mut().free(mem);
            contents.push(freed.unwrap_or_else(|why| {
                self.hub.complain(format!("call {call} of {} is over, but {why}", self.id));
                Vec::new()
            }));
        }
        let bytes = |elems: u64| elems as usize * begun.plan.dtype.size();
        let of = begun.buffers.output;
        let at = of.at as usize;
        let mut output = contents[usize::from(!begun.plan.in_place)].clone();
        let want = bytes(begun.plan.layout.output_len(self.id as u16));
        if output.len() >= at + want {
            output = output[at..at + want].to_vec();
        }
        let input = (!begun.plan.in_place).then(|| contents.swap_remove(0));
        begun.outcome = Some(Outcome { at: self.hub.now(), result, output, input });
        let (id, begun) = (self.id as u64, &self.calls[call]);
        let code = match result {
            None => 0,
            Some(Ok(())) => 1,
            Some(Err(why)) => 2 + u64::from(kind_code(&why)),
        };
        self.hub.note(&[2, call as u64, id, code], || match result {
            None => format!("{id} has no part in call {call}"),
            Some(Ok(())) => format!("{id} is done with call {call}"),
            Some(Err(why)) => format!("{id} has to give up call {call}: {why:?}"),
        });
        if let (Some(Ok(())), Some(outcome)) = (result, &begun.outcome) {
            self.hub.trace.borrow_mut().bytes(self.hub.now(), &outcome.output);
        }
    }

    /// More of a call's input is final: writes it, then says so.
    pub fn source_ready(&mut self, call: usize, upto: u64) {
        let Some(engine) = &mut self.engine else { return };
        let begun = &mut self.calls[call];
        if begun.outcome.is_some() || upto <= begun.ready {
            return;
        }
        let size = begun.plan.dtype.size();
        let (from, to) = (begun.ready as usize * size, upto as usize * size);
        let bytes = &begun.plan.input(self.id as u16)[from..to];
        let mem = begun.buffers.input.offset(from as u64);
        let put = self.hub.memory.borrow_mut().deposit(self.id as u16, mem, bytes);
        self.hub.check(put);
        begun.ready = upto;
        engine.source_ready(call as u64, upto);
        self.hub.wake(self.id);
    }

    /// Gives a call up; true if it was still running.
    pub fn cancel(&mut self, call: usize) -> bool {
        let running = self.calls.get(call).is_some_and(|begun| begun.outcome.is_none());
        if let (true, Some(engine)) = (running, &mut self.engine) {
            engine.cancel(call as u64);
            self.hub.wake(self.id);
        }
        running
    }

    /// The member is gone.
    pub fn kill(&mut self) {
        self.device.borrow_mut().kill();
        if let Some(engine) = self.engine.take() {
            engine.links().iter().flatten().for_each(SimLink::leave);
        }
        self.hub.net.borrow_mut().kill(self.id);
    }
}

/// A small number for each kind of failure.
#[must_use]
pub const fn kind_code(why: &Abort) -> u8 {
    match why {
        Abort::Mismatch { .. } => 0,
        Abort::Deadline { .. } => 1,
        Abort::Cancelled { .. } => 2,
        Abort::PeerLost { .. } => 3,
        Abort::DeviceFailed { .. } => 4,
        Abort::Protocol { .. } => 5,
        Abort::Refused { .. } => 6,
    }
}

/// Names of [`kind_code`].
pub const KIND_NAMES: [&str; 7] =
    ["mismatch", "deadline", "cancelled", "peer lost", "device failed", "protocol", "refused"];

/// A plan as the machine wants it; the engine and the member fill in the rest.
fn config(plan: &CallPlan, rank: u16) -> Config {
    let weight = plan.weights.get(usize::from(rank)).copied();
    Config {
        epoch: 0,
        op_id: 0,
        rank,
        schedule: plan.schedule.clone(),
        schedule_print: plan.schedule.fingerprint(),
        layout: plan.layout,
        dtype: plan.dtype,
        op: plan.op,
        weight: weight.unwrap_or(Scalar::one(plan.dtype)),
        window: plan.window,
        eager: plan.eager,
        slots: 0,
        by_bytes: 0,
        puts: 0,
        in_place: plan.in_place,
        input_private: false,
        output_private: false,
        sources_max: 0,
        dests_max: 0,
        deadline: None,
    }
}

/// Makes the buffers private that the device keeps to itself.
fn hide(hub: &Hub, config: &Config, buffers: &Buffers<Mem>) {
    let mut memory = hub.memory.borrow_mut();
    if config.input_private {
        memory.set_private(buffers.input);
    }
    if config.output_private {
        memory.set_private(buffers.output);
    }
}

/// The memory of a call: as the engine wants it, and what has to be freed.
fn allocate(
    hub: &Hub,
    plan: &CallPlan,
    rank: u16,
    ready: u64,
    config: &Config,
) -> (Buffers<Mem>, Vec<Mem>) {
    let size = plan.dtype.size() as u64;
    let block = u64::from(rank) * plan.layout.count * size;
    let elems = [plan.layout.input_len(rank), plan.layout.output_len(rank)];
    let mut content = plan.input(rank);
    content[(ready * size) as usize..].fill(0xaa);
    let name = |what: &str| format!("the {what} of {rank}");
    let mut memory = hub.memory.borrow_mut();
    let scratch = config.slot_bytes() * u64::from(config.slots) * u64::from(config.window);
    let scratch = memory.alloc(rank, name("scratch"), vec![0xaa; scratch as usize]);
    if !plan.in_place {
        let input = memory.alloc(rank, name("input"), content);
        let output = vec![0xaa; (elems[1] * size) as usize];
        let output = memory.alloc(rank, name("output"), output);
        return (Buffers { input, output, scratch }, vec![input, output, scratch]);
    }
    // An aggregator has no block of its own.
    let data = elems[0] + elems[1] > 0;
    let (input_at, output_at) = match plan.layout.kind {
        Kind::AllGather if data => (block, 0),
        Kind::ReduceScatter if data => (0, block),
        _ => (0, 0),
    };
    let mut bytes = vec![0xaa; (elems[0].max(elems[1]) * size) as usize];
    bytes[input_at as usize..][..content.len()].copy_from_slice(&content);
    let both = memory.alloc(rank, name("buffer"), bytes);
    let (input, output) = (both.offset(input_at), both.offset(output_at));
    debug_assert_eq!(config.bytes(1, Form::Leaf), size);
    (Buffers { input, output, scratch }, vec![both, scratch])
}
