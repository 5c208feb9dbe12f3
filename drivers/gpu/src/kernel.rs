//! What a kernel is specialised for and what it is told at run time: the Rust side of
//! `kernels/fold.h`, whose numbers these are.

use unisono_core::{DType, ReduceOp};

/// Most sources of one kernel.
pub const SOURCES_MAX: usize = 16;
/// Most destinations of one kernel.
pub const DESTS_MAX: usize = 8;

/// How floating-point arithmetic is done on a device: found by a self-test when it is opened.
///
/// Integer arithmetic always gives the bits of the contract; native arithmetic only where the
/// device neither flushes subnormals nor rounds in another way, and where the type exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arithmetic {
    /// binary32 add and multiply are the device's own.
    pub native_f32: bool,
    /// binary64 add, multiply and divide are the device's own.
    pub native_f64: bool,
    /// 64-bit integers are the device's own.
    pub native_i64: bool,
    /// Loads and stores of 16 bits.
    pub storage_16: bool,
    /// Loads and stores of 8 bits.
    pub storage_8: bool,
}

/// What a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Element type of the tensor.
    pub dtype: DType,
    /// The operator; `None` copies.
    pub op: Option<ReduceOp>,
    /// The destination gets the accumulation type.
    pub partial: bool,
    /// Sources, 1 to [`SOURCES_MAX`].
    pub sources: u8,
    /// Destinations, 1 to [`DESTS_MAX`].
    pub dests: u8,
    /// Bit i: source i is a partial result in the accumulation type, not a leaf.
    pub partials: u16,
    /// Merges after each source, 4 bits each, source 0 lowest.
    pub merges: u64,
    /// How floating-point arithmetic is done.
    pub arithmetic: Arithmetic,
    /// Work items of a work group.
    pub group_size: u32,
}

/// What a kernel is told at run time, in the order of `kernels/fold.h`: 64 little-endian words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Params {
    /// Elements.
    pub count: u32,
    /// Ranks that `Avg` divides by.
    pub ranks: u32,
    /// Not used.
    pub reserved: [u32; 6],
    /// Where each source starts, in bytes from its span's start; a multiple of the element's size,
    /// or of 4 for larger ones.
    pub sources: [u32; SOURCES_MAX],
    /// The same for each destination.
    pub dests: [u32; DESTS_MAX],
    /// Weight of each leaf under `PreMulSum`, rounded to the accumulation type already: low word
    /// first, binary32 and integers up to 32 bits in the low word.
    pub weights: [[u32; 2]; SOURCES_MAX],
}

const _: () = assert!(size_of::<Params>() == 256);
