//! The kernels as SPIR-V: one module for each accumulation type, and for what it asks of a device.

use super::float_controls;
use super::program::merge_words;
use super::{DESTS_MAX, SOURCES_MAX, Variant};
use crate::error::GpuError;
use unisono_core::numeric::FoldError;
use unisono_core::{DType, ReduceOp};

/// What the kernels are specialised with: `-D` names in OpenCL C, and the index of a name is the
/// id of the specialisation constant in SPIR-V.
pub const NAMES: [&str; 12] = [
    "GROUP_SIZE",
    "DTYPE",
    "OP",
    "PARTIAL",
    "SOURCES",
    "DESTS",
    "PARTIALS",
    "MERGES_0",
    "MERGES_1",
    "MERGES_2",
    "MERGES_3",
    "NATIVE",
];

/// A SPIR-V module. The names say what it accumulates in; the second of a pair needs a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Module {
    /// binary32: f32, f16, bf16 and both fp8.
    Single,
    /// The same, and needs `storageBuffer8BitAccess`.
    Single8,
    /// binary64, in integers.
    Double,
    /// binary64, and needs `shaderFloat64`.
    Double64,
    /// Integers up to 32 bits, and copies.
    Int,
    /// The same, and needs `storageBuffer8BitAccess`.
    Int8,
    /// 64-bit integers, in halves.
    Long,
    /// 64-bit integers, and needs `shaderInt64`.
    Long64,
}

impl Module {
    /// Every module.
    pub const ALL: [Self; 8] = [
        Self::Single,
        Self::Single8,
        Self::Double,
        Self::Double64,
        Self::Int,
        Self::Int8,
        Self::Long,
        Self::Long64,
    ];

    /// Its file in `kernels/spirv`, and what `kernels/fold.comp` is built with to give it.
    #[must_use]
    pub const fn build(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Single => ("single.spv", &["SINGLE"]),
            Self::Single8 => ("single_8.spv", &["SINGLE", "HAS_8"]),
            Self::Double => ("double.spv", &["DOUBLE"]),
            Self::Double64 => ("double_64.spv", &["DOUBLE", "HAS_F64"]),
            Self::Int => ("int.spv", &["INTEGER"]),
            Self::Int8 => ("int_8.spv", &["INTEGER", "HAS_8"]),
            Self::Long => ("long.spv", &["LONG"]),
            Self::Long64 => ("long_64.spv", &["LONG", "HAS_I64"]),
        }
    }

    /// The module as it lies in `kernels/spirv`.
    #[must_use]
    pub const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Single => include_bytes!("../../kernels/spirv/single.spv"),
            Self::Single8 => include_bytes!("../../kernels/spirv/single_8.spv"),
            Self::Double => include_bytes!("../../kernels/spirv/double.spv"),
            Self::Double64 => include_bytes!("../../kernels/spirv/double_64.spv"),
            Self::Int => include_bytes!("../../kernels/spirv/int.spv"),
            Self::Int8 => include_bytes!("../../kernels/spirv/int_8.spv"),
            Self::Long => include_bytes!("../../kernels/spirv/long.spv"),
            Self::Long64 => include_bytes!("../../kernels/spirv/long_64.spv"),
        }
    }

    /// The module's code, asking for what the device promises. A device that promises something
    /// has `VK_KHR_shader_float_controls` enabled.
    #[must_use]
    pub fn words(self, controls: FloatControls) -> Vec<u32> {
        let plain = self.bytes().chunks_exact(4).map(|word| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(word);
            u32::from_le_bytes(bytes)
        });
        let widths = match self {
            Self::Single | Self::Single8 => Widths { w32: true, w64: false },
            Self::Double64 => Widths { w32: false, w64: true },
            // Integer arithmetic only.
            _ => Widths::default(),
        };
        float_controls::request(plain.collect(), controls, widths)
    }
}

/// Widths of floating-point numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Widths {
    /// binary32.
    pub w32: bool,
    /// binary64.
    pub w64: bool,
}

/// What a device promises if a module asks for it (`VK_KHR_shader_float_controls`): the driver
/// asks for all that it offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FloatControls {
    /// Subnormals are kept (`DenormPreserve`).
    pub denorm_preserve: Widths,
    /// No shortcuts around zeros, infinities and NaN (`SignedZeroInfNanPreserve`).
    pub signed_zero_inf_nan_preserve: Widths,
    /// To nearest even (`RoundingModeRTE`).
    pub rounding_mode_rte: Widths,
}

impl Variant {
    /// The SPIR-V module of the variant.
    #[must_use]
    pub const fn module(&self) -> Module {
        let arithmetic = self.arithmetic;
        // Only elements that share a word with others are stored by the byte.
        let bytes = arithmetic.storage_8 && self.dtype.size() < 4;
        match self.dtype.acc() {
            DType::F64 if arithmetic.native_f64 => Module::Double64,
            DType::F64 => Module::Double,
            DType::F32 if bytes => Module::Single8,
            DType::F32 => Module::Single,
            DType::I64 | DType::U64 if arithmetic.native_i64 => Module::Long64,
            DType::I64 | DType::U64 => Module::Long,
            _ if bytes => Module::Int8,
            _ => Module::Int,
        }
    }

    /// The specialisation constants: id and value, all 32-bit.
    ///
    /// # Errors
    /// If there are too many spans, or the merges make no sense.
    pub fn constants(&self) -> Result<[(u32, u32); NAMES.len()], GpuError> {
        let (sources, dests) = (usize::from(self.sources), usize::from(self.dests));
        if !(1..=SOURCES_MAX).contains(&sources) || !(1..=DESTS_MAX).contains(&dests) {
            return Err(GpuError::Spans(SOURCES_MAX, DESTS_MAX));
        }
        let merges = merge_words(self.sources, self.merges).ok_or(FoldError::Program)?;
        let arithmetic = self.arithmetic;
        let native = u32::from(arithmetic.native_f32)
            | u32::from(arithmetic.native_f64) << 1
            | u32::from(arithmetic.native_i64) << 2
            | u32::from(arithmetic.normal_f32) << 3
            | u32::from(arithmetic.narrow) << 4;
        // A copy is a fold of one source, by any operator that leaves its bits alone.
        let op = self.op.unwrap_or(ReduceOp::BitOr);
        let values = [
            self.group_size,
            self.dtype as u32,
            op as u32,
            u32::from(self.partial),
            u32::from(self.sources),
            u32::from(self.dests),
            u32::from(self.partials),
            merges[0],
            merges[1],
            merges[2],
            merges[3],
            native,
        ];
        Ok(std::array::from_fn(|id| (id as u32, values[id])))
    }
}
