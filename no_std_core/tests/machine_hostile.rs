//! One machine alone with peers that lie: it never panics, keeps its promises and says who it was.

use std::collections::HashSet;
use unisono_core::fold::check_merges;
use unisono_core::layout::Layout;
use unisono_core::machine::{
    Action, Config, ConfigError, Machine, Payload, Place, Refused, Room, Status,
};
use unisono_core::schedule::Owners;
use unisono_core::wire::frame::{Abort, Body, Data, Header, Phase};
use unisono_core::{DType, Form, Kind, ReduceOp, Scalar, Schedule, Source};

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
        sources_max: 2,
        dests_max: 2,
        deadline: None,
    };
    config.slots = config.slots_min();
    config
}

fn started(config: &Config) -> Lone {
    let mut machine = Lone::new();
    machine.start(config.clone(), u64::MAX).unwrap();
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
        let refused = Lone::new().start(config.clone(), 0);
        let named = matches!(refused, Err(ConfigError::Count { .. } | ConfigError::Chunk { .. }));
        assert!(named, "{count} {chunk}: {refused:?}");
    }
    let mut machine = Lone::new();
    config.layout.count = 5;
    config.layout.chunk = 1;
    machine.start(config.clone(), 0).unwrap();
    config.slots = 32;
    assert!(machine.start(config, 0).is_err());
    assert_eq!((machine.status(), machine.op_id()), (Status::Idle, None));
}

/// Numbers from a seed (xorshift, Marsaglia 2003).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }

    fn body(&mut self) -> Body {
        let phase = if self.below(2) == 0 { Phase::Contribution } else { Phase::Result };
        let form = [Form::Leaf, Form::Partial, Form::Final][self.below(3) as usize];
        let chunk = self.below(5);
        let bytes = [2, 2, 2, 4, 4, 0, 7][self.below(7) as usize];
        let data = Data { chunk, phase, form, weight: Scalar(0), limit: self.below(9), bytes };
        match self.below(20) {
            0 => Body::Agree { round: self.below(3) as u8 },
            1 => Body::Credit { limit: [0, 3, u64::MAX][self.below(3) as usize] },
            2 => Body::Data(Data { chunk: u64::MAX - self.below(3), limit: u64::MAX, ..data }),
            3..=10 => Body::Data(if phase == Phase::Result { result(chunk) } else { leaf(chunk) }),
            _ => Body::Data(data),
        }
    }
}

/// What a machine has been promised a completion for.
#[derive(Default)]
struct Owed {
    sends: Vec<u32>,
    jobs: Vec<u16>,
    kept: HashSet<u32>,
    /// Peers that have let it send everything.
    leave: HashSet<u16>,
    frames: u32,
}

impl Owed {
    fn take(&mut self, machine: &Lone, config: &Config, action: Action<u32>) {
        let most = u32::from(config.slots) * u32::from(config.window);
        let inside = |place: &Place<u32>| match *place {
            Place::Slot(slot) => slot < most,
            Place::Input(at) => at < 2 * config.layout.input_len(config.rank),
            Place::Output(at) => at < 2 * config.layout.output_len(config.rank),
            Place::Peer(_) => true,
        };
        match action {
            Action::Control { .. } => {}
            Action::Send { payload, window, token, .. } => {
                assert!(payload.iter().chain(&window).all(inside));
                self.sends.push(token);
            }
            Action::Copy { lane, from, to, .. } => {
                assert!(inside(&from) && inside(&to));
                self.busy(lane);
            }
            Action::Fold { lane } => {
                let mut sources: heapless::Vec<Source<Place<u32>>, 16> = heapless::Vec::new();
                let mut dests: heapless::Vec<Place<u32>, 16> = heapless::Vec::new();
                machine.fold_job(lane, &mut sources, &mut dests).expect("a fold");
                assert!(check_merges(sources.iter().map(|s| s.merges)));
                assert!(sources.len() <= usize::from(config.sources_max));
                assert!(dests.len() <= usize::from(config.dests_max));
                assert!(sources.iter().all(|s| inside(&s.mem)) && dests.iter().all(inside));
                assert!(machine.holds(lane).all(|r| self.kept.contains(&r.handle)));
                self.busy(lane);
            }
        }
    }

    fn busy(&mut self, lane: u16) {
        assert!(!self.jobs.contains(&lane), "two jobs on lane {lane}");
        self.jobs.push(lane);
    }

    fn finish(&mut self, machine: &mut Lone, dice: &mut Dice) {
        if !self.jobs.is_empty() && dice.below(2) == 0 {
            let lane = self.jobs.swap_remove(dice.below(self.jobs.len() as u64) as usize);
            let kept = &mut self.kept;
            machine.handle_done(lane, |r| assert!(kept.remove(&r.handle), "released twice"));
        } else if !self.sends.is_empty() {
            let k = dice.below(self.sends.len() as u64) as usize;
            machine.handle_sent(self.sends.swap_remove(k));
        }
    }
}

/// A frame comes, as a link would hand it over.
fn arrive(machine: &mut Lone, config: &Config, dice: &mut Dice, owed: &mut Owed) {
    let mut from = dice.below(5) as u16;
    let mut body = dice.body();
    if dice.below(40) > 0 {
        // Most of the time what the machine is waiting for.
        let idle = owed.sends.is_empty() && owed.jobs.is_empty();
        let Some((rank, chunk, phase)) = machine.waiting_for().filter(|_| idle) else { return };
        from = rank;
        body = match phase {
            _ if !owed.leave.contains(&rank) => Body::Credit { limit: 9 },
            Phase::Contribution => Body::Data(leaf(chunk)),
            Phase::Result => Body::Data(result(chunk)),
        };
        owed.leave.insert(rank);
    }
    let mut header = header(machine, from, body);
    if dice.below(30) == 0 {
        header.epoch += 1;
    }
    let bytes = config.by_bytes >> from & 1 != 0;
    let mut place = None;
    let payload = match (header.body, bytes, dice.below(120)) {
        (Body::Data(_), _, 0) => Some(Payload::Put),
        (Body::Data(_), _, 1) => None,
        (Body::Data(_), true, _) => match machine.placement(&header) {
            Ok(at) => {
                place = Some(at);
                Some(Payload::Placed)
            }
            Err(Refused::Later | Refused::Discard) => return,
        },
        (Body::Data(_), false, k) => {
            owed.frames += 1;
            let window = (k > 80).then_some(0);
            Some(Payload::At { mem: owed.frames, window, handle: owed.frames })
        }
        _ => None,
    };
    if machine.handle_frame(&header, payload, place) {
        assert!(matches!(payload, Some(Payload::At { .. })));
        owed.kept.insert(owed.frames);
    }
}

#[test]
fn nothing_that_a_peer_sends_breaks_a_machine() {
    let (mut done, mut failed) = (0, 0);
    let mut machine = Lone::new();
    for seed in 1..40_000u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        dice.below(2);
        let kinds = [Kind::AllReduce, Kind::ReduceScatter, Kind::AllGather, Kind::Broadcast];
        let kind = kinds[dice.below(4) as usize];
        let ranks = 2 + dice.below(3) as u16;
        let mut config = config(kind, ranks, dice.below(u64::from(ranks)) as u16);
        config.layout.count = 1 + dice.below(3);
        config.by_bytes = [0, 0b1_1111, 0b0_1010][dice.below(3) as usize];
        config.puts = [0, 0b1_1111][dice.below(2) as usize];
        config.in_place = dice.below(2) == 0;
        config.slots = config.slots_min();
        machine.start(config.clone(), u64::MAX).unwrap();
        let mut owed = Owed::default();
        for _ in 0..100 {
            while let Some(action) = machine.poll_action(&mut Any { frames: dice.below(9) > 0 }) {
                owed.take(&machine, &config, action);
            }
            match dice.below(4) {
                0 | 1 => arrive(&mut machine, &config, &mut dice, &mut owed),
                _ => owed.finish(&mut machine, &mut dice),
            }
        }
        machine.cancel();
        while machine.poll_action(&mut Any { frames: true }).is_some() {}
        match machine.status() {
            Status::Done => done += 1,
            Status::Failed(Abort::Protocol { rank }) => {
                assert!(rank < ranks && rank != config.rank);
                failed += 1;
            }
            Status::Failed(Abort::Cancelled { rank }) => assert_eq!(rank, config.rank),
            other => panic!("{other:?}"),
        }
    }
    println!("{done} done, {failed} failed");
    assert!(done > 1000 && failed > 10_000, "{done} done, {failed} failed");
}
