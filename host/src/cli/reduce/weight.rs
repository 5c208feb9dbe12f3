//! Weights as they are written: whole numbers stay exact, whatever their form.

use std::str::FromStr;
use unisono::{DType, ReduceOp, Reduction, Scalar, Weight};

/// One of `--weights`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Written {
    /// The binary64 that is next to it, for floating types.
    near: f64,
    /// The number itself if it is a whole one, for integers. The binary64 does not do: it may be a
    /// whole number where the text is none, and another one from 2^53 on.
    whole: Option<i128>,
}

impl Written {
    /// The weight for tensors of this type; `None` if the type cannot hold it.
    pub fn scalar(self, dtype: DType) -> Option<Scalar> {
        let weight = match self.whole {
            _ if dtype.is_float() => Weight::Float(self.near),
            whole => Weight::Int(whole?),
        };
        Reduction { op: ReduceOp::PreMulSum, weight: Some(weight) }.scalar(dtype)
    }
}

impl FromStr for Written {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(near) if near.is_finite() => Ok(Self { near, whole: whole(text) }),
            _ => Err(format!("{text} is no weight")),
        }
    }
}

/// The whole number that a decimal one is: `3`, `-3.0` or `0.3e1`, but not `0.3`.
fn whole(text: &str) -> Option<i128> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (before, after) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{before}{after}");
    let short = digits.trim_end_matches('0');
    if short.is_empty() {
        return Some(0);
    }
    // Behind the digits that are left, so many zeros follow.
    let zeros = i64::from(exponent) + (digits.len() - short.len()) as i64 - after.len() as i64;
    let scale = 10i128.checked_pow(u32::try_from(zeros).ok()?)?;
    short.parse::<i128>().ok()?.checked_mul(scale)?.checked_mul(sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_many_forms() {
        for (text, want) in [
            ("0", 0),
            ("-0.0", 0),
            ("0e5", 0),
            ("007", 7),
            ("+12", 12),
            ("-3.", -3),
            (".5e1", 5),
            ("1.250E+2", 125),
            ("1200e-2", 12),
            ("9007199254740993.0", 9_007_199_254_740_993),
            ("9007199254740993000e-3", 9_007_199_254_740_993),
            ("18446744073709551615", 18_446_744_073_709_551_615),
        ] {
            assert_eq!(whole(text), Some(want), "{text}");
        }
        for text in ["0.5", "1e-1", "12.0625e3", "4503599627370497.5", "1e60", "1e-400"] {
            assert_eq!(whole(text), None, "{text}");
        }
        // Its binary64 is 1.
        assert_eq!(whole("0.99999999999999999999"), None);
    }

    #[test]
    fn types_get_what_they_can_hold() {
        let scalar = |text: &str, dtype| {
            text.parse::<Written>().ok().and_then(|written| written.scalar(dtype))
        };
        let i64_of = |value| Some(Scalar::from_i64(value));
        assert_eq!(scalar("-2.0", DType::I8), i64_of(-2));
        assert_eq!(scalar("-9223372036854775808", DType::U64), i64_of(i64::MIN));
        assert_eq!(scalar("9223372036854775808", DType::U64), Some(Scalar(1 << 63)));
        assert_eq!(scalar("18446744073709551615.0", DType::U64), Some(Scalar(u64::MAX)));
        for (text, dtype) in [
            ("18446744073709551616", DType::U64),
            ("9223372036854775808", DType::I64),
            ("-9223372036854775809", DType::U64),
            ("0.99999999999999999999", DType::I32),
        ] {
            assert_eq!(scalar(text, dtype), None, "{text} {dtype}");
        }
        assert_eq!(scalar("1e60", DType::F32), Some(Scalar::from_f64(1e60)));
        assert_eq!(scalar("-0", DType::F64), Some(Scalar::from_f64(-0.0)));
        for wrong in ["", "x", "inf", "NaN", "1e400", "--1"] {
            assert!(wrong.parse::<Written>().is_err(), "{wrong}");
        }
    }
}
