//! The parts of the core, each behind a function that does all that it can do.

use crate::{FRAGMENTS, MEMBERS, MOVES, MTU, WINDOW};
use core::hint::black_box;
use heapless::Vec;
use unisono_core::machine::{self, Action, Payload, Place, Room};
use unisono_core::plan::{self, Call, LinkModel};
use unisono_core::reliable::Reliable;
use unisono_core::schedule::{Aggregators, Nodes, Order, Owners};
use unisono_core::time::Instant;
use unisono_core::wire::{cobs, control, frame};
use unisono_core::{
    DType, Finish, Form, Kind, Layout, ReduceOp, Scalar, Schedule, Source, numeric,
};

/// A machine whose memory references are addresses.
pub type Machine = machine::Machine<u32, WINDOW, MOVES, MEMBERS>;

/// What nobody can foresee.
fn any<T: From<u8>>() -> T {
    black_box(0).into()
}

/// Any of these.
fn one_of<T: Copy>(all: &[T]) -> Option<T> {
    all.get(usize::from(any::<u8>())).copied()
}

fn schedule(ranks: u16) -> Option<Schedule> {
    Some(match any::<u8>() {
        0 => Schedule::Ring,
        1 => Schedule::Direct(Owners::equal(ranks)?),
        2 => Schedule::Direct(Owners::weighted(ranks, &[any(), any(), any(), any()])?),
        3 => Schedule::OneShot,
        4 => Schedule::Binomial,
        5 => Schedule::DoubleTree,
        6 => Schedule::HalvingDoubling,
        7 => Schedule::Star(Aggregators::new(any())?),
        8 => Schedule::Hierarchical(Nodes::new(&[any(), any(), any(), any()])?),
        9 => Schedule::Hub(Nodes::new(&[any(), any(), any(), any()])?),
        _ => return None,
    })
}

fn layout() -> Option<Layout> {
    let kind = one_of(&Kind::ALL)?;
    Some(Layout { kind, ranks: any(), count: any(), chunk: any(), root: any() })
}

/// Any call.
pub fn config() -> Option<machine::Config> {
    let layout = layout()?;
    let schedule = schedule(layout.ranks)?;
    let mut config = machine::Config {
        epoch: any(),
        op_id: any(),
        rank: any(),
        schedule_print: schedule.fingerprint(),
        schedule,
        layout,
        dtype: one_of(&DType::ALL)?,
        op: one_of(&ReduceOp::ALL),
        weight: Scalar(any()),
        window: any(),
        eager: any(),
        slots: 0,
        by_bytes: any(),
        puts: any(),
        in_place: any::<u8>() > 0,
        input_private: any::<u8>() > 0,
        output_private: any::<u8>() > 0,
        sources_max: any(),
        dests_max: any(),
        deadline: Some(Instant::from_nanos(any())),
    };
    config.slots = config.slots_min();
    Some(config)
}

struct AnyRoom;

impl Room for AnyRoom {
    fn send(&mut self, to: u16) -> bool {
        black_box(to) > 0
    }

    fn device(&mut self) -> bool {
        any::<u8>() > 0
    }
}

/// Everything that a machine does, frames in bytes, set-up messages, and both through COBS.
pub fn machine(machine: &mut Machine) {
    if let Some(config) = config() {
        black_box(machine.start(&config, any()).is_ok());
    }
    let mut bytes = [any(); 256];
    let mut room = [0; 256];
    let mut reader = cobs::CobsReader::new(&mut room);
    if let Some(message) = reader.next(&mut black_box(&bytes[..])) {
        if let Ok(message) = control::decode(message) {
            black_box(control::encode(&message, &mut bytes).is_ok());
        }
        if let Ok((header, payload)) = frame::decode(message) {
            black_box(payload);
            let place = machine.placement(&header).ok();
            let at = Payload::At { mem: any(), window: Some(any()), handle: any() };
            let payload = one_of(&[Payload::Placed, Payload::Put, at]);
            black_box(machine.handle_frame(&header, payload, place));
        }
    }
    completions(machine);
    while let Some(action) = machine.poll_action(&mut AnyRoom) {
        act(machine, action, &mut bytes);
    }
    black_box((machine.status(), machine.progress(), machine.waiting_for()));
    black_box((machine.poll_timeout(), machine.needs(any())));
}

fn completions(machine: &mut Machine) {
    machine.handle_sent(any());
    machine.handle_done(any(), |released| {
        black_box(released);
    });
    machine.source_ready(any());
    machine.handle_timeout(Instant::from_nanos(any()));
    match any::<u8>() {
        0 => machine.cancel(),
        1 => machine.handle_device_error(),
        2 => machine.handle_peer_lost(any()),
        3 => machine.handle_refused(any()),
        4 => machine.stop_telling(),
        5 => machine.abandon(|released| {
            black_box(released);
        }),
        6 => machine.arm(Instant::from_nanos(any())),
        _ => {}
    }
}

fn act(machine: &Machine, action: Action<u32>, bytes: &mut [u8; 256]) {
    let print = machine.fingerprint();
    let (epoch, op, from) = (any(), any(), any());
    let body = match action {
        Action::Control { body, .. } => body,
        Action::Send { data, .. } => frame::Body::Data(data),
        Action::Fold { lane } => {
            let mut sources: Vec<Source<Place<u32>>, MEMBERS> = Vec::new();
            let mut dests: Vec<Place<u32>, MEMBERS> = Vec::new();
            black_box(machine.fold_job(lane, |place| place, &mut sources, &mut dests));
            machine.holds(lane).for_each(|held| {
                black_box(held);
            });
            black_box((&sources, &dests));
            return;
        }
        Action::Copy { .. } => {
            black_box(action);
            return;
        }
    };
    let header = frame::Header { epoch, op, from, print, body };
    black_box(frame::encode(&header, black_box(&[]), bytes).is_ok());
    let mut line = [0; cobs::cobs_max(256)];
    black_box(cobs::cobs_encode(bytes, &mut line).is_ok());
    black_box(&line);
}

/// Everything that a reliable channel does.
pub fn reliable(channel: &mut Reliable<FRAGMENTS, MTU>) {
    let now = Instant::from_nanos(any());
    let mut packet = [any(); MTU];
    channel.handle_packet(now, black_box(&packet));
    channel.handle_timeout(now);
    black_box(channel.send(black_box(&packet)).is_ok());
    while let Some(len) = channel.poll_transmit(now, &mut packet) {
        black_box((len, &packet));
    }
    while channel.message_len().is_some() && channel.recv(&mut packet).is_ok() {
        black_box(&packet);
    }
    black_box((channel.poll_timeout(), channel.fault(), channel.stats(), channel.rtt()));
}

/// Every fold of the scalar reference.
pub fn fold() {
    let forms = [Form::Leaf, Form::Partial, Form::Final];
    let (Some(dtype), Some(form)) = (one_of(&DType::ALL), one_of(&forms)) else { return };
    let op = one_of(&ReduceOp::ALL);
    let finish = if any::<u8>() > 0 { Finish::Partial } else { Finish::Final { ranks: any() } };
    let bytes = [any(); 64];
    let source = Source { mem: black_box(&bytes[..]), form, weight: Scalar(any()), merges: any() };
    let mut out = [0; 64];
    black_box(numeric::fold(dtype, op, finish, &[source, source], &mut out).is_ok());
    black_box(&out);
}

/// Every candidate of the planner, and the choice among them.
pub fn planner() {
    let number = || f64::from_bits(any());
    let member =
        LinkModel { alpha_ns: number(), ns_per_byte: number(), fold_ns_per_byte: number() };
    let model = [member; MEMBERS];
    let (Some(layout), Some(dtype), Some(op), Some(order)) = (
        layout(),
        one_of(&DType::ALL),
        one_of(&ReduceOp::ALL),
        one_of(&[Order::Canonical, Order::Any]),
    ) else {
        return;
    };
    let nodes = Nodes::even(layout.ranks, any());
    let candidates = plan::candidates(layout.ranks, black_box(&model), nodes.as_ref());
    let call = Call { layout, dtype, op, order };
    black_box(plan::choose(&candidates, &call, black_box(&model)));
}
