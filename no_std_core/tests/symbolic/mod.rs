//! A small world that runs the routes of all members of a group symbolically.
//!
//! Values are expressions over the ranks' contributions, so "each contribution exactly once" and
//! "exactly the canonical tree" are statements about structure, not about numbers.

use std::collections::HashMap;
use unisono_core::schedule::{Flow, Owners, ROUTE_MAX, Schedule, Tally};
use unisono_core::{Form, Kind, Layout, Move, Rank, Route};

/// Expressions by number: leaf `r` is the contribution of rank `r`; equal trees (up to the order of
/// the two sides of a node) have equal numbers.
pub struct Exprs {
    sums: HashMap<(u32, u32), u32>,
    ranks: Vec<u128>,
}

impl Exprs {
    pub fn new() -> Self {
        Self { sums: HashMap::new(), ranks: (0..128).map(|r| 1 << r).collect() }
    }

    /// The ranks whose contributions are in an expression.
    pub fn ranks(&self, expr: u32) -> u128 {
        self.ranks[expr as usize]
    }

    /// The sum of two expressions; an error if a contribution is in both.
    pub fn sum(&mut self, a: u32, b: u32) -> Result<u32, String> {
        let (left, right) = (self.ranks(a), self.ranks(b));
        if left & right != 0 {
            return Err(format!("contributions {:b} are added twice", left & right));
        }
        let next = self.ranks.len() as u32;
        let id = *self.sums.entry((a.min(b), a.max(b))).or_insert(next);
        if id == next {
            self.ranks.push(left | right);
        }
        Ok(id)
    }

    /// The canonical tree over `low..high`, straight from its definition.
    pub fn canonical(&mut self, low: u32, high: u32) -> u32 {
        let len = high - low;
        if len == 1 {
            return low;
        }
        let split = low + len.next_power_of_two() / 2;
        let (left, right) = (self.canonical(low, split), self.canonical(split, high));
        self.sum(left, right).unwrap()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Value {
    expr: u32,
    form: Form,
    /// Transfers on the longest path so far.
    time: u32,
}

#[derive(Default)]
struct Member {
    at: usize,
    value: Option<Value>,
    stack: Vec<(u32, u8)>,
    sources: u16,
    depth: usize,
    time: u32,
    result: Option<u32>,
}

/// What a chunk did.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The finished expression of each member that has one.
    pub results: Vec<Option<u32>>,
    /// Transfers on the longest path.
    pub steps: u32,
    /// Most sources folded at once.
    pub fan_in: u16,
    /// Most accumulators that a fold needs at once.
    pub depth: usize,
}

/// The routes of all members for one chunk.
pub fn routes(schedule: &Schedule, layout: &Layout, chunk: u64) -> Vec<Vec<Move>> {
    let members = schedule.members(layout.ranks);
    (0..members).map(|rank| route(schedule, layout, chunk, rank)).collect()
}

/// One member's route.
pub fn route(schedule: &Schedule, layout: &Layout, chunk: u64, rank: Rank) -> Vec<Move> {
    let mut moves = heapless::Vec::<Move, ROUTE_MAX>::new();
    let mut route = Route::new(&mut moves);
    schedule.route(layout, chunk, rank, &mut route);
    assert!(!route.overflowed());
    moves.to_vec()
}

/// What the routes move, counted at the senders.
pub fn count(layout: &Layout, routes: &[Vec<Move>]) -> Vec<Flow> {
    let mut flows = vec![Flow::NONE; routes.len()];
    for (rank, moves) in routes.iter().enumerate() {
        let mut form = if layout.kind.reduces() { Form::Leaf } else { Form::Final };
        for m in moves {
            match *m {
                Move::Send { to } => {
                    *tally(&mut flows[rank].sent, form) += 1;
                    *tally(&mut flows[usize::from(to)].received, form) += 1;
                }
                Move::Fold { last: false } => form = Form::Partial,
                Move::Fold { last: true } | Move::Store { .. } => form = Form::Final,
                Move::Recv { .. } | Move::Own { .. } => {}
            }
        }
    }
    flows
}

fn tally(tally: &mut Tally, form: Form) -> &mut u32 {
    match form {
        Form::Leaf => &mut tally.leaf,
        Form::Partial => &mut tally.partial,
        Form::Final => &mut tally.last,
    }
}

/// Runs one chunk alone; `pick` chooses which of the members that can move does.
pub fn run(
    layout: &Layout,
    chunk: u64,
    routes: &[Vec<Move>],
    exprs: &mut Exprs,
    mut pick: impl FnMut(&[usize]) -> usize,
) -> Result<Outcome, String> {
    let mut world = World::new(layout, chunk, routes);
    loop {
        let ready: Vec<usize> = (0..routes.len()).filter(|&r| world.enabled(r)).collect();
        if ready.is_empty() {
            break;
        }
        let rank = ready[pick(&ready) % ready.len()];
        world.step(rank, exprs).map_err(|e| format!("rank {rank}: {e}"))?;
    }
    world.finish(layout, chunk, exprs)
}

struct World<'a> {
    routes: &'a [Vec<Move>],
    reduces: bool,
    members: Vec<Member>,
    /// In flight, by sender, receiver, and whether it is a result.
    wires: HashMap<(usize, usize, bool), Value>,
    used: Vec<(usize, usize, bool)>,
    steps: u32,
    fan_in: u16,
}

impl<'a> World<'a> {
    fn new(layout: &Layout, chunk: u64, routes: &'a [Vec<Move>]) -> Self {
        let form = if layout.kind.reduces() { Form::Leaf } else { Form::Final };
        let member = |rank| {
            let has = layout.input(chunk, rank as Rank).is_some();
            let value = has.then_some(Value { expr: rank as u32, form, time: 0 });
            Member { value, ..Member::default() }
        };
        Self {
            routes,
            reduces: layout.kind.reduces(),
            members: (0..routes.len()).map(member).collect(),
            wires: HashMap::new(),
            used: Vec::new(),
            steps: 0,
            fan_in: 0,
        }
    }

    fn enabled(&self, rank: usize) -> bool {
        match self.routes[rank].get(self.members[rank].at) {
            None => false,
            Some(&Move::Recv { from, .. }) => {
                self.wires.contains_key(&(usize::from(from), rank, false))
            }
            Some(&Move::Store { from }) => {
                self.wires.contains_key(&(usize::from(from), rank, true))
            }
            Some(_) => true,
        }
    }

    fn step(&mut self, rank: usize, exprs: &mut Exprs) -> Result<(), String> {
        let mv = self.routes[rank][self.members[rank].at];
        self.members[rank].at += 1;
        match mv {
            Move::Send { to } => self.send(rank, usize::from(to)),
            Move::Recv { from, level } => {
                let value = self.take(usize::from(from), rank, false)?;
                self.members[rank].push(value, level, exprs)
            }
            Move::Own { level } => {
                let value = self.members[rank].value.ok_or("no value of its own")?;
                if self.reduces && value.form == Form::Final {
                    return Err("a finished value goes into a fold".into());
                }
                self.members[rank].push(value, level, exprs)
            }
            Move::Fold { last } => {
                let sources = self.members[rank].fold(last, exprs)?;
                self.fan_in = self.fan_in.max(sources);
                Ok(())
            }
            Move::Store { from } => {
                let value = self.take(usize::from(from), rank, true)?;
                self.members[rank].set_result(value)
            }
        }
    }

    fn send(&mut self, rank: usize, to: usize) -> Result<(), String> {
        let member = &self.members[rank];
        let mut value = member.value.ok_or("sends, but has no value")?;
        if !member.stack.is_empty() || to == rank || to >= self.routes.len() {
            return Err(format!("sends to {to} in the middle of a fold, or to nobody"));
        }
        value.time += 1;
        let key = (rank, to, value.form == Form::Final);
        if self.used.contains(&key) {
            return Err(format!("sends twice to {to}"));
        }
        self.used.push(key);
        self.wires.insert(key, value);
        Ok(())
    }

    fn take(&mut self, from: usize, to: usize, result: bool) -> Result<Value, String> {
        let value = self.wires.remove(&(from, to, result)).ok_or("nothing there")?;
        self.steps = self.steps.max(value.time);
        Ok(value)
    }

    /// Checks what must hold when nobody can move any more.
    fn finish(self, layout: &Layout, chunk: u64, exprs: &Exprs) -> Result<Outcome, String> {
        let inputs = (0..layout.ranks).filter(|&r| layout.input(chunk, r).is_some());
        let all: u128 = inputs.map(|r| 1u128 << r).sum();
        let mut first = None;
        for (rank, member) in self.members.iter().enumerate() {
            if member.at < self.routes[rank].len() || !member.stack.is_empty() {
                return Err(format!("rank {rank} is stuck at move {}", member.at));
            }
            let wants = layout.output(chunk, rank as Rank).is_some();
            if rank < usize::from(layout.ranks) && wants != member.result.is_some() {
                return Err(format!("rank {rank} wants a result: {wants}"));
            }
            let Some(expr) = member.result else { continue };
            if exprs.ranks(expr) != all {
                return Err(format!("rank {rank} has {:b}", exprs.ranks(expr)));
            }
            if *first.get_or_insert(expr) != expr {
                return Err(format!("rank {rank} has other bits than the ranks before"));
            }
        }
        if let Some((key, _)) = self.wires.iter().next() {
            return Err(format!("{key:?} is never received"));
        }
        let results = self.members.iter().map(|m| m.result).collect();
        let depth = self.members.iter().map(|m| m.depth).max().unwrap_or(0);
        Ok(Outcome { results, steps: self.steps, fan_in: self.fan_in, depth })
    }
}

impl Member {
    fn push(&mut self, value: Value, level: u8, exprs: &mut Exprs) -> Result<(), String> {
        let (mut expr, mut level) = (value.expr, level);
        while let Some(&(below, top)) = self.stack.last() {
            if top > level {
                break;
            }
            self.stack.pop();
            expr = exprs.sum(below, expr)?;
            level += 1;
        }
        self.stack.push((expr, level));
        self.depth = self.depth.max(self.stack.len());
        self.sources += 1;
        self.time = self.time.max(value.time);
        Ok(())
    }

    fn fold(&mut self, last: bool, exprs: &mut Exprs) -> Result<u16, String> {
        let (mut expr, _) = self.stack.pop().ok_or("folds nothing")?;
        while let Some((below, _)) = self.stack.pop() {
            expr = exprs.sum(below, expr)?;
        }
        let sources = std::mem::take(&mut self.sources);
        if !last && sources < 2 {
            return Err("folds one value, which needs no fold".into());
        }
        let form = if last { Form::Final } else { Form::Partial };
        let value = Value { expr, form, time: std::mem::take(&mut self.time) };
        if last {
            return self.set_result(value).map(|()| sources);
        }
        self.value = Some(value);
        Ok(sources)
    }

    fn set_result(&mut self, value: Value) -> Result<(), String> {
        if self.result.replace(value.expr).is_some() || !self.stack.is_empty() {
            return Err("has two results, or one in the middle of a fold".into());
        }
        self.value = Some(value);
        Ok(())
    }
}

/// A layout for the tests.
pub fn layout(kind: Kind, ranks: u16, root: Rank, count: u64, chunk: u64) -> Layout {
    Layout { kind, ranks, count, chunk, root }
}

/// xorshift64: the tests' seeded choice.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize
    }
}

/// The world must notice what it is there for.
#[test]
fn broken_routes_are_noticed() {
    let layout = layout(Kind::AllReduce, 3, 0, 3, 1);
    let good = routes(&Schedule::Direct(Owners::equal(3).unwrap()), &layout, 0);
    let mut exprs = Exprs::new();
    assert!(run(&layout, 0, &good, &mut exprs, |_| 0).is_ok());
    // Every move of every route is needed.
    for rank in 0..3 {
        for at in 0..good[rank].len() {
            let mut bad = good.clone();
            let gone = bad[rank].remove(at);
            assert!(run(&layout, 0, &bad, &mut exprs, |_| 0).is_err(), "{rank} without {gone:?}");
        }
    }
    let with = |rank: usize, at: usize, mv| {
        let mut bad = good.clone();
        bad[rank].insert(at, mv);
        bad
    };
    let bad = [
        (with(1, 0, Move::Send { to: 0 }), "twice"),
        (with(1, 1, Move::Send { to: 2 }), "never received"),
        (with(0, 0, Move::Own { level: 0 }), "added twice"),
        (with(0, 4, Move::Recv { from: 1, level: 0 }), "stuck"),
        (with(2, 0, Move::Fold { last: true }), "folds nothing"),
        (with(2, 2, Move::Own { level: 0 }), "finished"),
    ];
    for (routes, why) in bad {
        let error = run(&layout, 0, &routes, &mut exprs, |_| 0).unwrap_err();
        assert!(error.contains(why), "{error} instead of {why}");
    }
}
