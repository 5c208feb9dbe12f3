//! What is left of the kernels is valid, small, and has nothing to specialise; that it computes
//! what it should is shown by the device suite.

use super::*;
use std::process::Command;
use unisono_core::fold::leaf_merges;
use unisono_core::{DType, ReduceOp};
use unisono_gpu::{Arithmetic, FloatControls, Variant};

/// An operation of a module of the test's own.
const LOGICAL_AND: u32 = 167;

fn variant(dtype: DType, op: ReduceOp, sources: u8, native: bool) -> Variant {
    let merges = leaf_merges(sources.into()).enumerate();
    let arithmetic = Arithmetic {
        normal_f32: native,
        native_f32: native,
        native_f64: native,
        native_i64: native,
        storage_8: native,
        ..Arithmetic::default()
    };
    Variant {
        dtype,
        op: Some(op),
        partial: false,
        sources,
        dests: 1,
        partials: 0,
        merges: merges.map(|(i, merges)| u64::from(merges) << (4 * i)).sum(),
        arithmetic,
        group_size: 64,
    }
}

fn specialised(variant: &Variant) -> (usize, Vec<u32>) {
    let module = variant.module().words(FloatControls::default());
    let words = specialise(&module, &variant.constants().unwrap());
    (module.len(), words)
}

/// Is the tool there?
fn has_validator() -> bool {
    let found = Command::new("spirv-val").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: spirv-val is not installed (apt install spirv-tools)");
    }
    found
}

fn validate(words: &[u32], what: &str) {
    let name = format!("unisono-{}-{what}.spv", std::process::id());
    let path = std::env::temp_dir().join(name);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(&path, bytes).unwrap();
    let run = Command::new("spirv-val").args(["--target-env", "vulkan1.1"]).arg(&path).output();
    std::fs::remove_file(&path).unwrap();
    let run = run.unwrap();
    assert!(run.status.success(), "{what}: {}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn what_is_left_is_valid() {
    if !has_validator() {
        return;
    }
    for dtype in DType::ALL {
        for (op, sources) in [(ReduceOp::Sum, 2), (ReduceOp::Avg, 7), (ReduceOp::Min, 16)] {
            for native in [false, true] {
                let (_, words) = specialised(&variant(dtype, op, sources, native));
                validate(&words, &format!("{dtype}-{op}-{native}"));
            }
        }
    }
}

#[test]
fn most_of_a_module_is_left_out() {
    for dtype in DType::ALL {
        let (before, words) = specialised(&variant(dtype, ReduceOp::Sum, 2, false));
        assert!(words.len() < before * 2 / 3, "{dtype}: {} of {before} words", words.len());
        let left: Vec<u32> = split(&words).into_iter().map(opcode).collect();
        let special = [SPEC_CONSTANT, SPEC_CONSTANT_OP, SPEC_CONSTANT_COMPOSITE];
        assert!(!left.iter().any(|op| special.contains(op)), "{dtype}");
    }
}

/// `NoContraction` stands on operations that must not be fused: none may be lost.
#[test]
fn decorations_of_what_is_left_stay() {
    let sum = variant(DType::F32, ReduceOp::Sum, 2, true);
    let module = sum.module().words(FloatControls::default());
    let kept = |words: &[u32]| {
        let is_sum = |i: &Instruction<'_>| opcode(i) == 129;
        let sums: Vec<u32> = split(words).into_iter().filter(is_sum).map(|i| i[2]).collect();
        let exact = |i: &Instruction<'_>| matches!(i[1..], [id, 42] if sums.contains(&id));
        let decorations = split(words).into_iter().filter(|i| opcode(i) == DECORATE);
        (sums.len(), decorations.filter(exact).count())
    };
    let (sums, exact) = kept(&module);
    assert_eq!((sums, exact), (1, 1), "binary32 has one addition");
    assert_eq!(kept(&specialised(&sum).1), (1, 1));
}

/// A module with one function, given as instructions, and a constant 10, which says
/// whether number 0 is 5; 11 is not known.
fn module(body: &[(u32, &[u32])]) -> Vec<u32> {
    let mut words = vec![0x0723_0203, 0x0001_0300, 0, 100, 0];
    let before: [(u32, &[u32]); 8] = [
        (ENTRY_POINT, &[5, 50, u32::from_le_bytes(*b"main"), 0]),
        (DECORATE, &[9, SPEC_ID, 0]),
        (19, &[1]),
        (20, &[2]),
        (21, &[3, 32, 0]),
        (SPEC_CONSTANT, &[3, 9, 7]),
        (CONSTANT, &[3, 8, 5]),
        (SPEC_CONSTANT_OP, &[2, 10, 170, 9, 8]),
    ];
    let open: [(u32, &[u32]); 1] = [(FUNCTION, &[1, 50, 0, 4])];
    let all = before.iter().chain(&open).chain(body).chain(&[(FUNCTION_END, &[] as &[u32])]);
    for &(opcode, operands) in all {
        write(&mut words, opcode, operands);
    }
    words
}

/// The labels that are left, and the operands of the phis.
fn left(words: &[u32]) -> (Vec<u32>, Vec<Vec<u32>>) {
    let of = |wanted| split(words).into_iter().filter(move |i| opcode(i) == wanted);
    (of(LABEL).map(|i| i[1]).collect(), of(PHI).map(|i| i[3..].to_vec()).collect())
}

#[test]
fn the_branch_that_is_taken_stays() {
    let words = module(&[
        (LABEL, &[20]),
        (SELECTION_MERGE, &[23, 0]),
        (BRANCH_CONDITIONAL, &[10, 21, 22]),
        (LABEL, &[21]),
        (LOGICAL_AND, &[2, 30, 10, 10]),
        (BRANCH, &[23]),
        (LABEL, &[22]),
        (BRANCH, &[23]),
        (LABEL, &[23]),
        (PHI, &[2, 31, 30, 21, 10, 22]),
        (253, &[]),
    ]);
    // 5 == 5, and 6 is not 5.
    assert_eq!(left(&specialise(&words, &[(0, 5)])), (vec![20, 21, 23], vec![vec![30, 21]]));
    assert_eq!(left(&specialise(&words, &[(0, 6)])), (vec![20, 22, 23], vec![vec![10, 22]]));
    // Nothing is known of it: nothing changes.
    assert_eq!(specialise(&words, &[]), words);
}

#[test]
fn loops_and_merges_that_nothing_reaches_stay_whole() {
    let words = module(&[
        (LABEL, &[20]),
        (SELECTION_MERGE, &[25, 0]),
        (BRANCH_CONDITIONAL, &[11, 21, 24]),
        (LABEL, &[21]),
        (SELECTION_MERGE, &[23, 0]),
        (BRANCH_CONDITIONAL, &[10, 22, 23]),
        (LABEL, &[22]),
        (253, &[]),
        (LABEL, &[23]),
        (BRANCH, &[25]),
        (LABEL, &[24]),
        (253, &[]),
        (LABEL, &[25]),
        (LOGICAL_AND, &[2, 30, 10, 10]),
        (253, &[]),
    ]);
    let out = specialise(&words, &[(0, 5)]);
    // 25 is still the merge of 20, but only to be named.
    assert_eq!(left(&out).0, [20, 21, 22, 24, 25]);
    let last: Vec<u32> = split(&out).into_iter().rev().take(3).map(opcode).collect();
    assert_eq!(last, [FUNCTION_END, UNREACHABLE, LABEL]);
    let words = module(&[
        (LABEL, &[20]),
        (BRANCH, &[21]),
        (LABEL, &[21]),
        (LOOP_MERGE, &[23, 22, 0]),
        (BRANCH_CONDITIONAL, &[10, 23, 22]),
        (LABEL, &[22]),
        (BRANCH, &[21]),
        (LABEL, &[23]),
        (253, &[]),
    ]);
    assert_eq!(left(&specialise(&words, &[(0, 5)])).0, [20, 21, 22, 23]);
}

#[test]
fn nonsense_does_no_harm() {
    let (_, whole) = specialised(&variant(DType::U8, ReduceOp::Sum, 2, true));
    for words in [&whole[..0], &whole[..3], &whole[..5], &whole[..900]] {
        specialise(words, &[(0, 1)]);
    }
    assert!(split(&[1, 2, 3, 4, 5, 0, 9]).is_empty());
}
