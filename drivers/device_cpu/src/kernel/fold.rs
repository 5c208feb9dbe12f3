//! The loops over memory.
//!
//! Two to four leaves, the common case, are folded in registers. Every other program runs on
//! blocks of scratch that stay in the L1 cache, four leaves at a time where the program allows it.
//! In both, all sources of a vector (or block) are loaded before any destination is stored, so a
//! destination may be a source.

use super::elem::{Convert, Elem};
use super::op::Op;
use super::vector::{Plain, Vector};
use super::{CpuMem, Job, SPANS_MAX};
use core::mem::MaybeUninit;
use unisono_core::{Form, Source};

/// Bytes of one vector of accumulators.
const VECTOR: usize = 64;

/// Bytes of scratch for the accumulators of one block: a third of a usual L1 cache, or what a
/// firmware stack can bear.
const SCRATCH: usize = if cfg!(feature = "std") { 16 << 10 } else { SPANS_MAX * VECTOR };

/// A weight's type.
type Lane<E> = <<E as Elem>::Acc as Vector>::Lane;

/// Runs a job of any length.
///
/// # Safety
/// The spans are as [`unisono_driver::Device::fold`] demands.
#[inline(always)]
pub unsafe fn fold<E: Elem, O: Op<E::Acc>, C: Convert>(job: &Job<'_>) {
    let lanes = E::Acc::LANES;
    let whole = job.count / lanes * lanes;
    // SAFETY: whole vectors inside the spans; then the rest, through padded copies.
    unsafe {
        if whole > 0 {
            vectors::<E, O, C>(&Job { count: whole, ..*job });
        }
        if whole < job.count {
            rest::<E>(job, whole, |padded| vectors::<E, O, C>(padded));
        }
    }
}

/// Bytes of one element of a source.
#[inline(always)]
const fn source_size<E: Elem>(form: Form) -> usize {
    match form {
        Form::Partial => VECTOR / E::Acc::LANES,
        Form::Leaf | Form::Final => size_of::<E::Raw>() / E::Acc::LANES,
    }
}

/// Bytes of one element of a destination.
#[inline(always)]
const fn dest_size<E: Elem>(job: &Job<'_>) -> usize {
    source_size::<E>(if job.partial { Form::Partial } else { Form::Final })
}

/// Elements from `start` on, fewer than a vector: copies them to padded vectors, runs `fold` on
/// those, and copies the result out.
unsafe fn rest<E: Elem>(job: &Job<'_>, start: usize, fold: impl FnOnce(&Job<'_>)) {
    let count = job.count - start;
    let mut padded = [[0u8; VECTOR]; SPANS_MAX];
    let mut result = [0u8; VECTOR];
    let mut sources: heapless::Vec<Source<CpuMem>, SPANS_MAX> = heapless::Vec::new();
    for (source, pad) in job.sources.iter().zip(&mut padded) {
        let size = source_size::<E>(source.form);
        let pad = pad.as_mut_ptr();
        // SAFETY: the last `count` elements of the source; a vector holds more.
        unsafe {
            let from = source.mem.as_ptr().add(start * size);
            core::ptr::copy_nonoverlapping(from, pad, count * size);
        }
        // Never full: a job has at most SPANS_MAX sources.
        let _ = sources.push(Source { mem: CpuMem::new(pad), ..*source });
    }
    let dests = [CpuMem::new(result.as_mut_ptr())];
    fold(&Job { sources: &sources, dests: &dests, count: E::Acc::LANES, ..*job });
    let size = dest_size::<E>(job);
    for dest in job.dests {
        // SAFETY: the last `count` elements of the destination.
        unsafe {
            let to = dest.as_ptr().add(start * size);
            core::ptr::copy_nonoverlapping(result.as_ptr(), to, count * size);
        }
    }
}

/// Runs a job of whole vectors.
#[inline(always)]
unsafe fn vectors<E: Elem, O: Op<E::Acc>, C: Convert>(job: &Job<'_>) {
    let merges = |wanted: &[u8]| {
        job.sources.len() == wanted.len()
            && job.sources.iter().zip(wanted).all(|(source, &wanted)| {
                source.merges == wanted && (E::SAME || source.form == Form::Leaf)
            })
    };
    // SAFETY: the caller's promise; as many sources as the kernel reads.
    unsafe {
        if merges(&[0, 1]) {
            registers::<E, O, C, 2>(job);
        } else if merges(&[0, 1, 1]) {
            registers::<E, O, C, 3>(job);
        } else if merges(&[0, 1, 0, 2]) {
            registers::<E, O, C, 4>(job);
        } else {
            blocks::<E, O, C>(job);
        }
    }
}

/// Where the vectors of one operand of a merge come from.
///
/// A trait and not a closure: what must be compiled for the kernel's instruction set has to be
/// inlined always.
trait Operand<E: Elem> {
    /// Vector `i` of the job.
    ///
    /// # Safety
    /// The vector exists.
    unsafe fn vector<O: Op<E::Acc>, C: Convert>(&self, i: usize) -> E::Acc;
}

/// `K` leaves, merged in the canonical order of `K` leaves.
struct Leaves<E: Elem, const K: usize> {
    at: [*const u8; K],
    weight: [Lane<E>; K],
}

impl<E: Elem, const K: usize> Leaves<E, K> {
    /// The first `K` of `sources`.
    #[inline(always)]
    fn new(sources: &[Source<CpuMem>]) -> Self {
        Self {
            at: core::array::from_fn(|k| sources[k].mem.as_ptr().cast_const()),
            weight: core::array::from_fn(|k| weight::<E>(&sources[k])),
        }
    }

    /// Vector `i` of leaf `k`, weighted.
    #[inline(always)]
    unsafe fn load<O: Op<E::Acc>, C: Convert>(&self, k: usize, i: usize) -> E::Acc {
        // SAFETY: the caller's promise: vector `i` lies in the span.
        let value = E::decode::<C>(unsafe { get::<E::Raw>(self.at[k], i) });
        if O::WEIGHTED { value.scale(self.weight[k]) } else { value }
    }
}

impl<E: Elem, const K: usize> Operand<E> for Leaves<E, K> {
    #[inline(always)]
    unsafe fn vector<O: Op<E::Acc>, C: Convert>(&self, i: usize) -> E::Acc {
        // SAFETY: the caller's promise.
        unsafe {
            let first = self.load::<O, C>(0, i);
            if K == 1 {
                return first;
            }
            let pair = O::merge(first, self.load::<O, C>(1, i));
            match K {
                2 => pair,
                3 => O::merge(pair, self.load::<O, C>(2, i)),
                _ => {
                    let (c, d) = (self.load::<O, C>(2, i), self.load::<O, C>(3, i));
                    O::merge(pair, O::merge(c, d))
                }
            }
        }
    }
}

/// Accumulators, from a partial source or from a level of the stack.
struct Accumulators {
    /// Address of vector `first` of the job.
    at: *const u8,
    first: usize,
}

impl<E: Elem> Operand<E> for Accumulators {
    #[inline(always)]
    unsafe fn vector<O: Op<E::Acc>, C: Convert>(&self, i: usize) -> E::Acc {
        // SAFETY: the caller's promise.
        unsafe { get(self.at, i - self.first) }
    }
}

/// A source's weight; partial values have been weighted.
#[inline(always)]
fn weight<E: Elem>(source: &Source<CpuMem>) -> Lane<E> {
    E::Acc::weight((source.form != Form::Partial).then_some(source.weight))
}

/// Vector `i` of a span.
#[inline(always)]
unsafe fn get<T: Plain>(start: *const u8, i: usize) -> T {
    // SAFETY: the caller's promise; any bytes are a value of a plain type.
    unsafe { start.cast::<T>().add(i).read_unaligned() }
}

/// Finishes a vector and stores it at place `i` of every destination.
#[inline(always)]
unsafe fn store<E: Elem, C: Convert>(job: &Job<'_>, i: usize, value: E::Acc) {
    let value = match job.divide {
        Some(divisor) => value.divide(divisor),
        None => value,
    };
    let value = value.canonical();
    // SAFETY: the caller's promise: vector `i` lies in all destinations.
    unsafe {
        if job.partial && !E::SAME {
            for dest in job.dests {
                dest.as_ptr().cast::<E::Acc>().add(i).write_unaligned(value);
            }
        } else {
            let raw = E::encode::<C>(value);
            for dest in job.dests {
                dest.as_ptr().cast::<E::Raw>().add(i).write_unaligned(raw);
            }
        }
    }
}

/// `K` leaves in canonical order, without scratch.
#[inline(always)]
unsafe fn registers<E: Elem, O: Op<E::Acc>, C: Convert, const K: usize>(job: &Job<'_>) {
    let leaves = Leaves::<E, K>::new(job.sources);
    for i in 0..job.count / E::Acc::LANES {
        // SAFETY: the caller's promise.
        unsafe { store::<E, C>(job, i, leaves.vector::<O, C>(i)) };
    }
}

/// Room for the accumulators of a block.
#[repr(align(64))]
struct Scratch(MaybeUninit<[u8; SCRATCH]>);

/// Any program, a block at a time.
#[inline(always)]
unsafe fn blocks<E: Elem, O: Op<E::Acc>, C: Convert>(job: &Job<'_>) {
    let mut scratch = Scratch(MaybeUninit::uninit());
    let block = Block::<E> {
        stack: scratch.0.as_mut_ptr().cast(),
        stride: SCRATCH / VECTOR / depth(job.sources),
        first: 0,
        len: 0,
    };
    let total = job.count / E::Acc::LANES;
    let mut first = 0;
    while first < total {
        let len = usize::min(block.stride, total - first);
        // SAFETY: the caller's promise; the stack holds as many levels as the program needs.
        unsafe { Block { first, len, ..block }.run::<O, C>(job) };
        first += len;
    }
}

/// Most values that a program holds at a time; at least 1, at most the number of sources.
fn depth(sources: &[Source<CpuMem>]) -> usize {
    let (mut depth, mut most) = (0, 1);
    for source in sources {
        depth += 1;
        most = usize::max(most, depth);
        depth -= usize::from(source.merges);
    }
    most
}

/// A range of vectors and the stack of accumulators for it.
struct Block<E: Elem> {
    /// Level 0; the others follow, `stride` vectors each.
    stack: *mut E::Acc,
    stride: usize,
    /// First vector of the range.
    first: usize,
    /// Vectors of the range, at most `stride`.
    len: usize,
}

impl<E: Elem> Block<E> {
    /// The program for one range.
    #[inline(always)]
    unsafe fn run<O: Op<E::Acc>, C: Convert>(&self, job: &Job<'_>) {
        let mut sources = job.sources;
        let mut levels = 0;
        // SAFETY: the caller's promise; the program was checked, so levels stay in the stack.
        unsafe {
            while let Some(source) = sources.first() {
                let mut merges = source.merges;
                let mut used = 1;
                if is_quad::<E>(sources) {
                    used = 4;
                    merges = sources[3].merges - 2;
                    let leaves = Leaves::<E, 4>::new(sources);
                    self.push::<O, C>(&mut levels, &mut merges, &leaves);
                } else if source.form == Form::Partial {
                    let partial = Accumulators { at: source.mem.as_ptr(), first: 0 };
                    self.push::<O, C>(&mut levels, &mut merges, &partial);
                } else {
                    let leaf = Leaves::<E, 1>::new(sources);
                    self.push::<O, C>(&mut levels, &mut merges, &leaf);
                }
                sources = &sources[used..];
                for _ in 0..merges {
                    levels -= 1;
                    let at = self.level(levels).cast::<u8>().cast_const();
                    let top = Accumulators { at, first: self.first };
                    self.merge::<O, C>(levels - 1, &top);
                }
            }
            for i in 0..self.len {
                store::<E, C>(job, self.first + i, self.stack.add(i).read());
            }
        }
    }

    /// Start of a level.
    #[inline(always)]
    unsafe fn level(&self, level: usize) -> *mut E::Acc {
        // SAFETY: the caller's promise.
        unsafe { self.stack.add(level * self.stride) }
    }

    /// Pushes a value, or merges it into the top at once if a merge follows.
    #[inline(always)]
    unsafe fn push<O: Op<E::Acc>, C: Convert>(
        &self,
        levels: &mut usize,
        merges: &mut u8,
        value: &impl Operand<E>,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            if *merges > 0 {
                *merges -= 1;
                self.merge::<O, C>(*levels - 1, value);
            } else {
                let level = self.level(*levels);
                *levels += 1;
                for i in 0..self.len {
                    level.add(i).write(value.vector::<O, C>(self.first + i));
                }
            }
        }
    }

    /// `level = level OP value`.
    #[inline(always)]
    unsafe fn merge<O: Op<E::Acc>, C: Convert>(&self, level: usize, value: &impl Operand<E>) {
        // SAFETY: the caller's promise: the level is in use.
        unsafe {
            let level = self.level(level);
            for i in 0..self.len {
                let other = value.vector::<O, C>(self.first + i);
                let merged = O::merge(level.add(i).read(), other);
                level.add(i).write(merged);
            }
        }
    }
}

/// Do the sources start with a complete tree of four leaves?
#[inline(always)]
fn is_quad<E: Elem>(sources: &[Source<CpuMem>]) -> bool {
    match sources {
        [a, b, c, d, ..] => {
            let leaf = |s: &Source<CpuMem>| E::SAME || s.form == Form::Leaf;
            (a.merges, b.merges, c.merges) == (0, 1, 0)
                && d.merges >= 2
                && leaf(a)
                && leaf(b)
                && leaf(c)
                && leaf(d)
        }
        _ => false,
    }
}
