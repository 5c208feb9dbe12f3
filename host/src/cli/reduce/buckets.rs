//! Which tensors travel together, and where they lie in memory.
//!
//! Every rank has all its tensors in one block of memory, sorted by type and name. Tensors of one
//! type that follow each other without a gap are a bucket: one call reduces them in place, and as
//! elements do not depend on each other, the bits are those of one call a tensor.

use super::input::{Input, Tensor};
use std::collections::BTreeMap;
use std::ops::Range;
use unisono::DType;

/// Buckets start on cache-line pairs, so that chunks do too.
const ALIGN: usize = 128;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Type of all its elements.
    pub dtype: DType,
    /// Its bytes in memory.
    pub span: Range<usize>,
}

impl Bucket {
    /// Elements.
    pub fn count(&self) -> u64 {
        (self.span.len() / self.dtype.size()) as u64
    }
}

/// All tensors of a file, placed.
#[derive(Debug, Default)]
pub struct Buckets {
    /// In the order of the calls: by type.
    pub buckets: Vec<Bucket>,
    /// Where each tensor lies.
    pub places: BTreeMap<String, Range<usize>>,
    /// Bytes of memory for all of it.
    pub bytes: usize,
}

impl Buckets {
    /// Fills buckets up to `limit` bytes; a larger tensor has one to itself.
    pub fn new(input: &Input, limit: u64) -> Self {
        Self::place(&input.tensors, limit)
    }

    fn place(tensors: &BTreeMap<String, Tensor>, limit: u64) -> Self {
        let mut sorted: Vec<_> = tensors.iter().collect();
        sorted.sort_by_key(|(name, tensor)| (tensor.dtype, *name));
        let mut all = Self::default();
        for (name, tensor) in sorted {
            let size = tensor.bytes;
            if size > 0 {
                let fits =
                    |b: &Bucket| b.dtype == tensor.dtype && (b.span.len() + size) as u64 <= limit;
                match all.buckets.last_mut().filter(|b| fits(b)) {
                    Some(bucket) => bucket.span.end += size,
                    None => {
                        let start = all.bytes.next_multiple_of(ALIGN);
                        let span = start..start + size;
                        all.buckets.push(Bucket { dtype: tensor.dtype, span });
                        all.bytes = start;
                    }
                }
            }
            all.places.insert(name.clone(), all.bytes..all.bytes + size);
            all.bytes += size;
        }
        all
    }

    /// Cuts buckets into calls of at most so many bytes, also within tensors.
    pub fn cut(&mut self, most: usize) {
        let cut = |bucket: Bucket| {
            let Bucket { dtype, span } = bucket;
            let step = (most / dtype.size()).max(1) * dtype.size();
            let end = span.end;
            let part = move |start| Bucket { dtype, span: start..(start + step).min(end) };
            span.step_by(step).map(part)
        };
        self.buckets = std::mem::take(&mut self.buckets).into_iter().flat_map(cut).collect();
    }

    /// The types that occur, each once.
    pub fn dtypes(&self) -> Vec<DType> {
        let mut dtypes: Vec<_> = self.buckets.iter().map(|b| b.dtype).collect();
        dtypes.dedup();
        dtypes
    }

    /// Bytes of tensors, without the gaps between buckets.
    pub fn payload(&self) -> u64 {
        self.buckets.iter().map(|b| b.span.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors(sizes: &[(&str, DType, usize)]) -> BTreeMap<String, Tensor> {
        let tensor = |&(name, dtype, count): &(&str, DType, usize)| {
            let bytes = count * dtype.size();
            (name.to_owned(), Tensor { dtype, shape: vec![count], start: 0, bytes })
        };
        sizes.iter().map(tensor).collect()
    }

    fn spans(buckets: &Buckets) -> Vec<(DType, Range<usize>)> {
        buckets.buckets.iter().map(|b| (b.dtype, b.span.clone())).collect()
    }

    #[test]
    fn tensors_of_a_type_share_buckets() {
        use DType::{F32, I8};
        let all = tensors(&[("c", F32, 2), ("a", F32, 3), ("b", I8, 5), ("d", F32, 0)]);
        let placed = Buckets::place(&all, 1 << 20);
        assert_eq!(spans(&placed), [(F32, 0..20), (I8, 128..133)]);
        assert_eq!(placed.places["a"], 0..12);
        assert_eq!(placed.places["c"], 12..20);
        assert_eq!(placed.places["d"], 20..20);
        assert_eq!(placed.places["b"], 128..133);
        assert_eq!((placed.bytes, placed.payload()), (133, 25));
        assert_eq!(placed.dtypes(), [F32, I8]);
    }

    #[test]
    fn calls_may_be_cut_within_tensors() {
        use DType::{F32, I8};
        let mut placed = Buckets::place(&tensors(&[("a", F32, 5), ("b", I8, 5)]), 1 << 20);
        placed.cut(9);
        let want = [(F32, 0..8), (F32, 8..16), (F32, 16..20), (I8, 128..133)];
        assert_eq!(spans(&placed), want);
        assert_eq!(placed.payload(), 25);
        placed.cut(1);
        assert_eq!(placed.buckets.len(), 5 + 5);
    }

    #[test]
    fn a_limit_splits_between_tensors_only() {
        use DType::F32;
        let all = tensors(&[("a", F32, 2), ("b", F32, 2), ("c", F32, 50), ("d", F32, 1)]);
        let placed = Buckets::place(&all, 16);
        assert_eq!(spans(&placed), [(F32, 0..16), (F32, 128..328), (F32, 384..388)]);
        assert_eq!(spans(&Buckets::place(&all, 0)).len(), 4);
        assert_eq!(Buckets::place(&tensors(&[]), 16).bytes, 0);
    }
}
