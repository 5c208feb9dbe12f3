//! f16 and fp8 with the conversion instructions of x86-64.
//!
//! e5m2 is the upper half of f16. e4m3 has the fraction's upper bits and a part of the exponents of
//! f16: shifted into place it is an f16 that is 2^8 too small, subnormals included. So both are
//! widened through f16, exactly, and rounded through it as well: first to odd (truncated, and the
//! last bit set if anything was lost), which keeps enough of the value for the second rounding, to
//! nearest even, to be the only one that matters (11 bits, at least two more than fp8 keeps).

use super::convert::Convert;
use super::{loops::get, small};
use core::arch::x86_64::*;

/// Rounding mode of a conversion: to nearest even.
const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;
/// Rounding mode of a conversion: toward zero.
const TRUNCATE: i32 = _MM_FROUND_TO_ZERO;
/// e4m3 in place of f16 is 2^8 too small.
const E4M3_SCALE: f32 = 256.0;
/// What e4m3's NaN would be if it were a number.
const E4M3_NAN: f32 = 480.0;

/// `$vector` for all whole groups of `$lanes` elements, `$scalar` for the rest.
macro_rules! decode {
    ($out:ident, $from:ident, $lanes:literal $code:ident, $vector:ident, $scalar:path) => {
        let groups = $out.len() / $lanes;
        for group in 0..groups {
            let to = $out.as_mut_ptr().add(group * $lanes);
            $vector($from.add(group * $lanes * size_of::<$code>()), to);
        }
        for i in groups * $lanes..$out.len() {
            $out[i] = $scalar(get($from.cast::<$code>(), i));
        }
    };
}

macro_rules! encode {
    ($out:ident, $from:ident, $lanes:literal $code:ident, $vector:ident, $scalar:path) => {
        let groups = $from.len() / $lanes;
        for group in 0..groups {
            let from = $from.as_ptr().add(group * $lanes);
            $vector(from, $out.add(group * $lanes * size_of::<$code>()));
        }
        for i in groups * $lanes..$from.len() {
            $out.cast::<$code>().add(i).write_unaligned($scalar($from[i]));
        }
    };
}

/// The conversions of one instruction set; `$loads` and so on work on `$lanes` elements.
macro_rules! converts {
    ($(#[$doc:meta])* $name:ident $lanes:literal $module:ident) => {
        $(#[$doc])*
        pub struct $name;

        impl Convert for $name {
            #[inline(always)]
            unsafe fn decode_f16(out: &mut [f32], from: *const u8) {
                use $module::decode_f16;
                // SAFETY: the caller's promise; all groups lie in the spans. So below.
                unsafe { decode!(out, from, $lanes u16, decode_f16, small::decode_f16); }
            }

            #[inline(always)]
            unsafe fn decode_e4m3(out: &mut [f32], from: *const u8) {
                use $module::decode_e4m3;
                // SAFETY: as above.
                unsafe { decode!(out, from, $lanes u8, decode_e4m3, small::decode_e4m3); }
            }

            #[inline(always)]
            unsafe fn decode_e5m2(out: &mut [f32], from: *const u8) {
                use $module::decode_e5m2;
                // SAFETY: as above.
                unsafe { decode!(out, from, $lanes u8, decode_e5m2, small::decode_e5m2); }
            }

            #[inline(always)]
            unsafe fn encode_f16(out: *mut u8, from: &[f32]) {
                use $module::encode_f16;
                // SAFETY: as above.
                unsafe { encode!(out, from, $lanes u16, encode_f16, small::encode_f16); }
            }

            #[inline(always)]
            unsafe fn encode_e4m3(out: *mut u8, from: &[f32]) {
                use $module::encode_e4m3;
                // SAFETY: as above.
                unsafe { encode!(out, from, $lanes u8, encode_e4m3, small::encode_e4m3); }
            }

            #[inline(always)]
            unsafe fn encode_e5m2(out: *mut u8, from: &[f32]) {
                use $module::encode_e5m2;
                // SAFETY: as above.
                unsafe { encode!(out, from, $lanes u8, encode_e5m2, small::encode_e5m2); }
            }
        }
    };
}

converts!(
    /// F16C, eight lanes.
    Avx2 8 eight
);
converts!(
    /// AVX-512, sixteen lanes.
    Avx512 16 sixteen
);

/// Eight lanes. All functions read and write exactly eight elements at any address.
mod eight {
    use super::*;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub unsafe fn decode_f16(from: *const u8, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(from.cast()))) }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub unsafe fn decode_e5m2(from: *const u8, to: *mut f32) {
        // SAFETY: the caller's promise.
        let codes = unsafe { _mm_cvtepu8_epi16(_mm_loadl_epi64(from.cast())) };
        let value = _mm256_cvtph_ps(_mm_slli_epi16::<8>(codes));
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(to, value) }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub unsafe fn decode_e4m3(from: *const u8, to: *mut f32) {
        // SAFETY: the caller's promise.
        let codes = unsafe { _mm_cvtepi8_epi16(_mm_loadl_epi64(from.cast())) };
        let sign = _mm_and_si128(codes, _mm_set1_epi16(i16::MIN));
        let magnitude = _mm_and_si128(_mm_slli_epi16::<7>(codes), _mm_set1_epi16(0x3f80));
        let small = _mm256_cvtph_ps(_mm_or_si128(sign, magnitude));
        let value = _mm256_mul_ps(small, _mm256_set1_ps(E4M3_SCALE));
        let absolute = _mm256_andnot_ps(_mm256_set1_ps(-0.0), value);
        let nan = _mm256_cmp_ps::<_CMP_EQ_OQ>(absolute, _mm256_set1_ps(E4M3_NAN));
        // All ones is a NaN.
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(to, _mm256_or_ps(value, nan)) }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub unsafe fn encode_f16(from: *const f32, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(from))) }
    }

    /// f16, rounded to odd.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn odd(value: __m256) -> __m128i {
        let truncated = _mm256_cvtps_ph::<TRUNCATE>(value);
        let lost = _mm256_cmp_ps::<_CMP_NEQ_OQ>(_mm256_cvtph_ps(truncated), value);
        let lost = _mm256_castps_si256(lost);
        let (low, high) = (_mm256_castsi256_si128(lost), _mm256_extracti128_si256::<1>(lost));
        let lost = _mm_srli_epi16::<15>(_mm_packs_epi32(low, high));
        _mm_or_si128(truncated, lost)
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub unsafe fn encode_e5m2(from: *const f32, to: *mut u8) {
        // SAFETY: the caller's promise.
        let half = odd(unsafe { _mm256_loadu_ps(from) });
        let magnitude = _mm_and_si128(half, _mm_set1_epi16(0x7fff));
        let even = _mm_and_si128(_mm_srli_epi16::<8>(magnitude), _mm_set1_epi16(1));
        let rounded = _mm_add_epi16(_mm_add_epi16(magnitude, _mm_set1_epi16(0x7f)), even);
        let sign = _mm_and_si128(_mm_srli_epi16::<8>(half), _mm_set1_epi16(0x80));
        let code = _mm_or_si128(_mm_srli_epi16::<8>(rounded), sign);
        // SAFETY: the caller's promise.
        unsafe { _mm_storel_epi64(to.cast(), _mm_packus_epi16(code, code)) }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub unsafe fn encode_e4m3(from: *const f32, to: *mut u8) {
        // SAFETY: the caller's promise.
        let value = unsafe { _mm256_loadu_ps(from) };
        let half = odd(_mm256_mul_ps(value, _mm256_set1_ps(1.0 / E4M3_SCALE)));
        let magnitude = _mm_and_si128(half, _mm_set1_epi16(0x7fff));
        let even = _mm_and_si128(_mm_srli_epi16::<7>(magnitude), _mm_set1_epi16(1));
        let rounded = _mm_add_epi16(_mm_add_epi16(magnitude, _mm_set1_epi16(0x3f)), even);
        let nan = _mm_set1_epi16(0x7f);
        let code = _mm_min_epu16(_mm_srli_epi16::<7>(rounded), nan);
        // NaN has no sign.
        let sign = _mm_and_si128(_mm_srli_epi16::<8>(half), _mm_set1_epi16(0x80));
        let code = _mm_or_si128(code, _mm_andnot_si128(_mm_cmpeq_epi16(code, nan), sign));
        // SAFETY: the caller's promise.
        unsafe { _mm_storel_epi64(to.cast(), _mm_packus_epi16(code, code)) }
    }
}

/// Sixteen lanes. All functions read and write exactly sixteen elements at any address.
mod sixteen {
    use super::*;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
    pub unsafe fn decode_f16(from: *const u8, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
    pub unsafe fn decode_e5m2(from: *const u8, to: *mut f32) {
        // SAFETY: the caller's promise.
        let codes = unsafe { _mm256_cvtepu8_epi16(_mm_loadu_si128(from.cast())) };
        let value = _mm512_cvtph_ps(_mm256_slli_epi16::<8>(codes));
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(to, value) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
    pub unsafe fn decode_e4m3(from: *const u8, to: *mut f32) {
        // SAFETY: the caller's promise.
        let codes = unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(from.cast())) };
        let sign = _mm256_and_si256(codes, _mm256_set1_epi16(i16::MIN));
        let magnitude = _mm256_and_si256(_mm256_slli_epi16::<7>(codes), _mm256_set1_epi16(0x3f80));
        let small = _mm512_cvtph_ps(_mm256_or_si256(sign, magnitude));
        let value = _mm512_mul_ps(small, _mm512_set1_ps(E4M3_SCALE));
        let absolute = _mm512_abs_ps(value);
        let nan = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(absolute, _mm512_set1_ps(E4M3_NAN));
        let value = _mm512_mask_mov_ps(value, nan, _mm512_set1_ps(f32::NAN));
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(to, value) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
    pub unsafe fn encode_f16(from: *const f32, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let value = _mm512_loadu_ps(from);
            _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<NEAREST>(value));
        }
    }

    /// f16, rounded to odd.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
    fn odd(value: __m512) -> __m256i {
        let truncated = _mm512_cvtps_ph::<TRUNCATE>(value);
        let lost = _mm512_cmp_ps_mask::<_CMP_NEQ_OQ>(_mm512_cvtph_ps(truncated), value);
        _mm256_or_si256(truncated, _mm256_maskz_set1_epi16(lost, 1))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
    pub unsafe fn encode_e5m2(from: *const f32, to: *mut u8) {
        // SAFETY: the caller's promise.
        let half = odd(unsafe { _mm512_loadu_ps(from) });
        let magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x7fff));
        let even = _mm256_and_si256(_mm256_srli_epi16::<8>(magnitude), _mm256_set1_epi16(1));
        let rounded = _mm256_add_epi16(_mm256_add_epi16(magnitude, _mm256_set1_epi16(0x7f)), even);
        let sign = _mm256_and_si256(_mm256_srli_epi16::<8>(half), _mm256_set1_epi16(0x80));
        let code = _mm256_or_si256(_mm256_srli_epi16::<8>(rounded), sign);
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtepi16_epi8(code)) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
    pub unsafe fn encode_e4m3(from: *const f32, to: *mut u8) {
        // SAFETY: the caller's promise.
        let value = unsafe { _mm512_loadu_ps(from) };
        let half = odd(_mm512_mul_ps(value, _mm512_set1_ps(1.0 / E4M3_SCALE)));
        let magnitude = _mm256_and_si256(half, _mm256_set1_epi16(0x7fff));
        let even = _mm256_and_si256(_mm256_srli_epi16::<7>(magnitude), _mm256_set1_epi16(1));
        let rounded = _mm256_add_epi16(_mm256_add_epi16(magnitude, _mm256_set1_epi16(0x3f)), even);
        let nan = _mm256_set1_epi16(0x7f);
        let code = _mm256_min_epu16(_mm256_srli_epi16::<7>(rounded), nan);
        // NaN has no sign.
        let sign = _mm256_and_si256(_mm256_srli_epi16::<8>(half), _mm256_set1_epi16(0x80));
        let signed = _mm256_cmpneq_epi16_mask(code, nan);
        let code = _mm256_or_si256(code, _mm256_maskz_mov_epi16(signed, sign));
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtepi16_epi8(code)) }
    }
}
