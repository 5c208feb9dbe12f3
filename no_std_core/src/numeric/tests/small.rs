//! Small formats: exhaustive round trips, brute-force rounding, an independent library.

use super::super::small::{BF16, F8E4M3, F8E5M2, F16, Format};
use super::*;

/// Format, sign bit, number of finite codes without sign.
const FORMATS: [(Format, u16, u16); 4] =
    [(F16, 0x8000, 0x7c00), (BF16, 0x8000, 0x7f80), (F8E4M3, 0x80, 0x7f), (F8E5M2, 0x80, 0x7c)];

#[test]
fn every_code_survives_a_round_trip() {
    for (format, sign, finite) in FORMATS {
        for magnitude in 0..sign {
            for code in [magnitude, magnitude | sign] {
                let value = format.decode(code);
                let back = format.encode(f64::from(value));
                if value.is_nan() {
                    assert!(magnitude >= finite);
                    assert_eq!(value.to_bits(), 0x7fc0_0000);
                    assert_eq!(back, format.nan());
                } else {
                    assert_eq!(back, code, "{format:?} {value}");
                    assert_eq!(value.is_finite(), magnitude < finite);
                }
            }
        }
    }
}

#[test]
fn sixteen_bits_decode_as_the_half_crate_does() {
    for code in 0..=u16::MAX {
        let (ours, theirs) = (F16.decode(code), half::f16::from_bits(code).to_f32_const());
        assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()));
        let (ours, theirs) = (BF16.decode(code), half::bf16::from_bits(code).to_f32_const());
        assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()));
    }
}

#[test]
fn sixteen_bits_round_binary32_as_the_half_crate_does() {
    // A stride that is prime: every exponent, every kind of fraction, about 4 million values.
    for bits in (0..=u32::MAX).step_by(1021) {
        let value = f32::from_bits(bits);
        if !value.is_nan() {
            let wide = f64::from(value);
            assert_eq!(F16.encode(wide), half::f16::from_f32_const(value).to_bits(), "{value}");
            assert_eq!(BF16.encode(wide), half::bf16::from_f32_const(value).to_bits(), "{value}");
        }
    }
}

/// All the finite magnitudes of a format, and the one that would follow if the range went on.
fn ladder(format: Format, finite: u16) -> Vec<f64> {
    let mut values: Vec<f64> = (0..finite).map(|c| f64::from(format.decode(c))).collect();
    let top = values.len() - 1;
    values.push(2.0 * values[top] - values[top - 1]);
    values
}

/// The code of the nearest rung, ties to the even code, by looking at all of them.
fn nearest(ladder: &[f64], value: f64) -> u16 {
    let distance = |code: usize| (ladder[code] - value).abs();
    let best = (0..ladder.len()).map(distance).fold(f64::INFINITY, f64::min);
    let mut ties = (0..ladder.len()).filter(|&code| distance(code) == best);
    let (first, second) = (ties.next().unwrap(), ties.next());
    second.filter(|code| code % 2 == 0).unwrap_or(first) as u16
}

#[test]
fn fp8_rounds_to_the_nearest_of_all_values() {
    let mut chance = Chance(7);
    for (format, sign, finite) in [FORMATS[2], FORMATS[3]] {
        let ladder = ladder(format, finite);
        let mut probes = vec![0.0, f64::MIN_POSITIVE, f64::from(f32::MIN_POSITIVE), 5e-324];
        for pair in ladder.windows(2) {
            let middle = f64::midpoint(pair[0], pair[1]);
            for x in [pair[0], middle, pair[1]] {
                // Neighbours in binary64 and in binary32.
                let single = (x as f32).to_bits();
                probes.extend([x, x.next_up(), x.next_down().max(0.0)]);
                probes.push(f64::from(f32::from_bits(single + 1)));
                probes.push(f64::from(f32::from_bits(single.saturating_sub(1))));
            }
        }
        let top = ladder[usize::from(finite)];
        probes.extend((0..20_000).map(|_| {
            let x = f64::from_bits(chance.next() % (top.to_bits() - (900 << 52)) + (900 << 52));
            x.min(top)
        }));
        for x in probes {
            let want = nearest(&ladder, x);
            assert_eq!(format.encode(x), want, "{format:?} {x:e}");
            let negative = if want == format.nan() { want } else { want | sign };
            assert_eq!(format.encode(-x), negative, "{format:?} -{x:e}");
        }
    }
}

#[test]
fn overflow_and_nan_of_fp8() {
    let inf = f64::INFINITY;
    for (x, e4m3, e5m2) in [
        (448.0, 0x7e, 0x5f),
        (464.0, 0x7e, 0x5f), // e4m3: half-way to 480, which would be an odd code
        (464.1, 0x7f, 0x5f),
        (57344.0, 0x7f, 0x7b),
        (61439.0, 0x7f, 0x7b),
        (61440.0, 0x7f, 0x7c), // e5m2: half-way, and infinity has the even code
        (1e300, 0x7f, 0x7c),
        (-1e300, 0x7f, 0xfc),
        (inf, 0x7f, 0x7c),
        (-inf, 0x7f, 0xfc),
        (f64::NAN, 0x7f, 0x7e),
        (-f64::NAN, 0x7f, 0x7e),
        (-0.0, 0x80, 0x80),
        (0.0009765625, 0x00, 0x14), // e4m3: half of the smallest subnormal
        (0.0009765626, 0x01, 0x14),
    ] {
        assert_eq!(F8E4M3.encode(x), e4m3, "{x}");
        assert_eq!(F8E5M2.encode(x), e5m2, "{x}");
    }
}

#[test]
fn binary64_is_rounded_once() {
    // Just above a tie of f16, and so little that binary32 would round it back onto the tie.
    let x = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
    assert_eq!(F16.encode(x), 0x3c01);
    assert_eq!(F16.encode(f64::from(x as f32)), 0x3c00);
    let x = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
    assert_eq!(BF16.encode(x), 0x3f81);
    assert_eq!(F8E4M3.encode(1.0 + 2f64.powi(-4) + 2f64.powi(-50)), 0x39);
    // Subnormal, same thing.
    assert_eq!(F16.encode(2f64.powi(-25)), 0);
    assert_eq!(F16.encode(2f64.powi(-25).next_up()), 1);
    assert_eq!(BF16.encode(2f64.powi(-134).next_up()), 1);
}
