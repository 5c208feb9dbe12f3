//! What a machine has to know before it starts, and the checks on it.

use crate::dtype::{DType, ReduceOp, Scalar};
use crate::fold::Form;
use crate::layout::{Kind, Layout};
use crate::route::Rank;
use crate::schedule::{MEMBERS_MAX, Schedule};
use crate::time::Instant;
use crate::wire::frame::Fingerprint;

/// A set of ranks: bit r is rank r.
pub type RankSet = u128;

/// One call of one collective, seen from one member.
#[derive(Clone, Debug)]
pub struct Config {
    /// Epoch of the group: frames of another epoch never change state.
    pub epoch: u32,
    /// Sequence number of the call; the same on every member.
    pub op_id: u64,
    /// This member.
    pub rank: Rank,
    /// Who does what for which chunk.
    pub schedule: Schedule,
    /// [`Schedule::fingerprint`] of it, which is worth computing once for many calls.
    pub schedule_print: u64,
    /// How the call is cut into chunks.
    pub layout: Layout,
    /// Element type.
    pub dtype: DType,
    /// Operator, for collectives that reduce.
    pub op: Option<ReduceOp>,
    /// This rank's `PreMulSum` weight.
    pub weight: Scalar,
    /// Most chunks in flight; at most the machine's `W`.
    pub window: u16,
    /// Chunks that a peer may send before it has heard of a limit; the same on every member.
    pub eager: u64,
    /// Scratch slots that each chunk in flight may use (accumulators and received contributions).
    pub slots: u8,
    /// Peers whose contributions arrive as bytes and so need a slot; the others' are read in place.
    pub by_bytes: RankSet,
    /// Peers that can write a result straight into this member's memory.
    pub puts: RankSet,
    /// Input and output are the same buffer (each chunk at the same place).
    pub in_place: bool,
    /// Peers cannot reach the input where it is, as in memory of a GPU: a chunk of it is copied to
    /// a scratch slot before it is sent.
    pub input_private: bool,
    /// The same for the output. Nobody else can write into it either.
    pub output_private: bool,
    /// Most sources of one fold on this member's device.
    pub sources_max: u16,
    /// Most destinations of one fold on this member's device.
    pub dests_max: u16,
    /// When to give the call up.
    pub deadline: Option<Instant>,
}

/// A configuration that cannot run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ConfigError {
    /// The group is larger than the machine's storage, or empty.
    #[error("a group of {members} members does not fit this build (1..={most})")]
    Members {
        /// Members asked for.
        members: u16,
        /// Most that fit.
        most: u16,
    },
    /// The rank is not a member.
    #[error("rank {rank} is not one of {members} members")]
    Rank {
        /// The rank.
        rank: Rank,
        /// Members of the group.
        members: u16,
    },
    /// The root is not a rank with data.
    #[error("root {root} is not one of {ranks} ranks")]
    Root {
        /// The root.
        root: Rank,
        /// Ranks with data.
        ranks: u16,
    },
    /// The schedule has no routes for this collective.
    #[error("schedule {schedule} cannot do {kind} over {ranks} ranks")]
    Schedule {
        /// Name of the schedule.
        schedule: &'static str,
        /// The collective.
        kind: Kind,
        /// Ranks with data.
        ranks: u16,
    },
    /// The operator does not exist for the type, or is missing or superfluous.
    #[error("{} does not fit {kind} of {dtype}", Named(*op))]
    Op {
        /// The operator.
        op: Option<ReduceOp>,
        /// The collective.
        kind: Kind,
        /// The element type.
        dtype: DType,
    },
    /// Window or chunk of 0, or a window larger than the machine's storage.
    #[error("window of {window} chunks does not fit this build (1..={most})")]
    Window {
        /// Window asked for.
        window: u16,
        /// Most that fit.
        most: u16,
    },
    /// Peers may send chunks before this member has room for them.
    #[error("{eager} eager chunks need a window as large")]
    Eager {
        /// Eager chunks asked for.
        eager: u64,
    },
    /// A chunk of 0 elements, or one whose bytes do not fit a frame.
    #[error("a chunk of {chunk} elements is not possible")]
    Chunk {
        /// Elements asked for.
        chunk: u64,
    },
    /// The bytes of the call, or its chunks, cannot be numbered with 64 bits.
    #[error("a count of {count} elements is too large")]
    Count {
        /// Count asked for.
        count: u64,
    },
    /// A route is longer than the machine's storage.
    #[error("schedule {schedule} needs routes of more than {most} moves here")]
    RouteTooLong {
        /// Name of the schedule.
        schedule: &'static str,
        /// Most moves that fit.
        most: usize,
    },
    /// Too few scratch slots a chunk.
    #[error("{slots} scratch slots a chunk are too few, {least} are needed")]
    Slots {
        /// Slots given.
        slots: u8,
        /// Slots needed.
        least: u8,
    },
    /// The device takes fewer than two sources or no destination.
    #[error("the device cannot fold two sources into one destination")]
    Device,
    /// In place all-to-all would overwrite blocks that are still to be sent.
    #[error("{kind} in place is not possible")]
    InPlace {
        /// The collective.
        kind: Kind,
    },
}

/// An operator in an error, or the lack of one.
struct Named(Option<ReduceOp>);

impl core::fmt::Display for Named {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            Some(op) => write!(f, "operator {op}"),
            None => f.write_str("a call without an operator"),
        }
    }
}

impl Config {
    /// What all members have to agree on.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let words = [self.layout.chunk, self.eager, u64::from(self.layout.ranks)];
        let plan = words.into_iter().fold(self.schedule_print, mix);
        Fingerprint {
            kind: self.layout.kind,
            dtype: self.dtype,
            op: self.op,
            root: self.layout.root,
            count: self.layout.count,
            plan,
        }
    }

    /// Bytes that `elems` elements take in a form.
    #[must_use]
    pub const fn bytes(&self, elems: u64, form: Form) -> u64 {
        let size = match form {
            Form::Partial => self.dtype.acc().size(),
            Form::Leaf | Form::Final => self.dtype.size(),
        };
        elems.saturating_mul(size as u64)
    }

    /// Weight that a frame with a value of this form carries: only leaves have one.
    #[must_use]
    pub const fn frame_weight(&self, form: Form) -> Scalar {
        if matches!(form, Form::Leaf) { self.weight } else { Scalar(0) }
    }

    /// Bytes of one scratch slot: a full chunk in its widest form.
    #[must_use]
    pub const fn slot_bytes(&self) -> u64 {
        let elems = if self.layout.chunk < self.layout.count {
            self.layout.chunk
        } else {
            self.layout.count
        };
        // Slots start on cache lines.
        self.bytes(elems, Form::Partial).div_ceil(64).saturating_mul(64)
    }

    /// Can a machine with room for this many chunks in flight and members run this?
    ///
    /// # Errors
    /// What it is that cannot run.
    pub fn check(&self, window_max: usize, members_max: usize) -> Result<(), ConfigError> {
        let Layout { kind, ranks, root, chunk, .. } = self.layout;
        let members = self.schedule.members(ranks);
        let most = members_max.min(MEMBERS_MAX) as u16;
        if ranks == 0 || members > most {
            return Err(ConfigError::Members { members, most });
        }
        if self.rank >= members {
            return Err(ConfigError::Rank { rank: self.rank, members });
        }
        if root >= ranks {
            return Err(ConfigError::Root { root, ranks });
        }
        if !self.schedule.supports(kind, ranks) {
            return Err(ConfigError::Schedule { schedule: self.schedule.name(), kind, ranks });
        }
        let op_fits = match self.op {
            Some(op) => kind.reduces() && op.supports(self.dtype),
            None => !kind.reduces(),
        };
        if !op_fits {
            return Err(ConfigError::Op { op: self.op, kind, dtype: self.dtype });
        }
        if self.window == 0 || usize::from(self.window) > window_max {
            return Err(ConfigError::Window { window: self.window, most: window_max as u16 });
        }
        if self.eager > u64::from(self.window) {
            return Err(ConfigError::Eager { eager: self.eager });
        }
        if chunk == 0 || self.slot_bytes() > u64::from(u32::MAX) {
            return Err(ConfigError::Chunk { chunk });
        }
        let blocks = u64::from(ranks) * u64::from(ranks);
        if self.layout.count.checked_mul(8 * blocks).is_none() {
            return Err(ConfigError::Count { count: self.layout.count });
        }
        if self.sources_max < 2 || self.dests_max == 0 {
            return Err(ConfigError::Device);
        }
        if self.in_place && kind == Kind::AllToAll {
            return Err(ConfigError::InPlace { kind });
        }
        super::grants::check_slots(self)
    }
}

/// Mixes a word into a hash (the finaliser of SplitMix64): stable, and far cheaper than the
/// smallest message.
const fn mix(hash: u64, word: u64) -> u64 {
    let z = hash ^ word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
