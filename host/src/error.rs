//! What can go wrong, said so that the reader knows what to do.

use crate::device::any::DeviceError;
use std::time::Duration;
use unisono_core::machine::ConfigError;
use unisono_core::wire::frame::{Abort, Fingerprint, Phase};
use unisono_core::{DType, Kind, ReduceOp};
use unisono_gpu::GpuError;
use unisono_runtime::BeginError;

/// An error of a group or of one of its calls.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The group cannot be built.
    #[error("cannot build the group: {0}")]
    Build(String),
    /// The processes of a job do not come together.
    #[error("{0}")]
    World(String),
    /// A call that cannot run; nothing was sent.
    #[error("cannot begin the call: {0}")]
    Config(#[from] ConfigError),
    /// A buffer of the wrong length.
    #[error(
        "{kind} of {count} elements over {ranks} ranks needs {want} bytes of {what}, not {got}"
    )]
    Length {
        /// The collective.
        kind: Kind,
        /// Its count.
        count: u64,
        /// Ranks of the group.
        ranks: u16,
        /// Which buffer.
        what: &'static str,
        /// Bytes that it must have.
        want: u64,
        /// Bytes that it has.
        got: u64,
    },
    /// A slice that is not as long as the tensor it is copied to or from.
    #[error("the tensor has {has} elements, the slice {given}")]
    Tensor {
        /// Elements of the tensor.
        has: usize,
        /// Elements of the slice.
        given: usize,
    },
    /// A weight that the type cannot hold.
    #[error(
        "an integer tensor ({0}) needs a whole number from -2^63 to {most} as its weight",
        most = largest(*.0)
    )]
    Weight(DType),
    /// A list of tensors that is not one a rank.
    #[error("{tensors} tensors for {ranks} ranks")]
    Tensors {
        /// Tensors given.
        tensors: usize,
        /// Ranks of the group.
        ranks: u16,
    },
    /// A tensor of another type than its call.
    #[error("the call is on {call}, the tensor {tensor}")]
    Type {
        /// Type of the call.
        call: DType,
        /// Type of the tensor.
        tensor: DType,
    },
    /// As many calls are in flight as fit: a call needs the one so many calls before it to have
    /// been waited for, even if that is over.
    #[error("the call that was begun {0} calls before this one has to be waited for first")]
    Busy(usize),
    /// No schedule can do this.
    #[error("no schedule can do {kind} over {ranks} ranks here{why}")]
    NoPlan {
        /// The collective.
        kind: Kind,
        /// Ranks of the group.
        ranks: u16,
        /// Why not, if the caller asked for a certain one.
        why: String,
    },
    /// A group cannot plan anew.
    #[error("cannot re-plan: {0}")]
    Replan(String),
    /// Two ranks made calls that do not belong together.
    #[error(
        "ranks {a} and {b} disagree: rank {a} called {}, rank {b} called {}{}; \
         all ranks must make the same calls in the same order",
        Call(a_print),
        Call(b_print),
        plans(a_print, b_print)
    )]
    Mismatch {
        /// One rank.
        a: u16,
        /// What it called.
        a_print: Fingerprint,
        /// Another rank.
        b: u16,
        /// What that one called.
        b_print: Fingerprint,
    },
    /// A rank waited too long.
    #[error(
        "rank {rank} gave up after {after:?} without any progress: it was waiting for {} to send \
         {} of chunk {chunk}; are all ranks alive, and did they make the call?",
        member_name(*waiting_for, board.as_deref()),
        phase_name(phase)
    )]
    Deadline {
        /// Whose deadline passed.
        rank: u16,
        /// Whom it waited for.
        waiting_for: u16,
        /// The board that this is, if it is one.
        board: Option<String>,
        /// The lowest unfinished chunk.
        chunk: u64,
        /// What it waited for.
        phase: Phase,
        /// The group's time limit: how long a call may go without progress.
        after: Duration,
    },
    /// A rank's caller gave the call up.
    #[error("rank {0} cancelled the call")]
    Cancelled(u16),
    /// A rank is gone.
    #[error("rank {0} is gone: its thread has ended or its link is closed")]
    PeerLost(u16),
    /// A rank's device failed.
    #[error("the device of rank {rank} failed: {text}")]
    Device {
        /// Which rank.
        rank: u16,
        /// The driver's own words.
        text: String,
    },
    /// A GPU, its driver or its loader says no, outside of a call.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A board says no, or is gone; its name is in the text.
    #[error("{0}")]
    Board(String),
    /// A tensor whose memory this rank's device cannot reach.
    #[error("the tensor is in memory of {0}, and rank {1} is on another device")]
    Elsewhere(String, u16),
    /// A rank's call could not begin there, so nobody's can.
    #[error("rank {0} could not begin this call: see that rank's own error")]
    Refused(u16),
    /// There is no memory for the scratch slots of a call.
    #[error(
        "no memory for {0} bytes of scratch; a smaller chunk or window needs less \
         (chunks in flight times bytes of a chunk)"
    )]
    Memory(usize),
    /// A claim on a call that this member does not have: of another member, or given up already.
    #[error("this member has no such call in flight")]
    NoSuchCall,
    /// A rank sent something that makes no sense.
    #[error(
        "rank {0} sent a frame that the protocol does not allow; are all ranks the same build?"
    )]
    Protocol(u16),
    /// The system gives no thread for a member.
    #[error("cannot start a thread for a rank: {0} (limits of processes, or of memory?)")]
    Thread(String),
    /// A member's thread panicked.
    #[error("rank {rank}'s thread panicked: {text}")]
    Panicked {
        /// Which rank.
        rank: u16,
        /// The panic's message.
        text: String,
    },
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Gpu(error) => Self::Gpu(*error),
            // The CPU refuses only what makes no sense.
            DeviceError::Cpu(error) => Self::Build(error.to_string()),
        }
    }
}

impl From<BeginError> for Error {
    fn from(error: BeginError) -> Self {
        match error {
            BeginError::Busy(most) => Self::Busy(most),
            BeginError::Config(error) => Self::Config(error),
        }
    }
}

impl From<unisono_rendezvous::Error> for Error {
    fn from(error: unisono_rendezvous::Error) -> Self {
        Self::World(error.to_string())
    }
}

impl Error {
    /// From the reason that the group has agreed on.
    pub(crate) fn from_abort(why: Abort, after: Duration, device: String) -> Self {
        match why {
            Abort::Mismatch { a, a_print, b, b_print } => Self::Mismatch { a, a_print, b, b_print },
            Abort::Deadline { rank, waiting_for, chunk, phase } => {
                Self::Deadline { rank, waiting_for, board: None, chunk, phase, after }
            }
            Abort::Cancelled { rank } => Self::Cancelled(rank),
            Abort::PeerLost { rank } => Self::PeerLost(rank),
            Abort::DeviceFailed { rank } => Self::Device { rank, text: device },
            Abort::Protocol { rank } => Self::Protocol(rank),
            Abort::Refused { rank } => Self::Refused(rank),
        }
    }
}

/// A call in words: `all-reduce of 10 f32 (sum)`.
struct Call<'a>(&'a Fingerprint);

impl std::fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Fingerprint { kind, dtype, op, root, count, .. } = *self.0;
        write!(f, "{kind} of {count} {dtype}")?;
        match op.map(ReduceOp::name) {
            Some(op) if kind.is_rooted() => write!(f, " ({op}, root {root})"),
            Some(op) => write!(f, " ({op})"),
            None if kind.is_rooted() => write!(f, " (root {root})"),
            None => Ok(()),
        }
    }
}

/// Says it when two calls look the same but their plans differ.
fn plans(a: &Fingerprint, b: &Fingerprint) -> String {
    let same = Fingerprint { plan: b.plan, ..*a } == *b;
    if same {
        format!(" by another plan ({:016x} against {:016x})", a.plan, b.plan)
    } else {
        String::new()
    }
}

/// The largest weight of an integer type.
fn largest(dtype: DType) -> &'static str {
    if dtype == DType::U64 { "2^64 - 1" } else { "2^63 - 1" }
}

/// `rank 2`, or `dpu:qemu-aarch64 (rank 2)`.
fn member_name(rank: u16, board: Option<&str>) -> String {
    board.map_or_else(|| format!("rank {rank}"), |board| format!("{board} (rank {rank})"))
}

const fn phase_name(phase: &Phase) -> &'static str {
    match phase {
        Phase::Contribution => "its contribution",
        Phase::Result => "the result",
    }
}
