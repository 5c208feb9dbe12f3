//! The parts of the suite.

use super::bits::Bits;
use super::rig::{Case, Output, Rig};
use super::shape::{KINDS, Shape, Shapes, input};
use super::{DeviceHarness, Plan};
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source};
use unisono_driver::{Copy, Device, Fold};

/// Spans of a rig: enough for 16 sources and as many destinations.
const SPANS: usize = 40;
/// Elements that make a device change from its vectors, and tiles, to the rest.
const LONG: usize = 2777;

/// Every type with every operator that it has.
fn combinations() -> impl Iterator<Item = (DType, ReduceOp)> {
    DType::ALL
        .into_iter()
        .flat_map(|dtype| ReduceOp::ALL.into_iter().map(move |op| (dtype, op)))
        .filter(|&(dtype, op)| op.supports(dtype))
}

/// The shapes to test on a device.
pub fn shapes<H: DeviceHarness>(harness: &mut H, plan: &Plan) -> Shapes {
    let caps = harness.device().caps();
    Shapes::new(plan.every_shape, (caps.sources_max.min(SPANS / 2), caps.dests_max.min(SPANS / 2)))
}

/// Completion rules, and what must be refused.
pub fn rules<H: DeviceHarness>(harness: &mut H) {
    let caps = harness.device().caps();
    assert!(caps.sources_max >= 2 && caps.dests_max >= 1, "{caps:?}");
    assert!(harness.device().poll_done().is_none(), "a completion of nothing");
    let (from, to) = (harness.alloc(64), harness.alloc(64));
    let source = Source { mem: from, form: Form::Leaf, weight: Scalar(0), merges: 0 };
    let refuse = |harness: &mut H, dtype, op, finish, sources: &[_], why: &str| {
        let dests = [to];
        let work = Fold { dtype, op, count: 8, sources, dests: &dests, finish };
        let device = harness.device();
        // SAFETY: the spans hold eight elements of eight bytes, nobody else uses them.
        let result = unsafe { device.fold(&work, 7) };
        assert!(result.is_err(), "accepted {why}");
        assert!(device.poll_done().is_none(), "a completion of {why}");
    };
    let last = Finish::Final { ranks: 1 };
    let (sum, and) = (Some(ReduceOp::Sum), Some(ReduceOp::BitAnd));
    let popping = Source { merges: 1, ..source };
    let finished = Source { form: Form::Final, ..source };
    refuse(harness, DType::F32, and, last, &[source], "a bitwise operator on a float");
    refuse(harness, DType::F32, sum, last, &[], "a fold of nothing");
    refuse(harness, DType::F32, sum, last, &[popping], "a program that pops nothing");
    refuse(harness, DType::F32, sum, last, &[source, source], "a program that leaves two");
    refuse(harness, DType::F32, sum, last, &[finished], "a finished source");
    let none = Finish::Final { ranks: 0 };
    refuse(harness, DType::I32, Some(ReduceOp::Avg), none, &[source], "an average over none");

    // As much work as there is room for: one completion for each, and room again.
    let mut waiting: Vec<u32> = Vec::new();
    while harness.device().has_room() && waiting.len() < 1000 {
        let token = 100 + waiting.len() as u32;
        let copy = Copy { from, to, bytes: 64 };
        // SAFETY: as above; all copies write the same bytes.
        unsafe { harness.device().copy(&copy, token) }.expect("a copy within has_room");
        waiting.push(token);
    }
    while !waiting.is_empty() {
        let (token, result) = harness.wait();
        result.expect("a copy");
        let at = waiting.iter().position(|&t| t == token).expect("a token that was submitted");
        waiting.swap_remove(at);
    }
    assert!(harness.device().poll_done().is_none(), "more completions than work");
    assert!(harness.device().has_room(), "no room in an idle device");
}

/// Plain copies, by `copy` and by a fold without operator.
pub fn copies(harness: &mut impl DeviceHarness, plan: &Plan, shapes: &Shapes) {
    let mut bits = Bits::new(plan.seed);
    let bytes: Vec<u8> = (0..5000).map(|_| bits.next() as u8).collect();
    let (from, to) = (harness.alloc(5000 + 64), harness.alloc(5000 + 64));
    for len in (0..=plan.lengths).chain([4096, 5000]) {
        let (shift, back) = (len % 64 / plan.align * plan.align, len * 7 % 64);
        let back = back / plan.align * plan.align;
        let (from, to) = (harness.offset(from, shift), harness.offset(to, back));
        harness.write(from, &bytes[..len]);
        // SAFETY: both spans hold `len` bytes and are apart.
        unsafe { harness.device().copy(&Copy { from, to, bytes: len }, 5) }.expect("a copy");
        assert_eq!(harness.wait().0, 5);
        let mut got = vec![0; len];
        harness.read(to, &mut got);
        assert_eq!(got, bytes[..len], "a copy of {len} bytes");
    }
    let mut rig = Rig::new(harness, SPANS, 8 * LONG);
    for dtype in DType::ALL {
        for (form, outputs) in [
            (Form::Final, vec![Output::Own; 2]),
            (Form::Leaf, vec![Output::Own]),
            (Form::Partial, vec![Output::Own]),
            (Form::Final, vec![Output::InPlace(0), Output::Own]),
        ] {
            let outputs = outputs[..outputs.len().min(shapes.dests_max())].to_vec();
            let mut case = Shape::leaves(1).case(&mut bits, dtype, ReduceOp::Sum, LONG);
            case.inputs[0] = input(&mut bits, dtype, form, LONG, 0);
            rig.check(&Case { op: None, outputs, ..case });
        }
    }
}

/// Every type, operator and finish with 1, 2, 3, 4, 7 and 16 sources; leaves, partial values and
/// both; canonical and random programs; one destination, several, in place.
///
/// A device that compiles a kernel for each is long at it, so each type says that it has `passed`.
pub fn programs(
    harness: &mut impl DeviceHarness,
    plan: &Plan,
    shapes: &mut Shapes,
    mut passed: impl FnMut(&str),
) {
    let mut bits = Bits::new(plan.seed + 1);
    let mut rig = Rig::new(harness, SPANS, 8 * LONG);
    let kinds = if shapes.every() { KINDS } else { 1 };
    let most = shapes.dests_max();
    let mut last = None;
    for (dtype, op) in combinations() {
        if let Some(done) = last.replace(dtype).filter(|&done| done != dtype) {
            passed(&format!("programs of {done}"));
        }
        for k in shapes.sources(&[1, 2, 3, 4, 7, 16]) {
            for kind in 0..kinds {
                let make = |bits: &mut Bits, _| Shape::of_kind(bits, dtype, k, kind, most);
                let shape = shapes.pick(&mut bits, (dtype, op), k, make);
                let count = LONG - bits.below(200);
                rig.check(&shape.case(&mut bits, dtype, op, count));
            }
        }
    }
}

/// Leaves, and some of the places where the result can go.
fn spread(bits: &mut Bits, mut shape: Shape, dtype: DType, most: usize) -> Shape {
    shape.random_outputs(bits, dtype, false, most);
    shape
}

/// Every length from nothing on, every span at another address.
pub fn lengths(harness: &mut impl DeviceHarness, plan: &Plan, shapes: &mut Shapes) {
    let mut bits = Bits::new(plan.seed + 2);
    let mut rig = Rig::new(harness, SPANS, 8 * plan.lengths.max(1));
    let (most, sources) = (shapes.dests_max(), shapes.sources(&[1, 2, 3, 4, 5]));
    for (dtype, op) in combinations() {
        for count in 0..=plan.lengths {
            let k = bits.pick(&sources);
            let make = |bits: &mut Bits, leaves| spread(bits, leaves, dtype, most);
            let shape = shapes.pick(&mut bits, (dtype, op), k, make);
            let mut case = shape.case(&mut bits, dtype, op, count);
            case.start = bits.below(64) / plan.align * plan.align;
            case.step = bits.below(64) / plan.align * plan.align;
            rig.check(&case);
        }
    }
}

/// Every start within 64 bytes, the same for all spans and different ones.
pub fn starts(harness: &mut impl DeviceHarness, plan: &Plan, shapes: &mut Shapes) {
    let mut bits = Bits::new(plan.seed + 3);
    let mut rig = Rig::new(harness, SPANS, 8 * LONG);
    let (most, sources) = (shapes.dests_max(), shapes.sources(&[2, 3, 4]));
    for (dtype, op) in combinations() {
        for start in (0..64).step_by(plan.align) {
            for step in [0, 1, dtype.size()] {
                let step = step.next_multiple_of(plan.align);
                let k = bits.pick(&sources);
                let make = |bits: &mut Bits, leaves| spread(bits, leaves, dtype, most);
                let shape = shapes.pick(&mut bits, (dtype, op), k, make);
                let case = shape.case(&mut bits, dtype, op, 261);
                rig.check(&Case { start, step, ..case });
            }
        }
    }
}

/// All values of the types of at most 16 bits, alone; all pairs of the 8-bit types.
pub fn every_value(harness: &mut impl DeviceHarness, plan: &Plan, shapes: &mut Shapes) {
    let mut bits = Bits::new(plan.seed + 4);
    let mut rig = Rig::new(harness, SPANS, 4 << 16);
    let count = 1 << 16;
    for (dtype, op) in combinations().filter(|(dtype, _)| dtype.size() <= 2) {
        let codes = |f: fn(u32) -> u32| -> Vec<u8> {
            (0..count as u32).flat_map(|i| f(i).to_le_bytes()[..dtype.size()].to_vec()).collect()
        };
        // Where shapes are few, that of one or two sources gives a final result.
        let finishes: &[bool] = if shapes.every() { &[false, true] } else { &[false] };
        for &partial in finishes {
            for k in 1..=2 - (dtype.size() - 1) {
                let make = |_: &mut Bits, leaves| Shape { partial, ..leaves };
                let shape = shapes.pick(&mut bits, (dtype, op), k, make);
                let mut case = shape.case(&mut bits, dtype, op, count);
                if let Finish::Final { ranks } = &mut case.finish {
                    *ranks = 3;
                }
                for (input, code) in case.inputs.iter_mut().zip([|i| i, |i| i >> 8]) {
                    input.bytes = codes(code);
                }
                rig.check(&case);
            }
        }
    }
}

/// The final rounding of the small floating types: all upper halves of binary32 with the lower
/// halves that matter.
pub fn every_rounding(harness: &mut impl DeviceHarness, plan: &Plan) {
    let mut bits = Bits::new(plan.seed + 5);
    let mut rig = Rig::new(harness, SPANS, 4 << 16);
    for dtype in [DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2] {
        for low in [0, 1, 0x0fff, 0x1000, 0x1001, 0x2000, 0x7fff, 0x8000, 0x8001, 0xffff] {
            let mut case = Shape::leaves(1).case(&mut bits, dtype, ReduceOp::Sum, 1 << 16);
            case.inputs[0].form = Form::Partial;
            case.inputs[0].bytes =
                (0..1u32 << 16).flat_map(|high| (high << 16 | low).to_le_bytes()).collect();
            rig.check(&case);
        }
    }
}

/// `plan.patterns` random elements for each type, operator and number of sources.
pub fn patterns(harness: &mut impl DeviceHarness, plan: &Plan, shapes: &mut Shapes) {
    let mut bits = Bits::new(plan.seed + 6);
    let most = 16_384;
    let mut rig = Rig::new(harness, SPANS, 8 * most);
    let sources = shapes.sources(&[1, 2, 3, 7, 16]);
    for ((dtype, op), k) in combinations().flat_map(|c| sources.iter().map(move |&k| (c, k))) {
        let mut left = plan.patterns;
        while left > 0 {
            let count = most.min(left);
            let make = |bits: &mut Bits, mut leaves: Shape| {
                if bits.next() & 1 == 0 {
                    leaves.forms[bits.below(k)] = Form::Partial;
                }
                leaves
            };
            let shape = shapes.pick(&mut bits, (dtype, op), k, make);
            rig.check(&shape.case(&mut bits, dtype, op, count));
            left -= count;
        }
    }
}
