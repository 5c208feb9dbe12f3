//! The small types, a tile at a time.

use super::loops::get;
use super::small;

/// Widens one element after the other.
macro_rules! decode_portable {
    ($out:ident, $from:ident, $code:ident, $decode:path) => {
        for (i, out) in $out.iter_mut().enumerate() {
            *out = $decode(get($from.cast::<$code>(), i));
        }
    };
}

/// Rounds one accumulator after the other.
macro_rules! encode_portable {
    ($out:ident, $from:ident, $code:ident, $encode:path) => {
        for (i, from) in $from.iter().enumerate() {
            $out.cast::<$code>().add(i).write_unaligned($encode(*from));
        }
    };
}

/// How an instruction set widens and rounds the small types. The provided methods are plain loops;
/// every NaN is canonical when `encode_*` sees it.
///
/// # Safety of all methods
/// The memory span holds as many elements as the slice and does not overlap it; the CPU has the
/// instruction set.
pub trait Convert {
    /// f16 to binary32.
    #[inline(always)]
    unsafe fn decode_f16(out: &mut [f32], from: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { decode_portable!(out, from, u16, small::decode_f16) }
    }

    /// bf16 to binary32.
    #[inline(always)]
    unsafe fn decode_bf16(out: &mut [f32], from: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { decode_portable!(out, from, u16, small::decode_bf16) }
    }

    /// e4m3 to binary32.
    #[inline(always)]
    unsafe fn decode_e4m3(out: &mut [f32], from: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { decode_portable!(out, from, u8, small::decode_e4m3) }
    }

    /// e5m2 to binary32.
    #[inline(always)]
    unsafe fn decode_e5m2(out: &mut [f32], from: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { decode_portable!(out, from, u8, small::decode_e5m2) }
    }

    /// binary32 to f16.
    #[inline(always)]
    unsafe fn encode_f16(out: *mut u8, from: &[f32]) {
        // SAFETY: the caller's promise.
        unsafe { encode_portable!(out, from, u16, small::encode_f16) }
    }

    /// binary32 to bf16.
    #[inline(always)]
    unsafe fn encode_bf16(out: *mut u8, from: &[f32]) {
        // SAFETY: the caller's promise.
        unsafe { encode_portable!(out, from, u16, small::encode_bf16) }
    }

    /// binary32 to e4m3.
    #[inline(always)]
    unsafe fn encode_e4m3(out: *mut u8, from: &[f32]) {
        // SAFETY: the caller's promise.
        unsafe { encode_portable!(out, from, u8, small::encode_e4m3) }
    }

    /// binary32 to e5m2.
    #[inline(always)]
    unsafe fn encode_e5m2(out: *mut u8, from: &[f32]) {
        // SAFETY: the caller's promise.
        unsafe { encode_portable!(out, from, u8, small::encode_e5m2) }
    }
}

/// No more than the compiler finds by itself.
pub struct Portable;

impl Convert for Portable {}
