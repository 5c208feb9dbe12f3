//! The fold: golden vectors, exact recomputation, refusals.

use super::*;
use proptest::prelude::*;

const NAN: u32 = 0x7fc0_0000;

fn f32s(op: ReduceOp, leaves: &[f32]) -> u32 {
    let leaves: Vec<_> = leaves.iter().map(|x| x.to_le_bytes()).collect();
    u32::from_le_bytes(reduce(DType::F32, op, &leaves))
}

#[test]
fn canonical_order_is_the_tree_split_at_a_power_of_two() {
    fn tree(x: &[f32]) -> f32 {
        if x.len() == 1 {
            return x[0];
        }
        let (left, right) = x.split_at(x.len().next_power_of_two() / 2);
        tree(left) + tree(right)
    }
    let mut chance = Chance(3);
    for k in 1..=65 {
        let leaves: Vec<f32> = (0..k).map(|_| chance.next() as f32 / 1e9).collect();
        assert_eq!(f32s(ReduceOp::Sum, &leaves), tree(&leaves).to_bits(), "{k}");
    }
    // ((1 + 2^-24) + (2^-24 + 2^-24)) keeps what a running sum would lose.
    let tiny = 2f32.powi(-24);
    assert_eq!(f32s(ReduceOp::Sum, &[1.0, tiny, tiny, tiny]), 0x3f80_0001);
}

#[test]
fn minimum_and_maximum_are_those_of_ieee_754_2019() {
    let nans = [f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff)];
    for op in [ReduceOp::Min, ReduceOp::Max, ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Avg] {
        for nan in nans {
            for other in [0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, nan] {
                assert_eq!(f32s(op, &[nan, other]), NAN);
                assert_eq!(f32s(op, &[other, nan]), NAN);
            }
            assert_eq!(f32s(op, &[nan]), NAN);
        }
    }
    for zeros in [[0.0, -0.0], [-0.0, 0.0]] {
        assert_eq!(f32s(ReduceOp::Min, &zeros), 0x8000_0000);
        assert_eq!(f32s(ReduceOp::Max, &zeros), 0);
    }
    assert_eq!(f32s(ReduceOp::Min, &[-0.0, -0.0]), 0x8000_0000);
    assert_eq!(f32s(ReduceOp::Max, &[-0.0, -0.0]), 0x8000_0000);
    assert_eq!(f32s(ReduceOp::Min, &[f32::NEG_INFINITY, 3.0]), 0xff80_0000);
    assert_eq!(f32s(ReduceOp::Max, &[f32::from_bits(1), -1.0]), 1);
}

#[test]
fn golden_values() {
    let f16 = |op, leaves: &[u16]| {
        let leaves: Vec<_> = leaves.iter().map(|x| x.to_le_bytes()).collect();
        u16::from_le_bytes(reduce(DType::F16, op, &leaves))
    };
    // 65504 + 65504 - 65504: the partial sum is past f16's range and comes back.
    assert_eq!(f16(ReduceOp::Sum, &[0x7bff, 0x7bff, 0xfbff]), 0x7bff);
    assert_eq!(f16(ReduceOp::Sum, &[0x7bff, 0x7bff]), 0x7c00);
    assert_eq!(f16(ReduceOp::Avg, &[0x7bff, 0x7bff]), 0x7bff);
    // 2048 + 1 + 1: f16 alone would stay at 2048.
    assert_eq!(f16(ReduceOp::Sum, &[0x6800, 0x3c00, 0x3c00]), 0x6801);
    // infinity - infinity; the smallest subnormal; a third.
    assert_eq!(f16(ReduceOp::Sum, &[0x7c00, 0xfc00]), 0x7e00);
    assert_eq!(f16(ReduceOp::Sum, &[0x0001, 0x0001]), 0x0002);
    assert_eq!(f16(ReduceOp::Avg, &[0x3c00, 0, 0]), 0x3555);
    let f8 = |dtype, op, leaves: &[u8]| {
        let leaves: Vec<_> = leaves.iter().map(|&x| [x]).collect();
        reduce(dtype, op, &leaves)[0]
    };
    assert_eq!(f8(DType::F8E4M3, ReduceOp::Sum, &[0x7e, 0x7e]), 0x7f);
    assert_eq!(f8(DType::F8E4M3, ReduceOp::Sum, &[0xfe, 0xfe]), 0x7f);
    assert_eq!(f8(DType::F8E4M3, ReduceOp::Avg, &[0xfe, 0xfe]), 0xfe);
    assert_eq!(f8(DType::F8E5M2, ReduceOp::Sum, &[0xfb, 0xfb]), 0xfc);
    assert_eq!(f8(DType::F8E5M2, ReduceOp::Max, &[0xff, 0x00]), 0x7e);
    assert_eq!(f8(DType::F8E5M2, ReduceOp::Min, &[0x80]), 0x80);
    assert_eq!(f8(DType::I8, ReduceOp::Sum, &[127, 1]), 0x80);
    assert_eq!(f8(DType::I8, ReduceOp::Avg, &[0xfb, 0xfe]), 0xfd); // -7 / 2 = -3
    assert_eq!(f8(DType::U8, ReduceOp::Avg, &[250, 250]), 122); // 500 mod 256 = 244
    assert_eq!(f8(DType::I8, ReduceOp::Avg, &[1; 200]), 0); // -56 / 200
    assert_eq!(f8(DType::U8, ReduceOp::BitXor, &[0xf0, 0xff, 1]), 0x0e);
}

#[test]
fn weights_round_before_the_fold() {
    let weighted = |weight: f64, x: f32| {
        let bytes = x.to_le_bytes();
        let source = Source { weight: Scalar::from_f64(weight), ..leaf(&bytes, 0) };
        let mut out = [0; 4];
        let finish = Finish::Final { ranks: 1 };
        fold(DType::F32, Some(ReduceOp::PreMulSum), finish, &[source], &mut out).unwrap();
        f32::from_le_bytes(out)
    };
    assert_eq!(weighted(0.1, 3.0), 0.1f32 * 3.0);
    assert_eq!(weighted(1e300, 1.0), f32::INFINITY);
    // A fused multiply-add would leave the error of the first product.
    let x = 1.0f32 + f32::EPSILON;
    let (a, b) = (x.to_le_bytes(), (-1.0f32).to_le_bytes());
    let square = f64::from(x * x);
    let sources = [
        Source { weight: Scalar::from_f64(f64::from(x)), ..leaf(&a, 0) },
        Source { weight: Scalar::from_f64(square), ..leaf(&b, 1) },
    ];
    let mut out = [0; 4];
    fold(DType::F32, Some(ReduceOp::PreMulSum), Finish::Partial, &sources, &mut out).unwrap();
    assert_eq!(f32::from_le_bytes(out), 0.0);
    // A partial is not weighted; integers take the weight modulo their width.
    let seven = Scalar::from_i64(-1);
    let sources = [
        Source { weight: seven, ..leaf(&[5], 0) },
        Source { weight: seven, form: Form::Partial, ..leaf(&[9], 1) },
    ];
    let mut out = [0];
    fold(DType::U8, Some(ReduceOp::PreMulSum), Finish::Partial, &sources, &mut out).unwrap();
    assert_eq!(out, [4]);
}

#[test]
fn a_copy_changes_no_bit() {
    let bytes: Vec<u8> = (0..=255).collect();
    for dtype in DType::ALL {
        for form in [Form::Leaf, Form::Final, Form::Partial] {
            let mut out = vec![0; 256];
            let source = Source { form, ..leaf(&bytes, 0) };
            fold(dtype, None, Finish::Final { ranks: 3 }, &[source], &mut out).unwrap();
            assert_eq!(out, bytes);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let (sum, and) = (Some(ReduceOp::Sum), Some(ReduceOp::BitAnd));
    let last = Finish::Final { ranks: 2 };
    let bytes = [0; 16];
    let refuse = |dtype, op, finish, sources: &[Source<&[u8]>], len| {
        let mut out = [0xa5; 32];
        let error = fold(dtype, op, finish, sources, &mut out[..len]).unwrap_err();
        assert_eq!(out, [0xa5; 32]);
        error
    };
    let two = [leaf(&bytes, 0), leaf(&bytes, 1)];
    assert_eq!(refuse(DType::F32, sum, last, &[], 16), FoldError::Program);
    assert_eq!(refuse(DType::F32, sum, last, &two[..1], 12), FoldError::Size);
    assert_eq!(refuse(DType::F32, sum, last, &two, 15), FoldError::Size);
    assert_eq!(refuse(DType::F16, sum, Finish::Partial, &two, 16), FoldError::Size);
    assert_eq!(refuse(DType::F32, sum, last, &two[1..], 16), FoldError::Program);
    assert_eq!(refuse(DType::F32, sum, last, &[two[0], two[0]], 16), FoldError::Program);
    assert_eq!(refuse(DType::F32, None, last, &two, 16), FoldError::Program);
    assert_eq!(refuse(DType::F32, and, last, &two, 16), FoldError::Op);
    let last_form = Source { form: Form::Final, ..leaf(&bytes, 0) };
    assert_eq!(refuse(DType::F32, sum, last, &[last_form], 16), FoldError::Form);
    let avg = Some(ReduceOp::Avg);
    for ranks in [0, RANKS_MAX + 1] {
        let finish = Finish::Final { ranks };
        assert_eq!(refuse(DType::I8, avg, finish, &two, 16), FoldError::Ranks);
    }
    let mut deep = vec![leaf(&bytes, 0); DEPTH + 1];
    deep[DEPTH].merges = DEPTH as u8;
    assert_eq!(refuse(DType::F32, sum, last, &deep, 16), FoldError::Depth);
    deep.remove(0);
    deep[DEPTH - 1].merges = DEPTH as u8 - 1;
    fold(DType::F32, sum, last, &deep, &mut [0; 16]).unwrap();
}

#[test]
fn single_elements_are_read_and_written() {
    for dtype in DType::ALL {
        let mut bytes = vec![0; 3 * dtype.size()];
        write_f64(dtype, &mut bytes, 1, 3.0).unwrap();
        assert_eq!(read_f64(dtype, &bytes, 1), Some(3.0));
        assert_eq!(read_f64(dtype, &bytes, 0), Some(0.0));
        assert_eq!(read_f64(dtype, &bytes, 3), None);
        assert_eq!(read_f64(dtype, &bytes, usize::MAX), None);
        assert_eq!(write_f64(dtype, &mut bytes, 3, 0.0), None);
        assert_eq!(read_int(dtype, &bytes, 1), (!dtype.is_float()).then_some(3));
        write_f64(dtype, &mut bytes, 0, -2.75).unwrap();
        let want = match dtype {
            DType::F8E5M2 => -3.0, // half-way between -2.5 and -3: to the even fraction
            _ if dtype.is_float() => -2.75,
            _ if dtype.is_signed_int() => -2.0,
            _ => 0.0,
        };
        assert_eq!(read_f64(dtype, &bytes, 0), Some(want), "{dtype}");
    }
    let mut bytes = [0; 8];
    write_f64(DType::I8, &mut bytes, 0, -1e9).unwrap();
    assert_eq!(read_int(DType::I8, &bytes, 0), Some(-128));
    let max = u64::MAX.to_le_bytes();
    assert_eq!(read_int(DType::U64, &max, 0), Some(i128::from(u64::MAX)));
    assert_eq!(read_int(DType::I64, &max, 0), Some(-1));
}

/// The exact value rounded to binary32: right for one operation whose exact result (or whose
/// twice-rounded one, as 53 >= 2 * 24 + 2) binary64 holds.
fn rounded(exact: f64) -> u32 {
    if exact.is_nan() { NAN } else { (exact as f32).to_bits() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn binary32_agrees_with_binary64(a in any::<u32>(), b in any::<u32>(), n in 1..=RANKS_MAX) {
        let (a, b) = (f32::from_bits(a), f32::from_bits(b));
        let (x, y) = (f64::from(a), f64::from(b));
        prop_assert_eq!(f32s(ReduceOp::Sum, &[a, b]), rounded(x + y));
        prop_assert_eq!(f32s(ReduceOp::Prod, &[a, b]), rounded(x * y));
        let mut out = [0; 4];
        let finish = Finish::Final { ranks: n };
        let bytes = a.to_le_bytes();
        fold(DType::F32, Some(ReduceOp::Avg), finish, &[leaf(&bytes, 0)], &mut out).unwrap();
        prop_assert_eq!(u32::from_le_bytes(out), rounded(x / f64::from(n)));
    }

    #[test]
    fn integers_agree_with_wide_ones(
        a in any::<i64>(), b in any::<i64>(), n in 1..=RANKS_MAX, dtype in 6usize..14,
    ) {
        let dtype = DType::ALL[dtype];
        let size = dtype.size();
        let (raw_a, raw_b) = (a.to_le_bytes(), b.to_le_bytes());
        let (x, y) = (
            read_int(dtype, &raw_a[..size], 0).unwrap(),
            read_int(dtype, &raw_b[..size], 0).unwrap(),
        );
        let sources = [leaf(&raw_a[..size], 0), leaf(&raw_b[..size], 1)];
        let wrap = |wide: i128| read_int(dtype, &wide.to_le_bytes()[..size], 0).unwrap();
        for (op, want) in [
            (ReduceOp::Sum, wrap(x + y)),
            (ReduceOp::Prod, wrap(x.wrapping_mul(y))),
            (ReduceOp::Min, if x < y { x } else { y }),
            (ReduceOp::Max, if x < y { y } else { x }),
            (ReduceOp::Avg, wrap(x + y) / i128::from(n)),
            (ReduceOp::BitAnd, wrap(x & y)),
            (ReduceOp::BitOr, wrap(x | y)),
            (ReduceOp::BitXor, wrap(x ^ y)),
        ] {
            let mut out = vec![0; size];
            fold(dtype, Some(op), Finish::Final { ranks: n }, &sources, &mut out).unwrap();
            prop_assert_eq!(read_int(dtype, &out, 0), Some(want), "{} {}", dtype, op);
        }
    }

    #[test]
    fn any_program_is_folded_or_refused(
        merges in proptest::collection::vec(0u8..4, 0..12), op in 0usize..9, dtype in 0usize..14,
    ) {
        let bytes = [0x5a; 64];
        let sources: Vec<_> = merges.iter().map(|&m| leaf(&bytes, m)).collect();
        let (dtype, op) = (DType::ALL[dtype], ReduceOp::ALL[op]);
        let mut out = [0; 64];
        let result = fold(dtype, Some(op), Finish::Final { ranks: 5 }, &sources, &mut out);
        let good = crate::fold::check_merges(merges) && op.supports(dtype);
        prop_assert_eq!(result.is_ok(), good);
    }
}
