//! The reference against definitions that share no code with it.

mod fold;
mod small;

use super::*;
use crate::{DType, Finish, Form, ReduceOp, Scalar, Source};
use std::vec;
use std::vec::Vec;

/// A leaf with no weight.
fn leaf(mem: &[u8], merges: u8) -> Source<&[u8]> {
    Source { mem, form: Form::Leaf, weight: Scalar(0), merges }
}

/// Folds leaves of one element each in canonical order into a finished value of `N` bytes.
fn reduce<const N: usize>(dtype: DType, op: ReduceOp, leaves: &[[u8; N]]) -> [u8; N] {
    let ranks = leaves.len() as u32;
    let merges = crate::fold::leaf_merges(ranks);
    let sources: Vec<_> = leaves.iter().zip(merges).map(|(l, m)| leaf(l, m)).collect();
    let mut out = [0; N];
    fold(dtype, Some(op), Finish::Final { ranks }, &sources, &mut out).unwrap();
    out
}

/// `xorshift64*`: enough chance for tests, the same on every run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
