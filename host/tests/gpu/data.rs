//! Data, and what must become of it.

use unisono::{Element, Group, GroupBuilder, ReduceOp, Reduction};
use unisono_core::fold::leaf_merges;
use unisono_core::{Finish, Form, Source, numeric};

/// Any bits, NaN, infinities and subnormals among them.
pub fn noise<T: Element>(seed: u64, len: usize) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut elements = vec![T::default(); len];
    let bytes = size_of_val(&elements[..]);
    // SAFETY: elements are plain bits, and any bits are elements.
    let all = unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast::<u8>(), bytes) };
    for byte in all {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = (state >> 32) as u8;
    }
    elements
}

pub fn bits<T: Element>(slice: &[T]) -> &[u8] {
    // SAFETY: elements have no padding.
    unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), size_of_val(slice)) }
}

/// What the scalar reference gives for these inputs, one a rank.
pub fn reference<T: Element>(op: ReduceOp, inputs: &[Vec<T>]) -> Vec<u8> {
    let ranks = inputs.len() as u32;
    let weight = Reduction::from(op).scalar(T::DTYPE).expect("a weight");
    let sources: Vec<_> = inputs
        .iter()
        .zip(leaf_merges(ranks))
        .map(|(input, merges)| Source { mem: bits(input), form: Form::Leaf, weight, merges })
        .collect();
    let mut out = vec![0; size_of_val(&inputs[0][..])];
    numeric::fold(T::DTYPE, Some(op), Finish::Final { ranks }, &sources, &mut out).expect("a fold");
    out
}

pub fn build(builder: GroupBuilder) -> Group {
    builder.build().expect("drivers of both APIs (mesa-vulkan-drivers, pocl-opencl-icd)")
}
