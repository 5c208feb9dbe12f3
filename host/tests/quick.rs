//! All-reduces of one step or two that begin without a machine: members are driven by hand, in
//! orders that a seed decides, so that machines take over at every point.

use unisono_core::machine::Config;
use unisono_core::schedule::Owners;
use unisono_core::wire::frame::Abort;
use unisono_core::{DType, Kind, Layout, ReduceOp, Scalar, Schedule};
use unisono_device_cpu::CpuDevice;
use unisono_driver::{Copy, Device, DeviceCaps, Done, Fold, HostMemory, HostPtr, Token};
use unisono_link_span::{SpanLink, fabric};
use unisono_runtime::{Buffers, Call, Engine, Quick};

type Member = Engine<Here, SpanLink<HostPtr>, 4, 16, 40, 16>;

/// A CPU, perhaps with tensors that peers do not reach, as those of other processes.
struct Here {
    cpu: CpuDevice,
    private: Option<[*mut f32; 2]>,
}

impl Device for Here {
    type Mem = HostPtr;
    type Error = <CpuDevice as Device>::Error;

    fn caps(&self) -> DeviceCaps {
        self.cpu.caps()
    }

    fn has_room(&self) -> bool {
        self.cpu.has_room()
    }

    unsafe fn fold(&mut self, work: &Fold<'_, HostPtr>, token: Token) -> Result<(), Self::Error> {
        // SAFETY: the caller's promise.
        unsafe { self.cpu.fold(work, token) }
    }

    unsafe fn copy(&mut self, work: &Copy<HostPtr>, token: Token) -> Result<(), Self::Error> {
        // SAFETY: the caller's promise.
        unsafe { self.cpu.copy(work, token) }
    }

    fn is_shared(&self, mem: HostPtr) -> bool {
        let at = mem.as_ptr().cast();
        !self.private.is_some_and(|[start, end]| (start..end).contains(&at))
    }

    fn poll_done(&mut self) -> Option<Done<Self::Error>> {
        self.cpu.poll_done()
    }
}

/// Elements that a tensor has room for.
const ROOM: usize = 1024;
/// Elements of scratch memory.
const SCRATCH: usize = 16 << 10;
/// Rounds in which members that have all they need have long done it.
const ROUNDS: usize = 10_000;

/// Numbers from a seed (xorshift64, Marsaglia 2003).
struct Dice(u64);

impl Dice {
    const fn seeded(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    const fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }
}

/// What is called.
#[derive(Clone, Copy, Debug)]
struct Shape {
    ranks: usize,
    /// Elements of a tensor; in two steps the last rank's chunk is shorter.
    count: usize,
    one_shot: bool,
    in_place: bool,
    /// Peers do not reach the tensors.
    private: bool,
}

impl Shape {
    const fn drawn(dice: &mut Dice, ranks: usize) -> Self {
        let one_shot = dice.below(2) == 0;
        let count = if one_shot { 100 } else { 1001 };
        let private = dice.below(2) == 0;
        Self { ranks, count, one_shot, in_place: dice.below(2) == 0, private }
    }

    /// Where the output begins in a tensor.
    const fn output(self) -> usize {
        if self.in_place { 0 } else { ROOM }
    }
}

/// A group whose members are driven by one thread.
struct Group {
    shape: Shape,
    members: Vec<Option<Member>>,
    calls: Vec<Call<HostPtr>>,
    tensors: Vec<Vec<f32>>,
    /// What the last call of each member has come to.
    states: Vec<State>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Idle,
    Running(u64),
    Over(Result<(), Abort>),
}

impl Group {
    fn new(shape: Shape) -> Self {
        let mut tensors = vec![vec![0f32; 2 * ROOM + SCRATCH]; shape.ranks];
        let ends = (0..).zip(fabric(shape.ranks, 4, 16)).zip(&mut tensors);
        let (members, calls) = ends
            .map(|((rank, (links, _)), tensor)| {
                let input = tensor.as_mut_ptr();
                let private = shape.private.then_some([input, input.wrapping_add(2 * ROOM)]);
                let here = Here { cpu: CpuDevice::new(), private };
                let member = Engine::new(rank, 0, here, links.into_iter().collect());
                let call = call(&member, shape, input);
                (Some(member), call)
            })
            .unzip();
        let states = vec![State::Idle; shape.ranks];
        Self { shape, members, calls, tensors, states }
    }

    fn fill(&mut self, round: usize) {
        for (rank, tensor) in self.tensors.iter_mut().enumerate() {
            tensor[self.shape.count..].fill(-1.0);
            for (i, x) in tensor.iter_mut().take(self.shape.count).enumerate() {
                *x = (i % 97) as f32 + 1000.0 * rank as f32 + round as f32;
            }
        }
        self.states.fill(State::Idle);
    }

    /// Is a member's result right?
    fn is_right(&self, rank: usize, round: usize) -> bool {
        let Shape { ranks, count, .. } = self.shape;
        let output = self.tensors[rank][self.shape.output()..].iter().take(count);
        // Exact in f32.
        let all: usize = (0..ranks).map(|rank| 1000 * rank + round).sum();
        (0..).zip(output).all(|(i, x)| *x == (i % 97 * ranks + all) as f32)
    }

    /// Polls a member, if it is there and in a call.
    fn poll(&mut self, rank: usize) {
        let Some(member) = &mut self.members[rank] else { return };
        if let State::Running(call) = self.states[rank] {
            member.poll();
            if let Some(result) = member.result(call) {
                self.states[rank] = State::Over(result);
            }
        }
    }

    /// Begins the call of a member; in between others are polled or begin theirs.
    fn begin(&mut self, rank: usize, dice: &mut Dice, counts: &mut [u32; 3]) {
        let mut member = self.members[rank].take().expect("it is not at it");
        let mut call = self.calls[rank].clone();
        assert!(member.is_quick(&call.config), "one step or two, all in memory");
        let print = call.config.fingerprint();
        let (mut looks, patience) = (0, dice.below(12));
        let wait = || {
            looks += 1;
            let other = dice.below(self.states.len());
            let idle = self.states[other] == State::Idle && self.members[other].is_some();
            if idle && dice.below(2) == 0 {
                self.begin(other, dice, counts);
            } else {
                self.poll(other);
            }
            looks < patience
        };
        // SAFETY: the tensors outlive the calls, and one thread uses them.
        let begun = unsafe { member.quick(&mut call, &print, wait) };
        self.states[rank] = match begun {
            Ok(Quick::Done) => {
                counts[0] += 1;
                State::Over(Ok(()))
            }
            Ok(Quick::Begun(op)) => {
                counts[1] += 1;
                State::Running(op)
            }
            Ok(Quick::No) => {
                counts[2] += 1;
                // SAFETY: as above.
                State::Running(unsafe { member.begin(&mut call) }.expect("a channel"))
            }
            Err(error) => panic!("{error}"),
        };
        self.members[rank] = Some(member);
    }

    /// Begins the call of a member, or polls it.
    fn step(&mut self, rank: usize, dice: &mut Dice, counts: &mut [u32; 3]) {
        match self.states[rank] {
            State::Idle => self.begin(rank, dice, counts),
            _ => self.poll(rank),
        }
    }

    fn all_over(&self) -> bool {
        self.states.iter().all(|state| matches!(state, State::Over(_)))
    }
}

fn call(member: &Member, shape: Shape, tensor: *mut f32) -> Call<HostPtr> {
    let Shape { ranks, count, one_shot, in_place, private } = shape;
    let schedule = if one_shot {
        Schedule::OneShot
    } else {
        Schedule::Direct(Owners::equal(ranks as u16).expect("ranks"))
    };
    let chunk = if one_shot { count } else { count.div_ceil(ranks) } as u64;
    let kind = Kind::AllReduce;
    let mut config = Config {
        epoch: 0,
        op_id: 0,
        rank: 0,
        schedule_print: schedule.fingerprint(),
        schedule,
        layout: Layout { kind, ranks: ranks as u16, count: count as u64, chunk, root: 0 },
        dtype: DType::F32,
        op: Some(ReduceOp::Sum),
        weight: Scalar::one(DType::F32),
        window: 16,
        eager: 16,
        slots: 0,
        by_bytes: 0,
        puts: 0,
        in_place,
        input_private: private,
        output_private: private,
        sources_max: 0,
        dests_max: 0,
        deadline: None,
    };
    member.fit(&mut config).expect("a call that can run");
    let lanes = config.layout.chunks();
    let scratch = config.slot_bytes() * u64::from(config.slots) * lanes;
    assert!(scratch <= 4 * SCRATCH as u64, "it fits");
    let at = |index| HostPtr::new(tensor.wrapping_add(index).cast());
    let buffers = Buffers { input: at(0), output: at(shape.output()), scratch: at(2 * ROOM) };
    Call { config, buffers, source_ready: u64::MAX }
}

#[test]
fn machines_take_over_at_any_point() {
    let mut counts = [0; 3];
    for seed in 0..400u64 {
        let mut dice = Dice::seeded(seed);
        let ranks = 2 + dice.below(4);
        let shape = Shape::drawn(&mut dice, ranks);
        let mut group = Group::new(shape);
        // More calls than channels, and than frames in a ring.
        for round in 0..30 {
            group.fill(round);
            let mut steps = 0;
            while !group.all_over() {
                let rank = dice.below(ranks);
                group.step(rank, &mut dice, &mut counts);
                steps += 1;
                assert!(steps < ROUNDS, "seed {seed}, round {round}: {:?}", group.states);
            }
            for rank in 0..ranks {
                assert_eq!(group.states[rank], State::Over(Ok(())), "seed {seed}, round {round}");
                assert!(group.is_right(rank, round), "seed {seed}, round {round}: {shape:?}");
            }
        }
    }
    let [done, begun, refused] = counts;
    assert!(done > 1000 && begun > 1000, "{done} without a machine, {begun} handed over");
    assert_eq!(refused, 0, "one call at a time");
}

#[test]
fn a_member_that_gives_up_in_mid_call_ends_it_for_all() {
    let mut ended = [0; 2];
    for seed in 0..2000u64 {
        let mut dice = Dice::seeded(seed);
        let ranks = 2 + dice.below(3);
        let shape = Shape::drawn(&mut dice, ranks);
        let mut group = Group::new(shape);
        group.fill(0);
        let gives_up = dice.below(ranks);
        let (mut steps, mut when) = (0, dice.below(8));
        let mut taken = false;
        while !group.all_over() {
            let rank = dice.below(ranks);
            match group.states[rank] {
                State::Idle => group.begin(rank, &mut dice, &mut [0; 3]),
                State::Running(op) if rank == gives_up && when == 0 => {
                    group.members[rank].as_mut().expect("a member").cancel(op);
                    group.poll(rank);
                }
                _ => group.poll(rank),
            }
            when = usize::saturating_sub(when, 1);
            if !taken && matches!(group.states[gives_up], State::Over(Err(_))) {
                // Its tensor is its own again, whatever the others still do.
                group.tensors[gives_up].fill(f32::MIN);
                taken = true;
            }
            steps += 1;
            assert!(steps < ROUNDS, "seed {seed}: {:?}", group.states);
        }
        if taken {
            ended[0] += 1;
            let kept = group.tensors[gives_up].iter().all(|x| *x == f32::MIN);
            assert!(kept, "seed {seed}: written after it was given back");
        } else {
            ended[1] += 1;
        }
        for rank in (0..ranks).filter(|rank| group.states[*rank] == State::Over(Ok(()))) {
            assert!(group.is_right(rank, 0), "seed {seed}: a result that is none");
        }
    }
    assert!(ended.iter().all(|count| *count > 100), "given up and not: {ended:?}");
}

/// Whoever comes to a call late hears why it was given up, also from a member that has left since.
#[test]
fn who_has_left_has_said_why() {
    let mut heard = 0;
    for seed in 0..1000u64 {
        let mut dice = Dice::seeded(seed);
        let ranks = 2 + dice.below(3);
        let mut group = Group::new(Shape::drawn(&mut dice, ranks));
        group.fill(0);
        let gone = dice.below(ranks);
        group.begin(gone, &mut dice, &mut [0; 3]);
        let State::Running(op) = group.states[gone] else { continue };
        let others: Vec<_> = (0..ranks).filter(|rank| *rank != gone).collect();
        group.members[gone].as_mut().expect("a member").cancel(op);
        let mut steps = 0;
        while group.states.contains(&State::Running(op)) || group.states.contains(&State::Idle) {
            let over = matches!(group.states[gone], State::Over(_));
            if over {
                group.members[gone] = None;
            }
            let rank = if over { others[dice.below(others.len())] } else { gone };
            group.step(rank, &mut dice, &mut [0; 3]);
            steps += 1;
            assert!(steps < ROUNDS, "seed {seed}: {:?}", group.states);
        }
        let why = State::Over(Err(Abort::Cancelled { rank: gone as u16 }));
        for rank in (0..ranks).filter(|rank| group.states[*rank] != why) {
            // It had all it needed.
            assert_eq!(group.states[rank], State::Over(Ok(())), "seed {seed}");
            assert!(group.is_right(rank, 0), "seed {seed}: a result that is none");
        }
        heard += group.states.iter().filter(|state| **state == why).count();
    }
    assert!(heard > 600, "{heard} have heard");
}

/// Whoever is in the next call already hears why a member that has left gave up the one before.
#[test]
fn who_has_left_an_earlier_call_has_said_why() {
    let mut heard = 0;
    for seed in 0..4000u64 {
        let mut dice = Dice::seeded(seed);
        let mut group = Group::new(Shape::drawn(&mut dice, 3));
        group.fill(0);
        let [gone, stays, stopped] = [[0, 1, 2], [1, 2, 0], [2, 0, 1]][dice.below(3)];
        for _ in 0..dice.below(12) {
            let rank = dice.below(3);
            group.step(rank, &mut dice, &mut [0; 3]);
        }
        let State::Running(op) = group.states[gone] else { continue };
        if group.states[stays] != State::Over(Ok(())) {
            continue;
        }
        group.members[gone].as_mut().expect("a member").cancel(op);
        while group.states[gone] == State::Running(op) {
            group.poll(gone);
        }
        group.members[gone] = None;
        // It neither ends nor answers.
        let _stopped = group.members[stopped].take();
        group.begin(stays, &mut dice, &mut [0; 3]);
        (0..ROUNDS).for_each(|_| group.poll(stays));
        let why = State::Over(Err(Abort::Cancelled { rank: gone as u16 }));
        assert_eq!(group.states[stays], why, "seed {seed}");
        heard += 1;
    }
    assert!(heard > 100, "{heard} have heard");
}
