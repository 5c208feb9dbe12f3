//! What a call is, apart from its memory.

use unisono_core::{DType, Kind, Layout, ReduceOp, Scalar};

/// One call of a collective, without its buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// Which collective.
    pub kind: Kind,
    /// Element type.
    pub dtype: DType,
    /// Operator and weight, for collectives that reduce.
    pub op: Option<ReduceOp>,
    /// This rank's `PreMulSum` weight.
    pub weight: Scalar,
    /// Elements, as nccl-tests counts them (see [`Kind`]).
    pub count: u64,
    /// Root of reduce and broadcast.
    pub root: u16,
}

impl Call {
    /// A call without operator, weight and root.
    #[must_use]
    pub const fn new(kind: Kind, dtype: DType, count: u64) -> Self {
        Self { kind, dtype, op: None, weight: Scalar::one(dtype), count, root: 0 }
    }

    /// The root; one that means nothing is no reason to disagree.
    pub(crate) const fn agreed_root(&self) -> u16 {
        if self.kind.is_rooted() { self.root } else { 0 }
    }

    /// Elements of input and output that `rank` of `ranks` has to bring.
    #[must_use]
    pub const fn lengths(&self, rank: u16, ranks: u16) -> (u64, u64) {
        let Self { kind, count, root, .. } = *self;
        let layout = Layout { kind, ranks, count, chunk: 1, root };
        (layout.input_len(rank), layout.output_len(rank))
    }
}
