//! f16, bf16 and fp8 without a branch, lane by lane, so that loops over them become vector code.
//!
//! These are other formulas than the reference's on purpose: the tests compare the two on every
//! code and on every kind of rounding.

/// The bits of 2^power as binary32.
const fn power(power: i32) -> u32 {
    ((power + 127) as u32) << 23
}

/// f16 to binary32. A NaN stays some NaN.
#[inline(always)]
pub fn decode_f16(code: u16) -> f32 {
    decode::<10, 15>(u32::from(code) & 0x7fff, u32::from(code) >> 15, 0x7c00)
}

/// e5m2 is the upper half of f16.
#[inline(always)]
pub fn decode_e5m2(code: u8) -> f32 {
    decode::<2, 15>(u32::from(code) & 0x7f, u32::from(code) >> 7, 0x7c)
}

/// e4m3 to binary32.
#[inline(always)]
pub fn decode_e4m3(code: u8) -> f32 {
    // 0x7f moves to where `decode` expects NaN: any magnitude with the top exponent of binary32.
    decode::<3, 7>(u32::from(code) & 0x7f, u32::from(code) >> 7, 0x7f)
}

/// bf16 is the upper half of binary32.
#[inline(always)]
pub fn decode_bf16(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

/// `FRACTION` and `BIAS` describe the format, codes from `special` on are infinite or NaN.
#[inline(always)]
fn decode<const FRACTION: u32, const BIAS: i32>(magnitude: u32, sign: u32, special: u32) -> f32 {
    let shifted = magnitude << (23 - FRACTION);
    let normal = shifted + (((127 - BIAS) as u32) << 23);
    // With the exponent field of the smallest normal number, a subnormal is 2^(1-BIAS) too large;
    // the subtraction is exact.
    let least = power(1 - BIAS);
    let subnormal = (f32::from_bits(shifted | least) - f32::from_bits(least)).to_bits();
    let value = if magnitude >> FRACTION == 0 { subnormal } else { normal };
    let value = if magnitude >= special { shifted | 0x7f80_0000 } else { value };
    f32::from_bits(value | sign << 31)
}

/// binary32, NaN canonical, to f16.
#[inline(always)]
pub fn encode_f16(value: f32) -> u16 {
    encode::<10, 15, 0x7c00, 0x7e00>(value, 16) as u16
}

/// binary32, NaN canonical, to e5m2.
#[inline(always)]
pub fn encode_e5m2(value: f32) -> u8 {
    encode::<2, 15, 0x7c, 0x7e>(value, 8) as u8
}

/// binary32, NaN canonical, to e4m3.
#[inline(always)]
pub fn encode_e4m3(value: f32) -> u8 {
    let code = encode::<3, 7, 0x7f, 0x7f>(value, 8);
    // An overflow is a NaN here, and that has no sign.
    if code & 0x7f == 0x7f { 0x7f } else { code as u8 }
}

/// binary32, NaN canonical, to bf16.
#[inline(always)]
pub fn encode_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    // Cannot wrap: the largest patterns, NaN with a sign, are not canonical.
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The code of `value` with its sign in bit `width - 1`. `OVER` is what an overflow becomes.
#[inline(always)]
fn encode<const FRACTION: u32, const BIAS: i32, const OVER: u32, const NAN: u32>(
    value: f32,
    width: u32,
) -> u32 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let drop = 23 - FRACTION;
    // Half of the last place, less one if that makes a tie even; a carry raises the exponent.
    let rounded = (magnitude + (1 << (drop - 1)) - 1 + (magnitude >> drop & 1)) >> drop;
    let normal = rounded.wrapping_sub(((127 - BIAS) as u32) << FRACTION);
    // Next to `anchor`, the last place of binary32 is the format's smallest subnormal: the
    // addition itself rounds.
    let anchor = power(1 - BIAS - FRACTION as i32 + 23);
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(anchor)).to_bits() - anchor;
    let code = if magnitude < power(1 - BIAS) { subnormal } else { normal };
    let code = if code > OVER { OVER } else { code };
    let code = if magnitude > 0x7f80_0000 { NAN } else { code };
    code | bits >> 31 << (width - 1)
}
