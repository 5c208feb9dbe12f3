//! One machine alone with peers that lie: it never panics, keeps its promises and says who it was.

mod random;

use unisono_core::layout::Layout;
use unisono_core::machine::{Action, Config, ConfigError, Machine, Payload, Refused, Room, Status};
use unisono_core::schedule::Owners;
use unisono_core::wire::frame::{Abort, Body, Data, Header, Phase};
use unisono_core::{DType, Form, Kind, ReduceOp, Scalar, Schedule};

type Lone = Machine<u32, 4, 16, 8>;

/// Room for everything but, perhaps, frames.
struct Any {
    frames: bool,
}

impl Room for Any {
    fn send(&mut self, _: u16) -> bool {
        self.frames
    }

    fn device(&mut self) -> bool {
        true
    }
}

fn config(kind: Kind, ranks: u16, rank: u16) -> Config {
    let layout = Layout { kind, ranks, count: 3 * u64::from(ranks), chunk: 1, root: 0 };
    let schedule = Schedule::Direct(Owners::equal(ranks).unwrap());
    let mut config = Config {
        epoch: 1,
        op_id: 5,
        rank,
        schedule_print: schedule.fingerprint(),
        schedule,
        layout,
        dtype: DType::F16,
        op: kind.reduces().then_some(ReduceOp::Sum),
        weight: Scalar::one(DType::F16),
        window: 2,
        eager: 0,
        slots: 0,
        by_bytes: 0,
        puts: 0,
        in_place: false,
        input_private: false,
        output_private: false,
        sources_max: 2,
        dests_max: 2,
        deadline: None,
    };
    config.slots = config.slots_min();
    config
}

fn started(config: &Config) -> Lone {
    let mut machine = Lone::new();
    machine.start(config, u64::MAX).unwrap();
    machine
}

fn header(machine: &Lone, from: u16, body: Body) -> Header {
    Header { epoch: 1, op: 5, from, print: machine.fingerprint(), body }
}

fn leaf(chunk: u64) -> Data {
    let (phase, form) = (Phase::Contribution, Form::Leaf);
    Data { chunk, phase, form, weight: Scalar(0), limit: 0, bytes: 2 }
}

fn result(chunk: u64) -> Data {
    Data { phase: Phase::Result, form: Form::Final, ..leaf(chunk) }
}

/// A frame whose payload can be read.
const AT: Option<Payload<u32>> = Some(Payload::At { mem: 0, window: None, handle: 1 });

/// Rank 0 of 3 in an all-reduce: it owns chunk 0, and chunk 1 belongs to rank 1.
fn owner(tell: bool) -> Lone {
    let mut machine = started(&config(Kind::AllReduce, 3, 0));
    while machine.poll_action(&mut Any { frames: tell }).is_some() {}
    machine
}

/// The machine gives the call up and names rank 1.
fn refuses(mut machine: Lone, what: &str, data: Data, payload: Option<Payload<u32>>) {
    let header = header(&machine, 1, Body::Data(data));
    assert_eq!(machine.status(), Status::Running);
    assert!(!machine.handle_frame(&header, payload, None), "{what} is kept");
    let why = Abort::Protocol { rank: 1 };
    assert_eq!(machine.status(), Status::Failing(why), "{what}");
}

#[test]
fn a_frame_that_is_not_due_is_a_breach() {
    let put = Some(Payload::Put);
    refuses(owner(true), "a chunk past the window", leaf(2), AT);
    refuses(owner(true), "a chunk past the end", leaf(u64::MAX), AT);
    refuses(owner(false), "a chunk past the limit that was told", leaf(0), AT);
    refuses(owner(true), "too many bytes", Data { bytes: 4, ..leaf(0) }, AT);
    refuses(owner(true), "no bytes", Data { bytes: 0, ..leaf(0) }, AT);
    refuses(owner(true), "a final contribution", Data { form: Form::Final, ..leaf(0) }, AT);
    refuses(owner(true), "a result of leaves", Data { form: Form::Leaf, ..result(1) }, AT);
    refuses(owner(true), "a contribution to somebody else's chunk", leaf(1), AT);
    refuses(owner(true), "a result of the own chunk", result(0), AT);
    refuses(owner(true), "a result before the contribution has been sent", result(1), AT);
    refuses(owner(true), "no payload", leaf(0), None);
    refuses(owner(true), "a contribution that was put", leaf(0), put);
    refuses(owner(true), "a payload without a place", leaf(0), Some(Payload::Placed));
}

#[test]
fn a_second_copy_is_a_breach() {
    let mut machine = owner(true);
    let first = header(&machine, 1, Body::Data(leaf(0)));
    assert!(machine.handle_frame(&first, AT, None));
    refuses(machine, "a second copy", leaf(0), AT);
}

/// A peer that takes its memory back is about to abort; the lane does not ask for ever.
#[test]
fn a_job_that_was_refused_is_not_asked_for_again() {
    let mut machine = owner(true);
    let first = header(&machine, 1, Body::Data(leaf(0)));
    assert!(machine.handle_frame(&first, AT, None));
    let second = Header { from: 2, ..first };
    let at = Some(Payload::At { mem: 1, window: None, handle: 2 });
    assert!(machine.handle_frame(&second, at, None));
    let action = machine.poll_action(&mut Any { frames: true });
    let Some(Action::Fold { lane }) = action else { panic!("{action:?}") };
    machine.handle_refused(lane);
    assert_eq!(machine.poll_action(&mut Any { frames: true }), None);
    let why = Abort::Cancelled { rank: 1 };
    machine.handle_frame(&header(&machine, 1, Body::Abort(why)), None, None);
    assert_eq!(machine.status(), Status::Failing(why));
}

#[test]
fn only_who_may_put_can_put() {
    let sent = |puts| {
        let mut machine = started(&Config { puts, ..config(Kind::AllReduce, 3, 0) });
        let credit = header(&machine, 1, Body::Credit { limit: 9 });
        machine.handle_frame(&credit, None, None);
        while machine.poll_action(&mut Any { frames: true }).is_some() {}
        machine
    };
    let mut machine = sent(1 << 1);
    let put = header(&machine, 1, Body::Data(result(1)));
    machine.handle_frame(&put, Some(Payload::Put), None);
    assert_eq!(machine.status(), Status::Running);
    refuses(sent(1 << 2), "a put without a window", result(1), Some(Payload::Put));
}

#[test]
fn bytes_that_are_not_due_get_no_place() {
    let mut config = config(Kind::AllReduce, 3, 0);
    config.by_bytes = 0b110;
    config.slots = config.slots_min();
    let mut machine = started(&config);
    // Nothing has been told yet.
    let early = header(&machine, 1, Body::Data(leaf(0)));
    assert_eq!(machine.placement(&early), Err(Refused::Discard));
    assert_eq!(machine.status(), Status::Failing(Abort::Protocol { rank: 1 }));
}

#[test]
fn rounds_that_nobody_waits_for_are_a_breach() {
    for (kind, round) in [(Kind::AllReduce, 0), (Kind::Barrier, 1), (Kind::Barrier, 255)] {
        let mut machine = started(&config(kind, 3, 0));
        let agree = header(&machine, 2, Body::Agree { round });
        machine.handle_frame(&agree, None, None);
        let breach = Status::Failing(Abort::Protocol { rank: 2 });
        assert_eq!(machine.status(), breach, "{kind} {round}");
    }
}

#[test]
fn frames_of_nobody_and_of_other_calls_change_nothing() {
    let bodies = [
        Body::Data(leaf(0)),
        Body::Data(result(7)),
        Body::Credit { limit: 2 },
        Body::Agree { round: 0 },
        Body::Abort(Abort::Cancelled { rank: 1 }),
    ];
    let strangers: [fn(&mut Header); 7] = [
        |h| h.epoch = 0,
        |h| h.epoch = 2,
        |h| h.op = 4,
        |h| h.op = 6,
        |h| h.from = 3,
        |h| h.from = u16::MAX,
        |h| h.from = 0,
    ];
    for body in bodies {
        for change in strangers {
            let mut machine = owner(true);
            let before = format!("{machine:?}");
            let mut header = header(&machine, 1, body);
            change(&mut header);
            assert_eq!(machine.placement(&header), Err(Refused::Discard));
            assert!(!machine.handle_frame(&header, AT, None));
            assert_eq!(before, format!("{machine:?}"), "{header:?}");
        }
    }
}

#[test]
fn sizes_that_overflow_are_refused() {
    let mut config = config(Kind::ReduceScatter, 3, 0);
    for (count, chunk) in [(u64::MAX, u64::MAX), (1 << 61, u64::MAX), (u64::MAX / 8, 1)] {
        config.layout.count = count;
        config.layout.chunk = chunk;
        let refused = Lone::new().start(&config, 0);
        let named = matches!(refused, Err(ConfigError::Count { .. } | ConfigError::Chunk { .. }));
        assert!(named, "{count} {chunk}: {refused:?}");
    }
    let mut machine = Lone::new();
    config.layout.count = 5;
    config.layout.chunk = 1;
    machine.start(&config, 0).unwrap();
    config.slots = 32;
    assert!(machine.start(&config, 0).is_err());
    assert_eq!((machine.status(), machine.op_id()), (Status::Idle, None));
}
