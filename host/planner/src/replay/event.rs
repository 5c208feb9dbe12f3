//! What happens while a call is played, in order of time.

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Event {
    /// A message's first byte comes to its receiver's port.
    Head { message: Message, last: f64 },
    /// All of it is there.
    Here(Message),
    /// The last byte of a message of this chunk has left.
    Left { from: usize, chunk: u64 },
    /// A fold or a copy is done.
    Done { member: usize, chunk: u64 },
}

/// A message on its way.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Message {
    pub from: usize,
    pub to: usize,
    pub bytes: f64,
    /// What the receiver may send from now on.
    pub limit: u64,
    /// Nothing, or a value of a chunk: is it the result?
    pub value: Option<(u64, bool)>,
}

/// Times are never negative, so their bits are in their order; then the order of making.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct At(pub u64, pub u64, pub Event);

impl Eq for At {}
impl Ord for At {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}
impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
