//! What a kernel is specialised for and what it is told at run time: the Rust side of
//! `kernels/fold.h`, whose numbers these are.
//!
//! # How a kernel is called
//!
//! Vulkan, descriptor set 0, all storage buffers, entry point `main`:
//!
//! | binding | descriptors | what |
//! |---|---|---|
//! | 0 | 1 | [`Params`], 256 bytes |
//! | 1 | `sources` | the sources, one array |
//! | 2 | `dests` | the destinations, one array |
//!
//! The arrays are as long as the variant says (specialisation constants size them), so there is no
//! descriptor that is not used. [`Variant::module`] names the SPIR-V, [`Module::words`] is its
//! code, [`Variant::constants`] is what it is specialised with.
//!
//! OpenCL, kernel `fold`: argument 0 is [`Params`] by value (256 bytes), then for each source and
//! after them for each destination two arguments: the buffer, and a `ulong` that says how many
//! bytes into it the span starts. [`opencl::SOURCE`] and [`Variant::options`] build it.
//!
//! Both run a grid of [`Variant::groups`] work groups of `group_size` x 1 x 1 work items.
//!
//! # What the caller keeps
//!
//! * A span starts at a multiple of 4 bytes of its buffer and is at most [`SPAN_MAX`] bytes long,
//!   what lies before the start in [`Params`] included.
//! * Kernels read whole words of 4 bytes that hold a byte of the span: the buffer, and in Vulkan
//!   the descriptor's range, end at a multiple of 4. They never write a byte that is not the
//!   span's.
//! * In place means that source and destination start at the same byte.

mod float_controls;
pub mod opencl;
mod program;
pub mod spirv;

pub use spirv::{FloatControls, Module, Widths};

use unisono_core::numeric::acc::Acc;
use unisono_core::{DType, ReduceOp, Scalar};

/// Most sources of one kernel.
pub const SOURCES_MAX: usize = 16;
/// Most destinations of one kernel.
pub const DESTS_MAX: usize = 8;
/// Most bytes of a span, with what lies before its start: a kernel counts bytes in 31 bits.
pub const SPAN_MAX: u64 = 1 << 31;

/// How floating-point arithmetic is done on a device: found by a self-test when it is opened.
///
/// Integer arithmetic always gives the bits of the contract; native arithmetic only where the
/// device neither flushes subnormals nor rounds in another way, and where the type exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Arithmetic {
    /// binary32 add and multiply are the device's own.
    pub native_f32: bool,
    /// They are as long as no subnormal is involved, else done in integers: for a device that
    /// flushes subnormals and otherwise rounds as it should. `native_f32` includes it.
    pub normal_f32: bool,
    /// binary64 add and multiply are the device's own.
    pub native_f64: bool,
    /// 64-bit integers are the device's own.
    pub native_i64: bool,
    /// Stores of 8 bits. Without them the words at the ends of a span that it shares with others
    /// are written with atomic operations. OpenCL always has them.
    pub storage_8: bool,
    /// Elements of 1 and 2 bytes are loaded and stored alone, not several to a word: what a
    /// compiler for a CPU makes vectors of. OpenCL only.
    pub narrow: bool,
}

/// What a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Element type of the tensor.
    pub dtype: DType,
    /// The operator; `None` copies: then `dtype` is [`DType::U8`] and elements are bytes.
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
    /// How arithmetic is done.
    pub arithmetic: Arithmetic,
    /// Work items of a work group.
    pub group_size: u32,
}

impl Variant {
    /// Elements that one work item makes: as many as fit a word of 4 bytes, or one.
    #[must_use]
    pub const fn elements_per_item(&self) -> u32 {
        match self.dtype.size() {
            _ if self.arithmetic.narrow => 1,
            1 => 4,
            2 => 2,
            _ => 1,
        }
    }

    /// The grid of work groups for `count` elements, no side longer than `groups_max`.
    #[must_use]
    pub fn groups(&self, count: u32, groups_max: u32) -> [u32; 2] {
        let per_item = u64::from(self.elements_per_item());
        // The first item makes fewer elements if the first destination does not start at a word.
        let items = (u64::from(count) + per_item - 1).div_ceil(per_item);
        let groups = items.div_ceil(u64::from(self.group_size));
        let rows = groups.div_ceil(u64::from(groups_max)).max(1);
        [groups.div_ceil(rows) as u32, rows as u32]
    }
}

/// What a kernel is told at run time, in the order of `kernels/fold.h`: 64 little-endian words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Params {
    /// Elements.
    pub count: u32,
    /// Ranks that `Avg` divides by, shifted left until the highest bit is set.
    divisor: u32,
    /// `floor((2^64 - 1) / divisor) - 2^32`: what replaces the division by `divisor`.
    inverse: u32,
    /// How far `divisor` was shifted.
    shift: u32,
    /// Not used.
    reserved: [u32; 4],
    /// Where each source starts, in bytes from its span's start; a multiple of 4 for elements of 4
    /// and 8 bytes and for partial results, anything for the others.
    pub sources: [u32; SOURCES_MAX],
    /// The same for each destination.
    pub dests: [u32; DESTS_MAX],
    /// Weight of each leaf under `PreMulSum`: see [`weight`].
    pub weights: [[u32; 2]; SOURCES_MAX],
}

const _: () = assert!(size_of::<Params>() == 256);

impl Params {
    /// For `count` elements and, under `Avg`, so many ranks (at least 1). Starts are 0.
    #[must_use]
    pub fn new(count: u32, ranks: u32) -> Self {
        let ranks = ranks.max(1);
        let shift = ranks.leading_zeros();
        let divisor = ranks << shift;
        // Between 2^32 and 2^33, so the subtraction is what drops the 33rd bit.
        let inverse = (u64::MAX / u64::from(divisor)) as u32;
        Self {
            count,
            divisor,
            inverse,
            shift,
            reserved: [0; 4],
            sources: [0; SOURCES_MAX],
            dests: [0; DESTS_MAX],
            weights: [[0; 2]; SOURCES_MAX],
        }
    }

    /// The bytes that a kernel is given.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 256] {
        // SAFETY: the struct is 64 words, without padding, and every byte of them is initialised.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }
}

/// A weight as [`Params`] takes it: rounded to the accumulation type, low word first.
#[must_use]
pub fn weight(dtype: DType, weight: Scalar) -> [u32; 2] {
    let bits = match dtype.acc() {
        DType::F64 => f64::weight(weight).to_bits(),
        DType::F32 => u64::from(f32::weight(weight).to_bits()),
        _ => weight.0,
    };
    [bits as u32, (bits >> 32) as u32]
}
