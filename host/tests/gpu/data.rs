//! Data, and what must become of it.

use unisono::{Element, Group, GroupBuilder, ReduceOp, Reduction};
use unisono_core::fold::leaf_merges;
use unisono_core::{Finish, Form, Source, numeric};
use unisono_testkit::device::Bits;

const RANKS: [&str; 4] = ["cpu", "cpu", "vulkan:0", "opencl:0"];

/// Every different order of four ranks: two on the CPU, one on a device of each API.
pub fn orders() -> Vec<String> {
    let mut orders = Vec::new();
    for vulkan in 0..4 {
        for opencl in (0..4).filter(|&o| o != vulkan) {
            let mut order = [RANKS[0]; 4];
            (order[vulkan], order[opencl]) = (RANKS[2], RANKS[3]);
            orders.push(order.join(","));
        }
    }
    orders
}

/// Half of it any bits, half of it NaN of all kinds, infinities, subnormals, zeros, and the largest
/// and smallest values.
pub fn noise<T: Element>(seed: u64, len: usize) -> Vec<T> {
    let from = Bits::new(seed).elements(T::DTYPE, len);
    let mut elements = vec![T::default(); len];
    // SAFETY: elements are plain bits, any bits are elements, and there are as many bytes.
    unsafe { elements.as_mut_ptr().cast::<u8>().copy_from(from.as_ptr(), from.len()) };
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

/// Runs a test of this program in a process without other ones, with this variable set.
#[track_caller]
pub fn alone(test: &str, variable: &str) {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]).env(variable, "1");
    let output = command.output().expect("this program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}
