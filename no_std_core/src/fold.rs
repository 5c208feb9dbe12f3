//! What one n-ary fold is: the words that machine, devices and the scalar reference share.
//!
//! # The fold program
//!
//! A fold takes `k` sources **in canonical order** and runs this tiny stack program per element
//! (a binary counter, so `log2 k` accumulators are enough):
//!
//! ```text
//! for i in 0..k {
//!     push(load(source[i]));               // widened to the accumulation type; weighted if a leaf
//!     repeat source[i].merges times { let b = pop(); let a = pop(); push(a OP b); }
//! }
//! // exactly one value is left
//! store(finish(pop()))
//! ```
//!
//! With leaves 0..4 the merges are `[0, 1, 0, 2]`: `(s0+s1)+(s2+s3)`; with 0..3 `[0, 1, 1]`.
//! Whoever builds a fold guarantees that the program never pops an empty stack and leaves one
//! value; [`crate::fold::check_merges`] is that guarantee as a function.

use crate::dtype::Scalar;

/// What the bytes of a chunk are at some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Form {
    /// One rank's own contribution, in the tensor's type, not yet weighted.
    Leaf,
    /// A sum over several ranks that still travels, in the accumulation type.
    Partial,
    /// The finished value, in the tensor's type (also: data of collectives that do not reduce).
    Final,
}

/// One source of a fold. `M` is the driver's memory reference; the core never looks into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source<M> {
    /// Where the bytes are.
    pub mem: M,
    /// [`Form::Leaf`] or [`Form::Partial`] in a reduction, [`Form::Final`] in a plain copy.
    pub form: Form,
    /// Multiplies a leaf under `PreMulSum`; ignored otherwise.
    pub weight: Scalar,
    /// How many merges follow the push of this source.
    pub merges: u8,
}

/// What happens to the one value that a fold leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Store it in the accumulation type: it travels on as [`Form::Partial`].
    Partial,
    /// Divide by `ranks` if the operator is `Avg`, make every NaN the canonical one, round once to
    /// the tensor's type.
    Final {
        /// Number of contributing ranks.
        ranks: u32,
    },
}

/// Is this merge program well formed: never pops an empty stack, leaves exactly one value?
#[must_use]
pub fn check_merges(merges: impl IntoIterator<Item = u8>) -> bool {
    let mut depth = 0u32;
    for m in merges {
        depth += 1;
        if u32::from(m) >= depth {
            return false;
        }
        depth -= u32::from(m);
    }
    depth == 1
}

/// Merges after each of `k` leaves of the canonical order (balanced tree, split at the largest
/// power of two below `k`): what a direct schedule's owner folds.
pub fn leaf_merges(k: u32) -> impl Iterator<Item = u8> + Clone {
    (1..=k).map(move |i| {
        let full = i.trailing_zeros();
        let extra = if i == k { k.count_ones() - 1 } else { 0 };
        (full + extra) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn leaf_merges_are_the_canonical_tree() {
        let of = |k| leaf_merges(k).collect::<Vec<_>>();
        assert_eq!(of(1), [0]);
        assert_eq!(of(2), [0, 1]);
        assert_eq!(of(3), [0, 1, 1]);
        assert_eq!(of(4), [0, 1, 0, 2]);
        assert_eq!(of(7), [0, 1, 0, 2, 0, 1, 2]);
        for k in 1..300 {
            assert!(check_merges(leaf_merges(k)), "{k}");
        }
    }

    #[test]
    fn bad_programs_are_refused() {
        for bad in [&[][..], &[1], &[0, 0], &[0, 2], &[0, 1, 0]] {
            assert!(!check_merges(bad.iter().copied()), "{bad:?}");
        }
    }
}
