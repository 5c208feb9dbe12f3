//! One chunk in flight: its route, what has arrived for it and how far it has come.

use super::action::{Arrival, Place};
use super::config::RankSet;
use crate::fold::Form;
use crate::route::{Move, Rank};
use crate::wire::frame::Phase;
use heapless::Vec;

/// No arrival yet for a move.
const NONE: u8 = u8::MAX;

/// Accumulators of one fold whose sources do not all fit one pass: log2 of the group size.
pub(super) const ACCS_MAX: usize = 8;

/// The run of moves that a lane is working on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// Consecutive sends, in any order.
    Sends,
    /// Sources up to and including their `Fold`.
    Fold {
        /// Does it give the finished value?
        last: bool,
    },
    /// One `Store`.
    Store,
    /// The route is at its end.
    End,
}

/// A partial result of a fold: stands for the moves `lo..hi`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acc {
    pub lo: u16,
    pub hi: u16,
    pub slot: u8,
    pub level: u8,
}

/// What the device is doing for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job<M> {
    /// Nothing.
    None,
    /// Folding the moves `lo..hi` into `to`; `level` of the result.
    Fold { lo: u16, hi: u16, level: u8, whole: bool, to: Place<M> },
    /// Storing a received result.
    Store { to: Place<M> },
    /// Copying the value to a slot where peers can reach it.
    Stage { to: Place<M> },
    /// Moving the parked result from its slot to the output.
    Unpark,
    /// A peer has taken its memory back: the lane stands still until the call ends.
    Refused,
}

impl<M> Job<M> {
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

#[derive(Debug)]
pub(super) struct Lane<M, const R: usize> {
    pub chunk: u64,
    pub elems: u64,
    pub moves: Vec<Move, R>,
    at: [u8; R],
    pub inbox: Vec<Arrival<M>, R>,
    pub accs: Vec<Acc, ACCS_MAX>,
    pub pc: u16,
    pub end: u16,
    /// The sources of the fold that is under way or comes next.
    pub fold_lo: u16,
    pub fold_hi: u16,
    /// Arrivals that the current segment still lacks.
    pub waiting: u16,
    /// Sends of the current segment that have been issued: bit i is move `pc + i`.
    pub issued: u64,
    /// The current value; `None` for a member that has not got one yet.
    pub value: Option<(Place<M>, Form)>,
    /// The value is the finished one.
    pub finished: bool,
    /// The finished value waits in this slot until the input may be overwritten.
    pub parked: Option<u8>,
    /// Sends that are not completed, and those of them that read the input.
    pub unsent: u16,
    pub input_unsent: u16,
    /// Whom the sends that are not completed went to.
    pub unsent_to: RankSet,
    pub job: Job<M>,
    /// Number of this lane's first scratch slot.
    pub slot_base: u32,
    /// Scratch slots in use, bit k is slot k of this lane.
    pub slots: u32,
    /// Contributions by bytes: those of the whole route, those that have been granted a slot (in
    /// the order of the moves) and those whose slot is free again.
    pub by_bytes: u16,
    pub granted: u16,
    pub spent: u16,
    /// Slots that contributions may not take.
    pub reserve: u16,
}

impl<M: Copy, const R: usize> Lane<M, R> {
    pub const fn new() -> Self {
        Self {
            chunk: u64::MAX,
            elems: 0,
            moves: Vec::new(),
            at: [NONE; R],
            inbox: Vec::new(),
            accs: Vec::new(),
            pc: 0,
            end: 0,
            fold_lo: 0,
            fold_hi: 0,
            waiting: 0,
            issued: 0,
            value: None,
            finished: false,
            parked: None,
            unsent: 0,
            input_unsent: 0,
            unsent_to: 0,
            job: Job::None,
            slot_base: 0,
            slots: 0,
            by_bytes: 0,
            granted: 0,
            spent: 0,
            reserve: 0,
        }
    }

    /// Forgets everything but the route, which the caller has just written.
    pub fn open(&mut self, chunk: u64, elems: u64, value: Option<(Place<M>, Form)>) {
        self.chunk = chunk;
        self.elems = elems;
        self.at.iter_mut().take(self.moves.len()).for_each(|at| *at = NONE);
        self.inbox.clear();
        self.accs.clear();
        self.pc = 0;
        self.issued = 0;
        self.value = value;
        self.finished = false;
        self.parked = None;
        self.unsent = 0;
        self.input_unsent = 0;
        self.unsent_to = 0;
        self.job = Job::None;
        self.slots = 0;
        self.granted = 0;
        self.spent = 0;
        self.enter();
    }

    /// Nothing is left to do, to send or to wait for.
    pub fn is_done(&self) -> bool {
        usize::from(self.pc) == self.moves.len()
            && self.unsent == 0
            && self.job.is_none()
            && self.parked.is_none()
    }

    pub fn segment(&self) -> Segment {
        match self.moves.get(usize::from(self.pc)) {
            None => Segment::End,
            Some(Move::Send { .. }) => Segment::Sends,
            Some(Move::Store { .. }) => Segment::Store,
            Some(_) => {
                let last = matches!(self.moves.get(usize::from(self.end) - 1),
                    Some(Move::Fold { last }) if *last);
                Segment::Fold { last }
            }
        }
    }

    /// Goes on with the moves behind the current segment.
    pub fn advance(&mut self) {
        self.pc = self.end;
        self.enter();
    }

    fn enter(&mut self) {
        let rest = self.moves.get(usize::from(self.pc)..).unwrap_or_default();
        let len = match rest.first() {
            None => 0,
            // `issued` has 64 bits; a longer run of sends is worked on in pieces.
            Some(Move::Send { .. }) => {
                rest.iter().take(64).take_while(|m| matches!(m, Move::Send { .. })).count()
            }
            Some(Move::Store { .. }) => 1,
            Some(_) => rest
                .iter()
                .position(|m| matches!(m, Move::Fold { .. }))
                .map_or(rest.len(), |i| i + 1),
        };
        self.end = self.pc + len as u16;
        self.issued = 0;
        // Sources may be folded in part while what comes before them is still being sent.
        let source = |m: &Move| matches!(m, Move::Recv { .. } | Move::Own { .. });
        let lo = rest.iter().position(source).unwrap_or(0);
        let sources = rest.iter().skip(lo).take_while(|m| source(m)).count();
        self.fold_lo = self.pc + lo as u16;
        self.fold_hi = self.fold_lo + sources as u16;
        self.waiting = (usize::from(self.pc)..usize::from(self.end))
            .filter(|&i| {
                self.is_open(i)
                    && matches!(self.move_at(i), Some(Move::Recv { .. } | Move::Store { .. }))
            })
            .count() as u16;
    }

    /// The move that waits for a frame of this phase from this rank.
    pub fn expecting(&self, from: Rank, phase: Phase) -> Option<usize> {
        let want = |m: Move| match (phase, m) {
            (Phase::Contribution, Move::Recv { from: f, .. })
            | (Phase::Result, Move::Store { from: f }) => f == from,
            _ => false,
        };
        let first = usize::from(self.pc);
        (first..self.moves.len()).find(|&i| self.is_open(i) && self.move_at(i).is_some_and(want))
    }

    /// Notes that the frame for move `index` is here.
    pub fn arrive(&mut self, index: usize, arrival: Arrival<M>) {
        let place = self.inbox.len() as u8;
        if let Some(at) = self.at.get_mut(index)
            && self.inbox.push(arrival).is_ok()
        {
            *at = place;
            if index < usize::from(self.end) {
                self.waiting -= 1;
            }
        }
    }

    /// A move of the route.
    pub fn move_at(&self, index: usize) -> Option<Move> {
        self.moves.get(index).copied()
    }

    /// The moves from here on.
    pub fn from(&self, index: u16) -> &[Move] {
        self.moves.get(usize::from(index)..).unwrap_or_default()
    }

    /// Has nothing arrived for a move?
    fn is_open(&self, index: usize) -> bool {
        self.at.get(index) == Some(&NONE)
    }

    /// What has arrived for a move.
    pub fn arrival(&self, index: usize) -> Option<&Arrival<M>> {
        self.inbox.get(usize::from(*self.at.get(index)?))
    }

    pub fn arrival_mut(&mut self, index: usize) -> Option<&mut Arrival<M>> {
        self.inbox.get_mut(usize::from(*self.at.get(index)?))
    }

    /// May the result for move `index` come now? It is made of what this member has sent, so
    /// everything before it has been done.
    pub fn is_due(&self, index: usize) -> bool {
        let next = usize::from(self.end);
        index == usize::from(self.pc)
            || (index == next && self.segment() == Segment::Sends && self.all_issued())
    }

    pub fn all_issued(&self) -> bool {
        self.issued.count_ones() == u32::from(self.end - self.pc)
    }

    /// Whom the lane waits for, and with what: a frame to come, leave to send, or the completion of
    /// a send. `finished`: values of this call are results from the start.
    pub fn missing(&self, finished: bool) -> Option<(Rank, Phase)> {
        let phase = if finished || self.finished { Phase::Result } else { Phase::Contribution };
        let waits = (self.pc..self.end).find_map(|i| match self.move_at(usize::from(i))? {
            Move::Recv { from, .. } if self.is_open(usize::from(i)) => {
                Some((from, Phase::Contribution))
            }
            Move::Store { from } if self.is_open(usize::from(i)) => Some((from, Phase::Result)),
            Move::Send { to } if self.issued >> (i - self.pc) & 1 == 0 => Some((to, phase)),
            _ => None,
        });
        let held = (self.unsent_to != 0).then(|| (self.unsent_to.trailing_zeros() as Rank, phase));
        waits.or(held)
    }

    /// Is a move with this rank still to be made?
    pub fn needs(&self, rank: Rank) -> bool {
        let pc = usize::from(self.pc);
        (pc..).zip(self.from(self.pc)).any(|(i, m)| match *m {
            Move::Send { to } => {
                let issued = i < usize::from(self.end) && self.issued >> (i - pc) & 1 != 0;
                to == rank && !issued
            }
            Move::Recv { from, .. } | Move::Store { from } => {
                from == rank && self.arrival(i).is_none()
            }
            Move::Own { .. } | Move::Fold { .. } => false,
        })
    }

    /// Takes a free scratch slot.
    pub fn take_slot(&mut self, most: u8) -> Option<u8> {
        let k = (!self.slots).trailing_zeros() as u8;
        (k < most).then(|| {
            self.slots |= 1 << k;
            k
        })
    }

    pub fn free_slot(&mut self, k: u8) {
        self.slots &= !(1 << k);
    }
}
