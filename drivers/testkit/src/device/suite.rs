//! The parts of the suite.

use super::bits::Bits;
use super::rig::{Case, Input, Output, Rig};
use super::{DeviceHarness, Plan};
use unisono_core::fold::leaf_merges;
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

/// A weight that is not the neutral one.
fn weight(bits: &mut Bits, dtype: DType) -> Scalar {
    if dtype.is_float() {
        let plain = bits.next() as i32 as f64 / 1e9;
        let tiny = f64::from(f32::MIN_POSITIVE) / 3.0;
        Scalar::from_f64(bits.pick(&[plain, plain, plain, 0.1, -0.0, 1e300, tiny, f64::NAN]))
    } else {
        Scalar::from_i64(bits.next().cast_signed() >> bits.below(64))
    }
}

/// A source of random elements.
fn input(bits: &mut Bits, dtype: DType, form: Form, count: usize, merges: u8) -> Input {
    let bytes = match form {
        Form::Partial => bits.partials(dtype, count),
        _ => bits.elements(dtype, count),
    };
    Input { bytes, form, weight: weight(bits, dtype), merges }
}

/// `k` leaves in canonical order, one destination of its own.
fn leaves(bits: &mut Bits, dtype: DType, op: ReduceOp, k: usize, count: usize) -> Case {
    let inputs =
        leaf_merges(k as u32).map(|merges| input(bits, dtype, Form::Leaf, count, merges)).collect();
    Case {
        dtype,
        op: Some(op),
        finish: Finish::Final { ranks: k as u32 },
        count,
        inputs,
        outputs: vec![Output::Own],
        start: 0,
        step: 0,
    }
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
pub fn copies(harness: &mut impl DeviceHarness, plan: &Plan) {
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
            let outputs = outputs[..outputs.len().min(rig.limits().1)].to_vec();
            let mut case = leaves(&mut bits, dtype, ReduceOp::Sum, 1, LONG);
            case.inputs[0] = input(&mut bits, dtype, form, LONG, 0);
            rig.check(&Case { op: None, outputs, ..case });
        }
    }
}

/// Every type, operator and finish with 1, 2, 3, 4, 7 and 16 sources; leaves, partial values and
/// both; canonical and random programs; one destination, several, in place.
pub fn programs(harness: &mut impl DeviceHarness, plan: &Plan) {
    let mut bits = Bits::new(plan.seed + 1);
    let mut rig = Rig::new(harness, SPANS, 8 * LONG);
    let (sources_max, dests_max) = rig.limits();
    for (dtype, op) in combinations() {
        for k in [1, 2, 3, 4, 7, 16].into_iter().filter(|&k| k <= sources_max) {
            for variant in 0..6 {
                let count = LONG - bits.below(200);
                let mut case = leaves(&mut bits, dtype, op, k, count);
                if variant % 2 == 1 {
                    case.finish = Finish::Partial;
                } else if op == ReduceOp::Avg {
                    let ranks = bits.pick(&[1, 2, 3, 5, 127, 200, 1000, 65535]);
                    case.finish = Finish::Final { ranks };
                }
                for i in 0..k {
                    let merges = case.inputs[i].merges;
                    if variant == 3 || (variant >= 4 && bits.next() & 1 == 0) {
                        case.inputs[i] = input(&mut bits, dtype, Form::Partial, count, merges);
                    }
                }
                if variant >= 4 {
                    random_program(&mut bits, &mut case.inputs);
                }
                case.outputs = outputs(&mut bits, &case, variant, dests_max);
                rig.check(&case);
            }
        }
    }
}

/// Destinations: one, several, several on top of sources where sizes allow it.
fn outputs(bits: &mut Bits, case: &Case, variant: usize, most: usize) -> Vec<Output> {
    if variant == 0 {
        return vec![Output::Own];
    }
    let size = match case.finish {
        Finish::Partial => case.dtype.acc().size(),
        Finish::Final { .. } => case.dtype.size(),
    };
    let mut outputs = Vec::new();
    for (i, input) in case.inputs.iter().enumerate() {
        let fits = input.bytes.len() == size * case.count;
        if fits && (variant == 2 || bits.next() & 1 == 0) {
            outputs.push(Output::InPlace(i));
        }
    }
    if outputs.is_empty() || bits.next() & 1 == 0 {
        outputs.extend(vec![Output::Own; 1 + bits.below(4)]);
    }
    outputs.truncate(most);
    outputs
}

/// Merges in any order that leaves one value.
fn random_program(bits: &mut Bits, inputs: &mut [Input]) {
    let (mut depth, last) = (0, inputs.len() - 1);
    for (i, input) in inputs.iter_mut().enumerate() {
        depth += 1;
        let merges = if i == last { depth - 1 } else { bits.below(depth) };
        input.merges = merges as u8;
        depth -= merges;
    }
}

/// Every length from nothing on, every span at another address.
pub fn lengths(harness: &mut impl DeviceHarness, plan: &Plan) {
    let mut bits = Bits::new(plan.seed + 2);
    let mut rig = Rig::new(harness, SPANS, 8 * plan.lengths.max(1));
    let (sources_max, dests_max) = rig.limits();
    for (dtype, op) in combinations() {
        for count in 0..=plan.lengths {
            let k = bits.pick(&[1, 2, 3, 4, 5]).min(sources_max);
            let mut case = leaves(&mut bits, dtype, op, k, count);
            case.start = bits.below(64) / plan.align * plan.align;
            case.step = bits.below(64) / plan.align * plan.align;
            case.outputs = outputs(&mut bits, &case, 1, dests_max);
            rig.check(&case);
        }
    }
}

/// Every start within 64 bytes, the same for all spans and different ones.
pub fn starts(harness: &mut impl DeviceHarness, plan: &Plan) {
    let mut bits = Bits::new(plan.seed + 3);
    let mut rig = Rig::new(harness, SPANS, 8 * LONG);
    let (sources_max, dests_max) = rig.limits();
    for (dtype, op) in combinations() {
        for start in (0..64).step_by(plan.align) {
            for step in [0, 1, dtype.size()] {
                let step = step.next_multiple_of(plan.align);
                let k = bits.pick(&[2, 3, 4]).min(sources_max);
                let case = leaves(&mut bits, dtype, op, k, 261);
                let outputs = outputs(&mut bits, &case, 1, dests_max);
                rig.check(&Case { start, step, outputs, ..case });
            }
        }
    }
}

/// All values of the types of at most 16 bits, alone; all pairs of the 8-bit types.
pub fn every_value(harness: &mut impl DeviceHarness, plan: &Plan) {
    let mut bits = Bits::new(plan.seed + 4);
    let mut rig = Rig::new(harness, SPANS, 4 << 16);
    let count = 1 << 16;
    for (dtype, op) in combinations().filter(|(dtype, _)| dtype.size() <= 2) {
        let codes = |f: fn(u32) -> u32| -> Vec<u8> {
            (0..count as u32).flat_map(|i| f(i).to_le_bytes()[..dtype.size()].to_vec()).collect()
        };
        for finish in [Finish::Final { ranks: 3 }, Finish::Partial] {
            let mut case = leaves(&mut bits, dtype, op, 1, count);
            case.inputs[0].bytes = codes(|i| i);
            rig.check(&Case { finish, ..case });
            if dtype.size() == 1 {
                let mut case = leaves(&mut bits, dtype, op, 2, count);
                case.inputs[0].bytes = codes(|i| i);
                case.inputs[1].bytes = codes(|i| i >> 8);
                rig.check(&Case { finish, ..case });
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
            let mut case = leaves(&mut bits, dtype, ReduceOp::Sum, 1, 1 << 16);
            case.inputs[0].form = Form::Partial;
            case.inputs[0].bytes =
                (0..1u32 << 16).flat_map(|high| (high << 16 | low).to_le_bytes()).collect();
            rig.check(&case);
        }
    }
}

/// `plan.patterns` random elements for each type and operator, 2 to 5 sources.
pub fn patterns(harness: &mut impl DeviceHarness, plan: &Plan) {
    let mut bits = Bits::new(plan.seed + 6);
    let count = 16_384;
    let mut rig = Rig::new(harness, SPANS, 8 * count);
    let sources_max = rig.limits().0;
    for (dtype, op) in combinations() {
        let mut left = plan.patterns;
        while left > 0 {
            let count = count.min(left);
            let k = bits.pick(&[2, 2, 3, 4, 5]).min(sources_max);
            let mut case = leaves(&mut bits, dtype, op, k, count);
            if bits.next() & 1 == 0 {
                let i = bits.below(k);
                let merges = case.inputs[i].merges;
                case.inputs[i] = input(&mut bits, dtype, Form::Partial, count, merges);
            }
            rig.check(&case);
            left -= count;
        }
    }
}
