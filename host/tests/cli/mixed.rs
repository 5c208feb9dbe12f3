//! Files with every type at once, against the scalar reference tensor by tensor.

use crate::tool::{Tensor, folder, run, succeed, write};
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;
use std::path::Path;
use unisono::{DType, ReduceOp, Scalar};
use unisono_core::fold::leaf_merges;
use unisono_core::{Finish, Form, Source, numeric};

const TYPES: [(&str, Dtype, DType); 14] = [
    ("w.f64", Dtype::F64, DType::F64),
    ("a.f32", Dtype::F32, DType::F32),
    ("x.f16", Dtype::F16, DType::F16),
    ("b.bf16", Dtype::BF16, DType::BF16),
    ("e4m3", Dtype::F8_E4M3, DType::F8E4M3),
    ("e5m2", Dtype::F8_E5M2, DType::F8E5M2),
    ("i8", Dtype::I8, DType::I8),
    ("i16", Dtype::I16, DType::I16),
    ("i32", Dtype::I32, DType::I32),
    ("i64", Dtype::I64, DType::I64),
    ("u8", Dtype::U8, DType::U8),
    ("u16", Dtype::U16, DType::U16),
    ("u32", Dtype::U32, DType::U32),
    ("u64", Dtype::U64, DType::U64),
];

/// Any bits, NaN and infinities among them.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| byte()).collect()
}

/// A rank's tensors: one of each type, an odd number of elements, then an empty one and a scalar.
fn tensors(rank: u64, types: &[(&'static str, Dtype, DType)]) -> Vec<Tensor> {
    let mut all: Vec<_> = types
        .iter()
        .enumerate()
        .map(|(i, &(name, dtype, ours))| {
            let shape = vec![3 + i, 37];
            let bytes = (3 + i) * 37 * ours.size();
            Tensor { name, dtype, shape, data: noise(rank * 100 + i as u64, bytes) }
        })
        .collect();
    all.push(Tensor::f32("empty", &[4, 0, 2], &[]));
    let scalar = noise(rank + 7000, 2);
    all.push(Tensor { name: "scalar", dtype: Dtype::U16, shape: vec![], data: scalar });
    all
}

fn ours(dtype: Dtype) -> DType {
    TYPES.iter().find(|t| t.1 == dtype).expect("a type of the table").2
}

/// What the tool must write for one tensor of all ranks.
fn expected(dtype: DType, op: ReduceOp, ranks: &[Vec<u8>], weights: &[Scalar]) -> Vec<u8> {
    let merges = leaf_merges(ranks.len() as u32);
    let sources: Vec<_> = ranks
        .iter()
        .zip(weights)
        .zip(merges)
        .map(|((mem, &weight), merges)| Source { mem: &mem[..], form: Form::Leaf, weight, merges })
        .collect();
    let mut out = vec![0; ranks[0].len()];
    let finish = Finish::Final { ranks: ranks.len() as u32 };
    numeric::fold(dtype, Some(op), finish, &sources, &mut out).expect("a fold");
    out
}

/// Writes three ranks' files; returns them tensor by tensor.
fn three_ranks(folder: &Path, types: &[(&'static str, Dtype, DType)]) -> Vec<Vec<Tensor>> {
    let ranks: Vec<_> = (0..3).map(|rank| tensors(rank, types)).collect();
    for (rank, tensors) in ranks.iter().enumerate() {
        // Only rank 0's metadata reach the output, and the order in the file is each file's own.
        let metadata = HashMap::from([("rank".to_owned(), rank.to_string())]);
        write(&folder.join(format!("r{rank}.st")), tensors, Some(metadata));
    }
    ranks
}

fn weight(dtype: DType, weight: i64) -> Scalar {
    if dtype.is_float() { Scalar::from_f64(weight as f64) } else { Scalar::from_i64(weight) }
}

#[track_caller]
fn check(folder: &Path, ranks: &[Vec<Tensor>], op: ReduceOp, options: &[&str]) {
    let args = ["reduce", "--op", op.name(), "r0.st", "r1.st", "r2.st", "-o", "out.st", "--verify"];
    let report = succeed(folder, &[&args[..], options].concat());
    assert!(report.contains("0 elements differ"), "{report}");
    let bytes = std::fs::read(folder.join("out.st")).expect("the output");
    let (_, about) = SafeTensors::read_metadata(&bytes).expect("a header");
    let rank = about.metadata().as_ref().and_then(|m| m.get("rank").cloned());
    assert_eq!(rank.as_deref(), Some("0"));
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    assert_eq!(file.names().len(), ranks[0].len());
    for (i, tensor) in ranks[0].iter().enumerate() {
        let dtype = ours(tensor.dtype);
        let data: Vec<_> = ranks.iter().map(|r| r[i].data.clone()).collect();
        let weights = [1, -2, 3].map(|w| weight(dtype, w));
        let got = file.tensor(tensor.name).expect("the tensor");
        assert_eq!((got.dtype(), got.shape()), (tensor.dtype, &tensor.shape[..]));
        assert!(got.data() == expected(dtype, op, &data, &weights), "{} {op}", tensor.name);
    }
}

#[test]
fn every_type_in_one_file() {
    let folder = folder();
    let ranks = three_ranks(folder.path(), &TYPES);
    for op in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod] {
        check(folder.path(), &ranks, op, &[]);
    }
    check(folder.path(), &ranks, ReduceOp::PreMulSum, &["--weights", "1,-2,3"]);
    for options in [
        &["--bucket", "0"][..],
        &["--bucket", "300"],
        &["--algo", "binomial", "--chunk", "10"],
        &["--algo", "star:2", "--chunk", "64B", "--window", "2"],
    ] {
        check(folder.path(), &ranks, ReduceOp::Avg, options);
    }
}

#[test]
fn integers_have_bitwise_operators_and_any_schedule() {
    let folder = folder();
    // The empty tensor is of a floating type: without it here.
    let mut ranks = three_ranks(folder.path(), &TYPES[6..]);
    for (rank, tensors) in ranks.iter_mut().enumerate() {
        tensors.retain(|t| t.name != "empty");
        let metadata = HashMap::from([("rank".to_owned(), rank.to_string())]);
        write(&folder.path().join(format!("r{rank}.st")), tensors, Some(metadata));
    }
    for op in [ReduceOp::BitAnd, ReduceOp::BitOr, ReduceOp::BitXor] {
        check(folder.path(), &ranks, op, &[]);
    }
    // Integer sums are the same in any order, so the ring is canonical here.
    check(folder.path(), &ranks, ReduceOp::Sum, &["--algo", "ring", "--chunk", "5"]);
}

#[test]
fn weights_must_fit() {
    let folder = folder();
    three_ranks(folder.path(), &TYPES);
    let args = ["reduce", "--op", "mulsum", "r0.st", "r1.st", "r2.st", "-o", "out.st"];
    let whole = "error: an integer tensor (i8) needs a whole number from -2^63 to 2^63 - 1 as its \
                 weight\n";
    for (weights, error) in [
        ("0.5,1,2", whole),
        // The nearest binary64 is 1.
        ("0.99999999999999999999,1,2", whole),
        // 64 bits hold it, but i8 would make another number of it.
        ("9223372036854775808,1,2", whole),
        ("1,2", "error: 2 weights for 3 ranks\n"),
        ("1,2,inf", "error: invalid value 'inf' for '--weights <W,W,…>': inf is no weight\n"),
    ] {
        let ended = run(folder.path(), &[&args[..], &["--weights", weights]].concat());
        assert_eq!((ended.code, ended.err.as_str()), (Some(2), error));
        assert!(!folder.path().join("out.st").exists());
    }
}

/// One rank's tensor times its weight, the other's times 0, from the tool.
#[track_caller]
fn weighted<const N: usize>(dtype: Dtype, values: [u64; N], weight: &str) -> [u64; N] {
    let folder = folder();
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let tensor = Tensor { name: "w", dtype, shape: vec![N], data };
    write(&folder.path().join("a.st"), &[tensor], None);
    let weights = format!("--weights={weight},0");
    let args = ["reduce", "--op", "mulsum", "a.st", "a.st", "-o", "out.st", "--verify", &weights];
    succeed(folder.path(), &args);
    let out = std::fs::read(folder.path().join("out.st")).expect("the output");
    let words = out[out.len() - 8 * N..].chunks(8);
    let words: Vec<_> = words.map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes"))).collect();
    words.try_into().expect("as many")
}

/// Whole weights are integers, not floating-point numbers: 2^53 + 1 is exact in every form.
#[test]
fn large_whole_weights_are_exact() {
    let values = [(1 << 60) + 1, 7u64.wrapping_neg(), 3];
    for text in ["9007199254740993", "9007199254740993.0", "90071992547409930e-1"] {
        let want = values.map(|v| v.wrapping_mul(9_007_199_254_740_993));
        assert_eq!(weighted(Dtype::I64, values, text), want, "{text}");
    }
}

/// The upper half of u64 belongs to it alone.
#[test]
fn the_largest_weights_are_for_the_largest_type() {
    for weight in [1 << 63, u64::MAX] {
        let want = [1, 2, 3].map(|v: u64| v.wrapping_mul(weight));
        assert_eq!(weighted(Dtype::U64, [1, 2, 3], &weight.to_string()), want);
    }
    let folder = folder();
    let tensor = Tensor { name: "w", dtype: Dtype::U64, shape: vec![1], data: vec![1; 8] };
    write(&folder.path().join("a.st"), &[tensor], None);
    let args = ["reduce", "--op", "mulsum", "a.st", "-o", "o.st", "--weights"];
    let ended = run(folder.path(), &[&args[..], &["18446744073709551616"]].concat());
    let error = "error: an integer tensor (u64) needs a whole number from -2^63 to 2^64 - 1 as its \
                 weight\n";
    assert_eq!((ended.code, ended.err.as_str()), (Some(2), error));
}

#[test]
fn files_without_elements_are_files() {
    let folder = folder();
    write(&folder.path().join("none.st"), &[], None);
    write(&folder.path().join("empty.st"), &[Tensor::f32("e", &[0], &[])], None);
    for file in ["none.st", "empty.st"] {
        let report = succeed(
            folder.path(),
            &["reduce", file, file, "-o", "out.st", "--verify", "--op", "avg"],
        );
        // SHA-256 of nothing.
        assert!(report.contains("e3b0c44298fc1c149afbf4c8996fb924"), "{report}");
        assert!(report.contains("(0 compared bit by bit)"), "{report}");
        let same = std::fs::read(folder.path().join(file)).expect("the input");
        assert!(same == std::fs::read(folder.path().join("out.st")).expect("the output"));
    }
}
