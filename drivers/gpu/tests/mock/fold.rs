//! A fold of random values with its expected result, for tests that want several at a time.

use super::{Kind, Rig};
use unisono_core::fold::leaf_merges;
use unisono_core::numeric;
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source};
use unisono_driver::{Device, Fold, HostPtr, Memory as _};
use unisono_gpu::GpuError;
use unisono_testkit::device::Bits;

/// A fold of leaves, not started yet.
pub struct Task {
    dtype: DType,
    op: ReduceOp,
    count: usize,
    sources: Vec<Source<HostPtr>>,
    dests: Vec<HostPtr>,
    want: Vec<u8>,
}

impl Task {
    /// Random values: `kinds` says where each source lies and, after them, the destination, which
    /// is the first source if there is no kind for it. Each span starts `start` bytes after an
    /// aligned address.
    pub fn new(
        rig: &mut Rig,
        bits: &mut Bits,
        (dtype, op): (DType, ReduceOp),
        count: usize,
        (sources, kinds): (usize, &[Kind]),
        start: usize,
    ) -> Self {
        let bytes = count * dtype.size();
        let mut place = |kind: Kind| rig.place(kind, bytes + start).offset(start as u64);
        let places: Vec<HostPtr> = kinds.iter().map(|&kind| place(kind)).collect();
        let data: Vec<Vec<u8>> = (0..sources).map(|_| bits.elements(dtype, count)).collect();
        for (&mem, data) in places.iter().zip(&data) {
            rig.put(mem, data);
        }
        let source = |i: usize, merges: u8| {
            let weight = Scalar::one(dtype);
            Source { mem: i, form: Form::Leaf, weight, merges }
        };
        let program: Vec<Source<usize>> =
            leaf_merges(sources as u32).enumerate().map(|(i, merges)| source(i, merges)).collect();
        let mut want = vec![0; bytes];
        let finish = Finish::Final { ranks: sources as u32 };
        let values: Vec<Source<&[u8]>> = program.iter().map(|s| at(s, &*data[s.mem])).collect();
        numeric::fold(dtype, Some(op), finish, &values, &mut want).unwrap();
        let dests = vec![*places.get(sources).unwrap_or(&places[0])];
        let sources = program.iter().map(|s| at(s, places[s.mem])).collect();
        Self { dtype, op, count, sources, dests, want }
    }

    /// Starts it.
    pub fn start(&self, rig: &mut Rig, token: u32) -> Result<(), GpuError> {
        let finish = Finish::Final { ranks: self.sources.len() as u32 };
        let (dtype, op, count) = (self.dtype, Some(self.op), self.count);
        let (sources, dests) = (&*self.sources, &*self.dests);
        let work = Fold { dtype, op, count, sources, dests, finish };
        // SAFETY: memory of the rig, which outlives its device's work; spans are apart.
        unsafe { rig.gpu.fold(&work, token) }
    }

    /// Is the result as it should be?
    pub fn check(&self, rig: &Rig) {
        let got = rig.get(self.dests[0], self.want.len());
        let differs = got.iter().zip(&self.want).position(|(got, want)| got != want);
        assert_eq!(differs, None, "{} {} of {} elements", self.dtype, self.op, self.count);
    }
}

fn at<M>(source: &Source<usize>, mem: M) -> Source<M> {
    Source { mem, form: source.form, weight: source.weight, merges: source.merges }
}
