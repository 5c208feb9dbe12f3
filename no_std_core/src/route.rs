//! Routes: the straight-line program that one rank runs for one chunk.

use heapless::vec::VecView;

/// Index of a member in its group. Data ranks come first (0..N), aggregators without data after.
pub type Rank = u16;

/// One move of a route.
///
/// A rank's *value* for a chunk starts as its own contribution. `Recv`, `Own` and `Fold` replace it
/// by a fold of several values, `Store` by a received finished value; `Send` hands it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// Send the current value to a rank.
    Send {
        /// The receiver.
        to: Rank,
    },
    /// A value from a rank takes the next place in the coming fold.
    Recv {
        /// The sender.
        from: Rank,
        /// Nominal level: the value covers an aligned block of `2^level` leaves.
        level: u8,
    },
    /// The rank's own current value takes the next place in the coming fold.
    Own {
        /// Nominal level, as in [`Move::Recv`].
        level: u8,
    },
    /// Fold everything since the last fold, in the order of the moves; levels say which pairs merge
    /// first (equal levels merge, as in a binary counter). The result is the new value.
    Fold {
        /// Is this the finished value of the chunk (round, divide, write to the output)?
        last: bool,
    },
    /// Receive the finished value; it goes to the output and becomes the current value.
    Store {
        /// The sender.
        from: Rank,
    },
}

/// Where a schedule writes a route; remembers if the storage was too short.
#[derive(Debug)]
pub struct Route<'a> {
    moves: &'a mut VecView<Move>,
    overflow: bool,
}

impl<'a> Route<'a> {
    /// An empty route over the caller's storage.
    pub fn new(moves: &'a mut VecView<Move>) -> Self {
        moves.clear();
        Self { moves, overflow: false }
    }

    /// Did a move not fit?
    #[must_use]
    pub const fn overflowed(&self) -> bool {
        self.overflow
    }

    /// The moves so far.
    #[must_use]
    pub fn moves(&self) -> &[Move] {
        self.moves
    }

    fn push(&mut self, m: Move) {
        self.overflow |= self.moves.push(m).is_err();
    }

    /// Appends [`Move::Send`].
    pub fn send(&mut self, to: Rank) {
        self.push(Move::Send { to });
    }

    /// Appends [`Move::Recv`].
    pub fn recv(&mut self, from: Rank, level: u8) {
        self.push(Move::Recv { from, level });
    }

    /// Appends [`Move::Own`].
    pub fn own(&mut self, level: u8) {
        self.push(Move::Own { level });
    }

    /// Appends an intermediate fold: its result travels on as a partial sum.
    pub fn fold(&mut self) {
        self.push(Move::Fold { last: false });
    }

    /// Appends the last fold: its result is the finished value.
    pub fn finish(&mut self) {
        self.push(Move::Fold { last: true });
    }

    /// Appends [`Move::Store`].
    pub fn store(&mut self, from: Rank) {
        self.push(Move::Store { from });
    }
}
