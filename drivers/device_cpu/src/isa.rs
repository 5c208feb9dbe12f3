//! Instruction sets: which ones the kernels are compiled for, and which one the CPU has.

/// An instruction set that the kernels are compiled for, from the least to the most capable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// What the build target promises: SSE2 on x86-64, NEON on aarch64.
    Baseline,
    /// x86-64 with AVX2 and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Isa {
    /// Every instruction set.
    pub const ALL: [Self; 3] = [Self::Baseline, Self::Avx2, Self::Avx512];

    /// The most capable one that this CPU has.
    #[must_use]
    pub fn best() -> Self {
        Self::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Self::Baseline)
    }

    /// Can this CPU run it?
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Baseline => true,
            Self::Avx2 => avx2(),
            Self::Avx512 => avx2() && avx512(),
        }
    }

    /// Short name: `baseline avx2 avx512`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
fn avx2() -> bool {
    std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("f16c")
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
fn avx512() -> bool {
    std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512vl")
}

#[cfg(not(all(target_arch = "x86_64", feature = "std")))]
const fn avx2() -> bool {
    cfg!(all(target_arch = "x86_64", target_feature = "avx2", target_feature = "f16c"))
}

#[cfg(not(all(target_arch = "x86_64", feature = "std")))]
const fn avx512() -> bool {
    cfg!(all(
        target_arch = "x86_64",
        target_feature = "avx512f",
        target_feature = "avx512bw",
        target_feature = "avx512dq",
        target_feature = "avx512vl"
    ))
}
