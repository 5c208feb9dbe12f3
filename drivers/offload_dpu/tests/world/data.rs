//! Inputs, and what has to come out: by the scalar reference of the core.

use super::Job;
use unisono_core::fold::leaf_merges;
use unisono_core::schedule::Aggregators;
use unisono_core::wire::board::{Call, Role};
use unisono_core::{DType, Finish, Form, Kind, ReduceOp, Scalar, Schedule, Source, numeric};

/// The memory of one rank: input and output, apart or in place.
pub struct Tensor {
    pub bytes: Vec<u8>,
    pub input: usize,
    pub output: usize,
    pub out_len: usize,
}

impl Tensor {
    pub fn new(job: &Job, rank: u16, input: &[u8]) -> Self {
        let (layout, size) = (job.call.layout(), job.call.dtype.size());
        let out_len = layout.output_len(rank) as usize * size;
        let in_len = layout.input_len(rank) as usize * size;
        let block = usize::from(rank) * layout.count as usize * size;
        let (from, to) = match layout.kind {
            _ if !job.in_place => (0, in_len.next_multiple_of(64)),
            Kind::AllGather => (block, 0),
            Kind::ReduceScatter => (0, block),
            _ => (0, 0),
        };
        // What is not input must not look like a result.
        let mut bytes = vec![0xaa; (from + in_len).max(to + out_len)];
        bytes[from..from + in_len].copy_from_slice(&input[..in_len]);
        Self { bytes, input: from, output: to, out_len }
    }

    pub fn output(&self) -> &[u8] {
        &self.bytes[self.output..self.output + self.out_len]
    }
}

/// A call by defaults: f32 sum through one aggregator.
pub fn call(kind: Kind, ranks: u16, count: u64) -> Call {
    Call {
        op_id: 0,
        role: Role::Aggregator,
        schedule: Schedule::Star(Aggregators::new(1).expect("one")),
        kind,
        ranks,
        count,
        chunk: 256,
        root: 0,
        dtype: DType::F32,
        op: kind.reduces().then_some(ReduceOp::Sum),
        weight: Scalar::one(DType::F32),
        window: 3,
        eager: 0,
        slots: 0,
        timeout_ms: super::PATIENCE.as_millis() as u32,
    }
}

/// The call on all ranks, with a weight for each.
pub fn job(call: Call, in_place: bool) -> Job {
    let weight = |rank: u16| {
        let weight = 3 - 2 * i64::from(rank);
        let float = Scalar::from_f64(weight as f64);
        if call.dtype.is_float() { float } else { Scalar::from_i64(weight) }
    };
    let weights = (0..call.ranks).map(weight).collect();
    Job { call, weights, in_place }
}

/// Numbers whose sums have to be rounded, and now and then any bits at all (NaNs, infinities).
pub fn inputs(call: &Call) -> Vec<Vec<u8>> {
    let (size, layout) = (call.dtype.size(), call.layout());
    let numbers = |rank: u16| {
        let elems = layout.input_len(rank).max(layout.count * u64::from(call.ranks)) as usize;
        let mut bytes = vec![0; elems * size];
        for (i, out) in bytes.chunks_exact_mut(size).enumerate() {
            let mut x = (i as u64 ^ u64::from(rank) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            x = (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x ^= x >> 32;
            let value = f64::from(x as u32) / 4e8 - 5.0;
            if !call.dtype.is_float() || i % 17 == 3 {
                out.copy_from_slice(&x.to_le_bytes()[..size]);
            } else {
                numeric::write_f64(call.dtype, out, 0, value).expect("a float of this size");
            }
        }
        bytes
    };
    (0..call.ranks).map(numbers).collect()
}

/// What every rank has to end up with.
pub fn expected(job: &Job, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let call = &job.call;
    let bytes = call.count as usize * call.dtype.size();
    let block = |rank: u16, block: u16| {
        inputs[usize::from(rank)][usize::from(block) * bytes..][..bytes].to_vec()
    };
    let ranks = 0..call.ranks;
    let is_root = |rank| rank == call.root;
    let one = |rank: u16| match call.kind {
        Kind::AllReduce => reduced(job, inputs, 0),
        Kind::ReduceScatter => reduced(job, inputs, rank),
        Kind::Reduce if is_root(rank) => reduced(job, inputs, 0),
        Kind::Reduce | Kind::Barrier => Vec::new(),
        Kind::Broadcast => block(call.root, 0),
        Kind::AllGather => ranks.clone().flat_map(|r| block(r, 0)).collect(),
        Kind::AllToAll => ranks.clone().flat_map(|r| block(r, rank)).collect(),
    };
    ranks.clone().map(one).collect()
}

/// Block `block` of all ranks, folded by the reference.
fn reduced(job: &Job, inputs: &[Vec<u8>], block: u16) -> Vec<u8> {
    let Call { dtype, op, ranks, count, .. } = job.call;
    let bytes = count as usize * dtype.size();
    let ranked = inputs.iter().zip(&job.weights).zip(leaf_merges(u32::from(ranks)));
    let source = |((input, weight), merges)| {
        let (input, weight): (&Vec<u8>, &Scalar) = (input, weight);
        let mem = &input[usize::from(block) * bytes..][..bytes];
        Source { mem, form: Form::Leaf, weight: *weight, merges }
    };
    let sources: Vec<Source<&[u8]>> = ranked.map(source).collect();
    let mut out = vec![0; bytes];
    numeric::fold(dtype, op, Finish::Final { ranks: ranks.into() }, &sources, &mut out)
        .expect("a program in canonical order");
    out
}

/// Do the outputs have the bits that they must have? Says where not.
pub fn check(job: &Job, outputs: &[Vec<u8>], inputs: &[Vec<u8>]) {
    let size = job.call.dtype.size();
    for (rank, (got, want)) in outputs.iter().zip(expected(job, inputs)).enumerate() {
        assert_eq!(got.len(), want.len(), "rank {rank}: {:?}", job.call);
        let mut pairs = got.chunks(size).zip(want.chunks(size));
        if let Some(i) = pairs.position(|(got, want)| got != want) {
            let (got, want) = (&got[i * size..][..size], &want[i * size..][..size]);
            panic!("rank {rank}, element {i}: {got:02x?}, not {want:02x?}: {:?}", job.call);
        }
    }
}
