//! One chunk on one member: how far its route has come.

use heapless::Vec as Moves;
use unisono_core::route::{Move, Rank, Route};
use unisono_core::schedule::ROUTE_MAX;
use unisono_core::{DType, Kind, Layout, Schedule};

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Leaf,
    Partial,
    Result,
}

/// What a lane wants.
pub enum Next {
    /// Something to come.
    Wait,
    /// Nothing: go on.
    Step,
    /// Its value to be sent.
    Send(Rank),
    /// So many received leaves and partial sums to be folded.
    Fold(u32, u32),
    /// A result to be put in its place; has its sender folded a contribution of this member?
    Store { from: Rank, answered: bool },
}

/// A chunk's route on one member.
pub struct Lane {
    moves: Box<[Move]>,
    pc: usize,
    /// Sends of the current segment that are under way.
    issued: u128,
    /// Messages that have not left.
    pub unsent: u32,
    /// A fold or copy is under way; it ends here.
    busy: Option<usize>,
    form: Form,
    here: Vec<(Rank, bool)>,
    sent_to: Vec<Rank>,
}

impl Lane {
    pub fn new(schedule: &Schedule, layout: &Layout, chunk: u64, rank: Rank) -> Self {
        let mut moves: Moves<Move, ROUTE_MAX> = Moves::new();
        let mut route = Route::new(&mut moves);
        schedule.route(layout, chunk, rank, &mut route);
        let reduces = layout.kind.reduces() && layout.kind != Kind::Barrier;
        Self {
            moves: moves.iter().copied().collect(),
            pc: 0,
            issued: 0,
            unsent: 0,
            busy: None,
            form: if reduces { Form::Leaf } else { Form::Result },
            here: Vec::new(),
            sent_to: Vec::new(),
        }
    }

    /// Whom the route receives from.
    pub fn sources(&self) -> impl Iterator<Item = Rank> + '_ {
        self.moves.iter().filter_map(|m| match m {
            Move::Recv { from, .. } | Move::Store { from } => Some(*from),
            _ => None,
        })
    }

    pub fn arrived(&mut self, from: Rank, result: bool) {
        self.here.push((from, result));
    }

    pub fn is_result(&self) -> bool {
        self.form == Form::Result
    }

    pub fn is_done(&self) -> bool {
        self.pc == self.moves.len() && self.unsent == 0 && self.busy.is_none()
    }

    /// Bytes of an element of the value.
    pub fn bytes(&self, dtype: DType) -> f64 {
        (if self.form == Form::Partial { dtype.acc().size() } else { dtype.size() }) as f64
    }

    /// The fold or copy is done.
    pub fn finish(&mut self) {
        if let Some(end) = self.busy.take() {
            self.form = match self.moves.get(end.wrapping_sub(1)) {
                Some(Move::Fold { last: false }) => Form::Partial,
                _ => Form::Result,
            };
            self.pc = end;
        }
    }

    /// What comes next; `may` says whom it may send to.
    pub fn next(&mut self, may: impl Fn(Rank) -> bool) -> Next {
        if self.busy.is_some() {
            return Next::Wait;
        }
        match self.moves.get(self.pc) {
            None => Next::Wait,
            Some(Move::Send { .. }) => self.next_send(may),
            Some(Move::Store { from }) => {
                let from = *from;
                if !self.here.contains(&(from, true)) {
                    return Next::Wait;
                }
                self.busy = Some(self.pc + 1);
                Next::Store { from, answered: self.sent_to == [from] }
            }
            Some(_) => self.next_fold(),
        }
    }

    fn next_send(&mut self, may: impl Fn(Rank) -> bool) -> Next {
        let sends = self.moves[self.pc..].iter().map_while(|m| match m {
            Move::Send { to } => Some(*to),
            _ => None,
        });
        let mut count = 0;
        let mut open = false;
        for (i, to) in sends.enumerate() {
            count = i + 1;
            if self.issued >> i & 1 != 0 {
                continue;
            }
            if may(to) {
                self.issued |= 1 << i;
                self.unsent += 1;
                self.sent_to.push(to);
                return Next::Send(to);
            }
            open = true;
        }
        if open {
            return Next::Wait;
        }
        self.issued = 0;
        self.pc += count;
        Next::Step
    }

    /// Everything up to the next fold has to be here.
    fn next_fold(&mut self) -> Next {
        let (mut leaves, mut partials) = (0, 0);
        for (i, m) in self.moves.iter().enumerate().skip(self.pc) {
            match m {
                Move::Recv { from, .. } if !self.here.contains(&(*from, false)) => {
                    return Next::Wait;
                }
                Move::Recv { level: 0, .. } => leaves += 1,
                Move::Recv { .. } => partials += 1,
                Move::Fold { .. } => {
                    self.busy = Some(i + 1);
                    return Next::Fold(leaves, partials);
                }
                _ => {}
            }
        }
        Next::Wait
    }
}
