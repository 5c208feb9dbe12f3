//! Groups of CPU, Vulkan and OpenCL ranks: nobody can tell from the result who was who. Needs a
//! driver of either API (Mesa's lavapipe and PoCL do).
#![cfg(all(feature = "vulkan", feature = "opencl"))]

use unisono::{Avg, Element, Error, Group, GroupBuilder, ReduceOp, Reduction, Sum, bf16};
use unisono_core::fold::leaf_merges;
use unisono_core::{Finish, Form, Source, numeric};

const MIXED: &str = "cpu,vulkan:0,opencl:0,cpu";

/// Any bits, NaN, infinities and subnormals among them.
fn noise<T: Element>(seed: u64, len: usize) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![T::default(); len];
    // SAFETY: elements are plain bits, and any bits are elements.
    let all = unsafe {
        std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<u8>(), size_of_val(&bytes[..]))
    };
    for byte in all {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = (state >> 32) as u8;
    }
    bytes
}

fn bits<T: Element>(slice: &[T]) -> &[u8] {
    // SAFETY: elements have no padding.
    unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), size_of_val(slice)) }
}

/// What the scalar reference gives for these inputs, one a rank.
fn reference<T: Element>(op: ReduceOp, inputs: &[Vec<T>]) -> Vec<u8> {
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

fn build(builder: GroupBuilder) -> Group {
    builder.build().expect("drivers of both APIs (mesa-vulkan-drivers, pocl-opencl-icd)")
}

/// All-reduce of host slices, and of tensors in the devices' memory.
fn check<T: Element>(group: &mut Group, op: ReduceOp, len: usize) {
    let inputs: Vec<Vec<T>> =
        (0..u64::from(group.ranks())).map(|rank| noise(rank + 7, len)).collect();
    let want = reference(op, &inputs);
    let slices = group.run(|member| {
        let mut own = inputs[usize::from(member.rank())].clone();
        member.all_reduce(&mut own, op)?;
        Ok::<_, Error>(own)
    });
    for (rank, got) in slices.expect("slices").iter().enumerate() {
        assert!(bits(got) == want, "{op} of {len} {} in a slice of {rank}", T::DTYPE);
    }
    let tensors = group.run(|member| {
        let mut own = member.tensor(len)?;
        own.write(&inputs[usize::from(member.rank())])?;
        member.all_reduce(&mut own, op)?;
        own.to_vec()
    });
    for (rank, got) in tensors.expect("tensors").iter().enumerate() {
        assert!(bits(got) == want, "{op} of {len} {} in a tensor of {rank}", T::DTYPE);
    }
}

#[test]
fn sums_of_all_sizes() {
    let mut group = build(Group::builder().on(MIXED));
    for len in [0, 1, 2, 3, 17, 1000, 1025, 70_001, 1 << 20] {
        check::<f32>(&mut group, Sum, len);
    }
}

#[test]
fn small_types() {
    let mut group = build(Group::builder().on(MIXED));
    check::<bf16>(&mut group, Avg, 100_003);
}
