//! Which arithmetic a device can be trusted with: it is asked, not believed.
//!
//! A few folds, each with one kernel, that go wrong on devices which flush subnormals, contract
//! products and sums, round in another way, or pass on what NaN they like. A device that fails
//! with its own arithmetic gets the kernels that compute with integers, and is refused if those
//! are wrong too.

use crate::backend::{Context, Place};
use crate::device::Gpu;
use crate::error::GpuError;
use crate::kernel::Arithmetic;
use unisono_core::numeric::{self, FoldError};
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source};
use unisono_driver::{Device, Fold, HostPtr, Memory as _};

/// Elements of each test: all pairs of special values, and as many random ones.
const COUNT: usize = 2 * SPECIAL * SPECIAL;
/// Special values.
const SPECIAL: usize = 32;
/// Bytes around the destination that must stay as they are.
const GUARD: usize = 64;
/// What they are.
const UNTOUCHED: u8 = 0x5a;

/// One test, and what it decides.
struct Facet {
    name: &'static str,
    dtype: DType,
    op: ReduceOp,
    /// Weights of the sources: a leaf each, in canonical order.
    weights: &'static [f64],
    /// Elements that the spans start after an aligned address.
    start: usize,
    /// The choices that are tested, best first: each is dropped if the device fails with it.
    choices: &'static [Choice],
}

type Choice = fn(&mut Arithmetic) -> &mut bool;

/// The weights make subnormal products, products whose last bits matter, and exact ones.
const FACETS: [Facet; 5] = [
    Facet {
        name: "binary32",
        dtype: DType::F32,
        op: ReduceOp::PreMulSum,
        weights: &[1.0, 0.3, -1.0],
        start: 0,
        choices: &[|a| &mut a.native_f32, |a| &mut a.normal_f32],
    },
    Facet {
        name: "binary64",
        dtype: DType::F64,
        op: ReduceOp::PreMulSum,
        weights: &[1.0, 0.3, -1.0],
        start: 0,
        choices: &[|a| &mut a.native_f64],
    },
    Facet {
        name: "64-bit integers",
        dtype: DType::I64,
        op: ReduceOp::PreMulSum,
        weights: &[1.0, -3.0, 5.0e18],
        start: 0,
        choices: &[|a| &mut a.native_i64],
    },
    Facet {
        name: "binary16",
        dtype: DType::F16,
        op: ReduceOp::Sum,
        weights: &[1.0, 1.0, 1.0],
        start: 1,
        choices: &[|a| &mut a.storage_8],
    },
    Facet {
        name: "8-bit integers",
        dtype: DType::U8,
        op: ReduceOp::Sum,
        weights: &[1.0, 1.0],
        start: 3,
        choices: &[|a| &mut a.storage_8],
    },
];

/// Finds the arithmetic that gives the right bits.
pub(crate) fn run<C: Context>(gpu: &mut Gpu<C>) -> Result<Arithmetic, GpuError> {
    let mut arithmetic = gpu.memory().context().limits().offers;
    arithmetic.normal_f32 |= arithmetic.native_f32;
    for facet in &FACETS {
        loop {
            gpu.set_arithmetic(arithmetic);
            let wrong = match facet.run(gpu) {
                Ok(None) => break,
                Ok(Some(text)) => Ok(text),
                Err(error @ GpuError::Build { .. }) => Err(error),
                Err(error) => return Err(error),
            };
            let device = gpu.card().name.clone();
            let choice = facet.choices.iter().find(|choice| *choice(&mut arithmetic));
            match (choice, wrong) {
                (Some(choice), wrong) => {
                    tracing::debug!(%device, facet = facet.name, ?wrong, "not native");
                    *choice(&mut arithmetic) = false;
                }
                (None, Ok(text)) => {
                    let text = format!("{}: {text}", facet.name);
                    return Err(GpuError::SelfTest { device, text });
                }
                (None, Err(error)) => return Err(error),
            }
        }
    }
    Ok(arithmetic)
}

impl Facet {
    /// Runs it with the present arithmetic; says what differs, if anything.
    fn run<C: Context>(&self, gpu: &mut Gpu<C>) -> Result<Option<String>, GpuError> {
        let size = self.dtype.size();
        let stride = COUNT * size + 2 * GUARD;
        let spans = self.weights.len() + 1;
        let memory = gpu.memory().alloc(spans * stride, Place::Device)?;
        let mut image = vec![UNTOUCHED; spans * stride];
        let at = |i: usize| i * stride + GUARD + self.start * size;
        let mut random = Random(0x5eed ^ size as u64);
        for i in 0..self.weights.len() {
            for element in 0..COUNT {
                let bits = self.pattern(i, element, &mut random).to_le_bytes();
                image[at(i) + element * size..][..size].copy_from_slice(&bits[..size]);
            }
        }
        let finish = Finish::Final { ranks: spans as u32 - 1 };
        let source = |i: usize, merges: u8| {
            let weight = self.weights[i];
            let float = self.dtype.is_float();
            let weight =
                if float { Scalar::from_f64(weight) } else { Scalar::from_i64(weight as i64) };
            Source { mem: (), form: Form::Leaf, weight, merges }
        };
        let program: Vec<Source<()>> = unisono_core::fold::leaf_merges(spans as u32 - 1)
            .enumerate()
            .map(|(i, merges)| source(i, merges))
            .collect();
        let want = self.reference(&program, finish, &image, at)?;
        // SAFETY: an allocation of this function's own.
        unsafe { gpu.memory().write(memory.mem(), &image) }?;
        let place = |i: usize| memory.mem().offset(at(i) as u64);
        let sources: Vec<Source<HostPtr>> =
            program.iter().enumerate().map(|(i, s)| s.at(place(i))).collect();
        let dests = [place(spans - 1)];
        let (dtype, op, count) = (self.dtype, Some(self.op), COUNT);
        let work = Fold { dtype, op, count, sources: &sources, dests: &dests, finish };
        // SAFETY: the spans lie in the allocation, apart from each other; it outlives the wait.
        unsafe { gpu.fold(&work, 0) }?;
        gpu.wait_for_one()?;
        let mut got = vec![0; spans * stride];
        // SAFETY: as above; the work is done.
        unsafe { gpu.memory().read(memory.mem(), &mut got) }?;
        image[at(spans - 1)..][..want.len()].copy_from_slice(&want);
        let differs = image.iter().zip(&got).position(|(want, got)| want != got);
        Ok(differs.map(|byte| self.describe(byte, at(spans - 1), &image, &got)))
    }

    /// What the fold should give.
    fn reference(
        &self,
        program: &[Source<()>],
        finish: Finish,
        image: &[u8],
        at: impl Fn(usize) -> usize,
    ) -> Result<Vec<u8>, FoldError> {
        let bytes = COUNT * self.dtype.size();
        let sources: Vec<Source<&[u8]>> =
            program.iter().enumerate().map(|(i, s)| s.at(&image[at(i)..][..bytes])).collect();
        let mut want = vec![0; bytes];
        numeric::fold(self.dtype, Some(self.op), finish, &sources, &mut want)?;
        Ok(want)
    }

    /// Where the bytes differ, in words.
    fn describe(&self, byte: usize, dest: usize, want: &[u8], got: &[u8]) -> String {
        let size = self.dtype.size();
        let Some(into) = byte.checked_sub(dest).filter(|&into| into < COUNT * size) else {
            return "it writes beside the destination".to_owned();
        };
        let at = dest + into / size * size;
        let hex = |bytes: &[u8]| {
            bytes[at..at + size].iter().rev().map(|b| format!("{b:02x}")).collect::<String>()
        };
        format!("element {} is {} and should be {}", into / size, hex(got), hex(want))
    }

    /// Bits of an element: all pairs of special values in the first two sources, then random ones.
    fn pattern(&self, source: usize, element: usize, random: &mut Random) -> u64 {
        let special = match source {
            0 => element % SPECIAL,
            1 => element / SPECIAL % SPECIAL,
            _ => (random.next() % SPECIAL as u64) as usize,
        };
        if element >= COUNT / 2 {
            return self.near_one(random);
        }
        match fraction(self.dtype) {
            Some(fraction) => float(special, self.dtype.size() as u32 * 8, fraction),
            None => integer(special, self.dtype.size() as u32 * 8),
        }
    }

    /// Random values of about the same size, so that every bit of every sum matters.
    fn near_one(&self, random: &mut Random) -> u64 {
        let bits = random.next();
        let Some(fraction) = fraction(self.dtype) else { return bits };
        let width = self.dtype.size() as u32 * 8;
        let one = (1u64 << (width - 2 - fraction)) - 1;
        let exponent = one - 1 + (bits >> 60 & 3);
        bits >> 59 << (width - 1) | exponent << fraction | bits & ((1 << fraction) - 1)
    }
}

/// Stored bits of the fraction of a floating type that is tested.
const fn fraction(dtype: DType) -> Option<u32> {
    match dtype {
        DType::F64 => Some(52),
        DType::F32 => Some(23),
        DType::F16 => Some(10),
        _ => None,
    }
}

/// Special values of a floating type: 16 magnitudes, both signs.
fn float(special: usize, width: u32, fraction: u32) -> u64 {
    let exponents = (1u64 << (width - 1 - fraction)) - 1;
    let (one, ones, half) = (exponents / 2, (1u64 << fraction) - 1, 1u64 << (fraction - 1));
    let f = u64::from(fraction);
    let (exponent, stored) = match special % 16 {
        // Zero, subnormals, the smallest normal numbers.
        0 => (0, 0),
        1 => (0, 1),
        2 => (0, half),
        3 => (0, ones),
        4 => (1, 0),
        5 => (1, 1),
        // One and its neighbours, and what makes ties with them.
        6 => (one, 0),
        7 => (one, 1),
        8 => (one - 1, ones),
        9 => (one.saturating_sub(f), 0),
        10 => (one.saturating_sub(f + 1), 0),
        11 => (one.saturating_sub(f + 1), 1),
        // The largest, infinity, NaN.
        12 => (exponents - 1, ones),
        13 => (exponents, 0),
        14 => (exponents, half | 1),
        _ => (exponents, 1),
    };
    (special as u64 / 16) << (width - 1) | exponent << fraction | stored
}

/// Special values of an integer type: around zero, around the ends, and powers of two.
const fn integer(special: usize, width: u32) -> u64 {
    let small = (special % 4) as u64;
    match special / 4 {
        0 => small,
        1 => small.wrapping_neg(),
        2 => (1 << (width - 1)) + small,
        3 => (1u64 << (width - 1)).wrapping_sub(1 + small),
        4 => (1 << (width / 2)) + small,
        5 => (1u64 << (width / 2)).wrapping_sub(1 + small),
        6 => 0x5555_5555_5555_5555 << small,
        _ => 0x0123_4567_89ab_cdef >> (small * 8),
    }
}

/// xorshift64*: the same patterns each time.
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// A source of a program, at a place.
trait At {
    fn at<M>(&self, mem: M) -> Source<M>;
}

impl At for Source<()> {
    fn at<M>(&self, mem: M) -> Source<M> {
        Source { mem, form: self.form, weight: self.weight, merges: self.merges }
    }
}
