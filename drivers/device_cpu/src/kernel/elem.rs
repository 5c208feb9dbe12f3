//! Element types: what 64 bytes of accumulators look like in memory.

use super::small;
use super::vector::{Plain, Vector};

/// A function of every lane. Not a closure: the compiler may decide not to inline one, and then
/// compiles it for the build target instead of the kernel's instruction set.
macro_rules! each {
    ($from:expr, $function:path) => {{
        let (from, mut to) = ($from, [Default::default(); 16]);
        for i in 0..16 {
            to[i] = $function(from[i]);
        }
        to
    }};
}

/// An element type of a tensor.
pub trait Elem {
    /// As many elements as there are lanes in `Acc`, as they lie in memory.
    type Raw: Plain;
    /// Their accumulators.
    type Acc: Vector;
    /// Is an element its own accumulator?
    const SAME: bool;

    /// Widens; exact.
    fn decode<C: Convert>(raw: Self::Raw) -> Self::Acc;
    /// Rounds once; every NaN is canonical already.
    fn encode<C: Convert>(acc: Self::Acc) -> Self::Raw;
}

/// How an instruction set converts f16, the one thing that compilers do not find by themselves.
pub trait Convert {
    /// f16 to binary32. A NaN stays some NaN.
    #[inline(always)]
    fn decode_f16(raw: [u16; 16]) -> [f32; 16] {
        each!(raw, small::decode_f16)
    }

    /// binary32, NaN canonical, to f16.
    #[inline(always)]
    fn encode_f16(acc: [f32; 16]) -> [u16; 16] {
        each!(acc, small::encode_f16)
    }
}

/// Integer arithmetic only.
pub struct Portable;

impl Convert for Portable {}

macro_rules! same {
    ($($lane:ident $lanes:literal)*) => {$(
        impl Elem for $lane {
            type Raw = [$lane; $lanes];
            type Acc = [$lane; $lanes];
            const SAME: bool = true;

            #[inline(always)]
            fn decode<C: Convert>(raw: Self::Raw) -> Self::Acc {
                raw
            }

            #[inline(always)]
            fn encode<C: Convert>(acc: Self::Acc) -> Self::Raw {
                acc
            }
        }
    )*};
}

macro_rules! small {
    ($($(#[$doc:meta])* $name:ident $code:ident: $convert:ident $raw:ident $decode:expr, $acc:ident $encode:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name;

        impl Elem for $name {
            type Raw = [$code; 16];
            type Acc = [f32; 16];
            const SAME: bool = false;

            #[inline(always)]
            fn decode<$convert: Convert>($raw: Self::Raw) -> Self::Acc {
                $decode
            }

            #[inline(always)]
            fn encode<$convert: Convert>($acc: Self::Acc) -> Self::Raw {
                $encode
            }
        }
    )*};
}

same!(f64 8 f32 16 i8 64 u8 64 i16 32 u16 32 i32 16 u32 16 i64 8 u64 8);
small! {
    /// IEEE 754 binary16.
    F16 u16: C r C::decode_f16(r), a C::encode_f16(a);
    /// bfloat16.
    Bf16 u16: C r each!(r, small::decode_bf16), a each!(a, small::encode_bf16);
    /// OCP FP8 E4M3.
    E4m3 u8: C r each!(r, small::decode_e4m3), a each!(a, small::encode_e4m3);
    /// OCP FP8 E5M2.
    E5m2 u8: C r each!(r, small::decode_e5m2), a each!(a, small::encode_e5m2);
}

#[cfg(target_arch = "x86_64")]
pub mod x86 {
    //! f16 by F16C and AVX-512.

    use super::Convert;
    use core::arch::x86_64 as x;

    /// F16C, eight lanes at a time. Only used in functions compiled for AVX2 and F16C.
    pub struct F16c;

    impl Convert for F16c {
        #[inline(always)]
        fn decode_f16(raw: [u16; 16]) -> [f32; 16] {
            // SAFETY: the CPU has F16C, or this type would not be used; sizes are equal.
            unsafe {
                let [low, high]: [x::__m128i; 2] = core::mem::transmute(raw);
                core::mem::transmute([x::_mm256_cvtph_ps(low), x::_mm256_cvtph_ps(high)])
            }
        }

        #[inline(always)]
        fn encode_f16(acc: [f32; 16]) -> [u16; 16] {
            const NEAREST: i32 = x::_MM_FROUND_TO_NEAREST_INT;
            // SAFETY: as above.
            unsafe {
                let [low, high]: [x::__m256; 2] = core::mem::transmute(acc);
                core::mem::transmute([
                    x::_mm256_cvtps_ph::<NEAREST>(low),
                    x::_mm256_cvtps_ph::<NEAREST>(high),
                ])
            }
        }
    }

    /// AVX-512, sixteen lanes at a time. Only used in functions compiled for AVX-512.
    pub struct Avx512;

    impl Convert for Avx512 {
        #[inline(always)]
        fn decode_f16(raw: [u16; 16]) -> [f32; 16] {
            // SAFETY: the CPU has AVX-512 F, or this type would not be used; sizes are equal.
            unsafe { core::mem::transmute(x::_mm512_cvtph_ps(core::mem::transmute(raw))) }
        }

        #[inline(always)]
        fn encode_f16(acc: [f32; 16]) -> [u16; 16] {
            const NEAREST: i32 = x::_MM_FROUND_TO_NEAREST_INT;
            // SAFETY: as above.
            unsafe {
                core::mem::transmute(x::_mm512_cvtps_ph::<NEAREST>(core::mem::transmute::<
                    [f32; 16],
                    x::__m512,
                >(acc)))
            }
        }
    }
}
