//! The loops, compiled for each instruction set, in tables that the driver picks from.

use super::Job;
use super::divisor::Divisor;

/// A loop over whole spans; returns how many elements it has done.
pub type Direct = unsafe fn(&Job<'_>) -> usize;

/// Loops for one operator on accumulators of type `A`; see [`super::loops`].
pub struct Ops<A> {
    /// `out = a OP b`.
    pub pair: unsafe fn(&mut [A], *const A, *const A),
    /// `out = out OP b`.
    pub into: unsafe fn(&mut [A], *const A),
    /// `out = (a OP b) OP (c OP d)`.
    pub quad: unsafe fn(&mut [A], [*const A; 4]),
    /// Whole spans of 2, 3 and 4 sources; only for sums.
    pub direct: Option<[Direct; 3]>,
}

/// Loops for one element type with accumulators of type `A`.
pub struct Types<A> {
    /// Bytes of one element.
    pub size: usize,
    /// Widens elements, if they are no accumulators.
    pub decode: Option<unsafe fn(&mut [A], *const u8)>,
    /// Rounds accumulators to elements.
    pub encode: Option<unsafe fn(*mut u8, &[A])>,
    /// `out = a * weight`.
    pub scale: unsafe fn(&mut [A], *const A, A),
    /// `out = out * weight`.
    pub scale_own: unsafe fn(&mut [A], A),
    /// `out = out / ranks`.
    pub divide: unsafe fn(&mut [A], Divisor),
    /// Every NaN the canonical one.
    pub canonical: unsafe fn(&mut [A]),
}

/// A module with `run(dtype, op, job)` whose loops are compiled with the given attributes.
macro_rules! kernels {
    ($(#[$attribute:meta])* $name:ident $convert:path) => {
        pub mod $name {
            use super::super::convert::Convert;
            use super::super::divisor::Divisor;
            use super::super::number::{Bits, Number};
            use super::super::op::{And, Max, Min, Op, Or, Prod, Sum, Xor};
            use super::super::{Job, loops, tile};
            use super::{Direct, Ops, Types};
            use unisono_core::{DType, ReduceOp};

            type Chosen = $convert;

            $(#[$attribute])*
            unsafe fn pair<A: Number, O: Op<A>>(out: &mut [A], a: *const A, b: *const A) {
                // SAFETY: the caller's promise, which is that of the loop.
                unsafe { loops::pair::<A, O>(out, a, b) }
            }

            $(#[$attribute])*
            unsafe fn into<A: Number, O: Op<A>>(out: &mut [A], b: *const A) {
                // SAFETY: the caller's promise, which is that of the loop.
                unsafe { loops::into::<A, O>(out, b) }
            }

            $(#[$attribute])*
            unsafe fn quad<A: Number, O: Op<A>>(out: &mut [A], from: [*const A; 4]) {
                // SAFETY: the caller's promise, which is that of the loop.
                unsafe { loops::quad::<A, O>(out, from) }
            }

            $(#[$attribute])*
            unsafe fn direct<A: Number, const K: usize>(job: &Job<'_>) -> usize {
                // SAFETY: the caller's promise, which is that of the loop.
                unsafe { loops::direct::<A, Sum, K>(job) }
            }

            $(#[$attribute])*
            unsafe fn scale<A: Number>(out: &mut [A], a: *const A, weight: A) {
                // SAFETY: the caller's promise, which is that of the loop.
                unsafe { loops::scale(out, a, weight) }
            }

            $(#[$attribute])*
            unsafe fn scale_own<A: Number>(out: &mut [A], weight: A) {
                loops::scale_own(out, weight);
            }

            $(#[$attribute])*
            unsafe fn divide<A: Number>(out: &mut [A], divisor: Divisor) {
                loops::divide(out, divisor);
            }

            $(#[$attribute])*
            unsafe fn canonical<A: Number>(out: &mut [A]) {
                loops::canonical(out);
            }

            $(#[$attribute])*
            unsafe fn decode_f16(out: &mut [f32], from: *const u8) {
                // SAFETY: the caller's promise, which is that of the loop.
                unsafe { Chosen::decode_f16(out, from) }
            }

            $(#[$attribute])*
            unsafe fn encode_f16(out: *mut u8, from: &[f32]) {
                // SAFETY: the caller's promise, which is that of the loop.
                unsafe { Chosen::encode_f16(out, from) }
            }

            $(#[$attribute])*
            unsafe fn decode_bf16(out: &mut [f32], from: *const u8) {
                // SAFETY: the caller's promise, which is that of the loop.
                unsafe { Chosen::decode_bf16(out, from) }
            }

            $(#[$attribute])*
            unsafe fn encode_bf16(out: *mut u8, from: &[f32]) {
                // SAFETY: the caller's promise, which is that of the loop.
                unsafe { Chosen::encode_bf16(out, from) }
            }

            $(#[$attribute])*
            unsafe fn decode_e4m3(out: &mut [f32], from: *const u8) {
                // SAFETY: the caller's promise, which is that of the loop.
                unsafe { Chosen::decode_e4m3(out, from) }
            }

            $(#[$attribute])*
            unsafe fn encode_e4m3(out: *mut u8, from: &[f32]) {
                // SAFETY: the caller's promise, which is that of the loop.
                unsafe { Chosen::encode_e4m3(out, from) }
            }

            $(#[$attribute])*
            unsafe fn decode_e5m2(out: &mut [f32], from: *const u8) {
                // SAFETY: the caller's promise, which is that of the loop.
                unsafe { Chosen::decode_e5m2(out, from) }
            }

            $(#[$attribute])*
            unsafe fn encode_e5m2(out: *mut u8, from: &[f32]) {
                // SAFETY: the caller's promise, which is that of the loop.
                unsafe { Chosen::encode_e5m2(out, from) }
            }

            fn ops<A: Number, O: Op<A>>() -> Ops<A> {
                Ops { pair: pair::<A, O>, into: into::<A, O>, quad: quad::<A, O>, direct: None }
            }

            fn sum<A: Number>() -> Ops<A> {
                let direct: [Direct; 3] = [direct::<A, 2>, direct::<A, 3>, direct::<A, 4>];
                Ops { direct: Some(direct), ..ops::<A, Sum>() }
            }

            fn same<A: Number>() -> Types<A> {
                Types {
                    size: size_of::<A>(),
                    decode: None,
                    encode: None,
                    scale: scale::<A>,
                    scale_own: scale_own::<A>,
                    divide: divide::<A>,
                    canonical: canonical::<A>,
                }
            }

            fn small(
                size: usize,
                decode: unsafe fn(&mut [f32], *const u8),
                encode: unsafe fn(*mut u8, &[f32]),
            ) -> Types<f32> {
                Types { size, decode: Some(decode), encode: Some(encode), ..same() }
            }

            /// Floating types.
            unsafe fn float<A: Number>(op: ReduceOp, job: &Job<'_>, types: Types<A>) {
                let ops = match op {
                    ReduceOp::Prod => ops::<A, Prod>(),
                    ReduceOp::Min => ops::<A, Min>(),
                    ReduceOp::Max => ops::<A, Max>(),
                    // The bitwise operators have been refused.
                    _ => sum::<A>(),
                };
                // SAFETY: the caller's promise.
                unsafe { tile::run(job, &ops, &types) }
            }

            /// Integers, where the sign does not matter.
            unsafe fn bits<A: Bits>(op: ReduceOp, job: &Job<'_>) {
                let ops = match op {
                    ReduceOp::Prod => ops::<A, Prod>(),
                    ReduceOp::Min => ops::<A, Min>(),
                    ReduceOp::Max => ops::<A, Max>(),
                    ReduceOp::BitAnd => ops::<A, And>(),
                    ReduceOp::BitOr => ops::<A, Or>(),
                    ReduceOp::BitXor => ops::<A, Xor>(),
                    ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum => sum::<A>(),
                };
                // SAFETY: the caller's promise.
                unsafe { tile::run(job, &ops, &same()) }
            }

            /// Signed integers, where the sign matters; `U` is the type of the same size without.
            unsafe fn signed<S: Number, U: Bits>(op: ReduceOp, job: &Job<'_>) {
                // SAFETY: the caller's promise.
                unsafe {
                    match op {
                        ReduceOp::Min => tile::run(job, &ops::<S, Min>(), &same()),
                        ReduceOp::Max => tile::run(job, &ops::<S, Max>(), &same()),
                        ReduceOp::Avg => tile::run(job, &ops::<S, Sum>(), &same()),
                        _ => bits::<U>(op, job),
                    }
                }
            }

            /// Runs a job.
            ///
            /// # Safety
            /// As [`super::super::run`].
            pub unsafe fn run(dtype: DType, op: ReduceOp, job: &Job<'_>) {
                // SAFETY: the caller's promise.
                unsafe {
                    match dtype {
                        DType::F64 => float::<f64>(op, job, same()),
                        DType::F32 => float::<f32>(op, job, same()),
                        DType::F16 => float(op, job, small(2, decode_f16, encode_f16)),
                        DType::BF16 => float(op, job, small(2, decode_bf16, encode_bf16)),
                        DType::F8E4M3 => float(op, job, small(1, decode_e4m3, encode_e4m3)),
                        DType::F8E5M2 => float(op, job, small(1, decode_e5m2, encode_e5m2)),
                        DType::I8 => signed::<i8, u8>(op, job),
                        DType::I16 => signed::<i16, u16>(op, job),
                        DType::I32 => signed::<i32, u32>(op, job),
                        DType::I64 => signed::<i64, u64>(op, job),
                        DType::U8 => bits::<u8>(op, job),
                        DType::U16 => bits::<u16>(op, job),
                        DType::U32 => bits::<u32>(op, job),
                        DType::U64 => bits::<u64>(op, job),
                    }
                }
            }
        }
    };
}

kernels!(baseline super::super::convert::Portable);

#[cfg(target_arch = "x86_64")]
kernels!(
    #[target_feature(enable = "avx2,f16c")]
    avx2 super::super::x86::Avx2
);

#[cfg(target_arch = "x86_64")]
kernels!(
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
    avx512 super::super::x86::Avx512
);
