//! One compiled kernel for each element type and operator, for each instruction set.

/// A module with `run(dtype, op, job)` for one instruction set.
macro_rules! kernels {
    ($(#[$attribute:meta])* $name:ident $convert:path) => {
        pub mod $name {
            use super::super::elem::{Bf16, E4m3, E5m2, Elem, F16};
            use super::super::op::{And, Max, Min, Op, Or, Prod, Sum, WeightedSum, Xor};
            use super::super::vector::Bits;
            use super::super::{Job, fold};
            use unisono_core::{DType, ReduceOp};

            /// The generic fold, compiled for this instruction set.
            $(#[$attribute])*
            unsafe fn kernel<E: Elem, O: Op<E::Acc>>(job: &Job<'_>) {
                // SAFETY: the caller's promise about the spans.
                unsafe { fold::fold::<E, O, $convert>(job) }
            }

            /// Floating types.
            unsafe fn float<E: Elem>(op: ReduceOp, job: &Job<'_>) {
                // SAFETY: the caller's promise.
                unsafe {
                    match op {
                        ReduceOp::Prod => kernel::<E, Prod>(job),
                        ReduceOp::Min => kernel::<E, Min>(job),
                        ReduceOp::Max => kernel::<E, Max>(job),
                        ReduceOp::PreMulSum => kernel::<E, WeightedSum>(job),
                        // The bitwise operators have been refused.
                        _ => kernel::<E, Sum>(job),
                    }
                }
            }

            /// Integers: `S` and `U` only differ where the sign matters.
            unsafe fn int<S: Elem, U: Elem<Acc: Bits>>(op: ReduceOp, signed: bool, job: &Job<'_>) {
                // SAFETY: the caller's promise.
                unsafe {
                    match op {
                        ReduceOp::Min if signed => kernel::<S, Min>(job),
                        ReduceOp::Max if signed => kernel::<S, Max>(job),
                        ReduceOp::Avg if signed => kernel::<S, Sum>(job),
                        ReduceOp::Sum | ReduceOp::Avg => kernel::<U, Sum>(job),
                        ReduceOp::Prod => kernel::<U, Prod>(job),
                        ReduceOp::Min => kernel::<U, Min>(job),
                        ReduceOp::Max => kernel::<U, Max>(job),
                        ReduceOp::PreMulSum => kernel::<U, WeightedSum>(job),
                        ReduceOp::BitAnd => kernel::<U, And>(job),
                        ReduceOp::BitOr => kernel::<U, Or>(job),
                        ReduceOp::BitXor => kernel::<U, Xor>(job),
                    }
                }
            }

            /// Runs a job.
            ///
            /// # Safety
            /// As [`super::super::run`].
            pub unsafe fn run(dtype: DType, op: ReduceOp, job: &Job<'_>) {
                let signed = dtype.is_signed_int();
                // SAFETY: the caller's promise.
                unsafe {
                    match dtype {
                        DType::F64 => float::<f64>(op, job),
                        DType::F32 => float::<f32>(op, job),
                        DType::F16 => float::<F16>(op, job),
                        DType::BF16 => float::<Bf16>(op, job),
                        DType::F8E4M3 => float::<E4m3>(op, job),
                        DType::F8E5M2 => float::<E5m2>(op, job),
                        DType::I8 | DType::U8 => int::<i8, u8>(op, signed, job),
                        DType::I16 | DType::U16 => int::<i16, u16>(op, signed, job),
                        DType::I32 | DType::U32 => int::<i32, u32>(op, signed, job),
                        DType::I64 | DType::U64 => int::<i64, u64>(op, signed, job),
                    }
                }
            }
        }
    };
}

kernels!(baseline crate::kernel::elem::Portable);

#[cfg(target_arch = "x86_64")]
kernels!(
    #[target_feature(enable = "avx2,f16c")]
    avx2 crate::kernel::elem::x86::F16c
);

#[cfg(target_arch = "x86_64")]
kernels!(
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
    avx512 crate::kernel::elem::x86::Avx512
);
