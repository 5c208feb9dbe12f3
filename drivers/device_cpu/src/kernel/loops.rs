//! The loops that do the work, over one tile (or, in `direct`, over whole spans).
//!
//! All are inlined into functions that are compiled for one instruction set, and written so that
//! the compiler makes vector code of them: `out` is exclusive, the operands may start at any
//! address and overlap each other but not `out`.

use super::Job;
use super::divisor::Divisor;
use super::number::Number;
use super::op::Op;
use unisono_driver::{HostMemory, HostPtr};

/// Element `i` of a span of any alignment.
///
/// # Safety
/// It lies in the span.
#[inline(always)]
pub unsafe fn get<T: Copy>(span: *const T, i: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { span.add(i).read_unaligned() }
}

/// Does [`direct`] take spans at any address? A bare-metal target reads and writes those byte by
/// byte; there it takes only what [`can_be_direct`] says.
const ANY_ADDRESS: bool = cfg!(not(target_os = "none"));

/// What vector loads and stores want at most.
#[repr(C, align(16))]
struct Aligned<V>(V);

/// May [`direct`] be given these spans?
pub fn can_be_direct(job: &Job<'_>) -> bool {
    let sources = job.sources.iter().map(|source| source.mem);
    let mut all = sources.chain(job.dests.iter().copied());
    ANY_ADDRESS || all.all(|mem| mem.as_ptr().cast::<Aligned<u8>>().is_aligned())
}

/// A vector of [`direct`], at an address of whole vectors from its span's start.
///
/// # Safety
/// It lies in the span.
#[inline(always)]
unsafe fn vector<V: Copy>(at: *const u8) -> V {
    // SAFETY: the caller's promise; aligned as the span is.
    unsafe {
        if ANY_ADDRESS { at.cast::<V>().read_unaligned() } else { at.cast::<Aligned<V>>().read().0 }
    }
}

/// Bytes that [`direct`] asks for ahead of what it reads; see `docs/PERFORMANCE.md`.
const AHEAD: usize = 1024;

/// Asks for the cache line at `at`, which need not exist.
#[inline(always)]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch cannot fault.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// `out = a OP b`.
///
/// # Safety
/// As many elements in the spans as in `out`; so below.
#[inline(always)]
pub unsafe fn pair<A: Number, O: Op<A>>(out: &mut [A], a: *const A, b: *const A) {
    for (i, out) in out.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *out = unsafe { O::merge(get(a, i), get(b, i)) };
    }
}

/// `out = out OP b`.
///
/// # Safety
/// As [`pair`].
#[inline(always)]
pub unsafe fn into<A: Number, O: Op<A>>(out: &mut [A], b: *const A) {
    for (i, out) in out.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *out = unsafe { O::merge(*out, get(b, i)) };
    }
}

/// `out = (a OP b) OP (c OP d)`.
///
/// # Safety
/// As [`pair`].
#[inline(always)]
pub unsafe fn quad<A: Number, O: Op<A>>(out: &mut [A], [a, b, c, d]: [*const A; 4]) {
    for (i, out) in out.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *out = unsafe { O::merge(O::merge(get(a, i), get(b, i)), O::merge(get(c, i), get(d, i))) };
    }
}

/// `out = a * weight`.
///
/// # Safety
/// As [`pair`].
#[inline(always)]
pub unsafe fn scale<A: Number>(out: &mut [A], a: *const A, weight: A) {
    for (i, out) in out.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *out = unsafe { get(a, i) }.mul(weight);
    }
}

/// `out = out * weight`.
#[inline(always)]
pub fn scale_own<A: Number>(out: &mut [A], weight: A) {
    for out in out {
        *out = out.mul(weight);
    }
}

/// `out = out / ranks`.
#[inline(always)]
pub fn divide<A: Number>(out: &mut [A], divisor: Divisor) {
    for out in out {
        *out = out.divide(divisor);
    }
}

/// Every NaN the canonical one.
#[inline(always)]
pub fn canonical<A: Number>(out: &mut [A]) {
    for out in out {
        *out = out.canonical();
    }
}

/// Folds 2, 3 or 4 (`K`) leaves in canonical order in registers, straight from the sources to all
/// destinations, which may be sources. Returns how many elements are done: all of them.
///
/// # Safety
/// The spans are those of a checked fold with `K` sources in the accumulation type.
#[inline(always)]
pub unsafe fn direct<A: Number, O: Op<A>, const K: usize>(job: &Job<'_>) -> usize {
    // The usual numbers of destinations get a loop without an inner one.
    // SAFETY: the caller's promise.
    unsafe {
        match *job.dests {
            [a] => direct_to::<A, O, K>(job, [a]),
            [a, b] => direct_to::<A, O, K>(job, [a, b]),
            [a, b, c, d] => direct_to::<A, O, K>(job, [a, b, c, d]),
            _ => direct_to::<A, O, K>(job, job.dests),
        }
    }
}

/// [`direct`] to some destinations.
#[inline(always)]
unsafe fn direct_to<A: Number, O: Op<A>, const K: usize>(
    job: &Job<'_>,
    dests: impl AsRef<[HostPtr]>,
) -> usize {
    let lanes = 64 / size_of::<A>();
    let from: [*const u8; K] = core::array::from_fn(|k| job.sources[k].mem.as_ptr().cast_const());
    let vectors = job.count / lanes;
    let divisor = job.divide;
    // The compiler must not know the step. If it did, it would vectorise this loop, whose body is
    // one vector already, once more, with shuffles that make it six times slower.
    let step = core::hint::black_box(64);
    let end = vectors * step;
    let mut at = 0;
    while at < end {
        // Not past the end: what lies there may be another rank's share, and asking for its lines
        // takes them away from that rank's core.
        let ahead = usize::min(at + AHEAD, end - step);
        for from in from {
            prefetch(from.wrapping_add(ahead));
        }
        // SAFETY: the vector at byte `at` lies in all spans.
        unsafe {
            let mut value: A::Vector = vector(from[0].add(at));
            let b = vector(from[1].add(at));
            merge::<A, O>(&mut value, &b);
            if K == 3 {
                let c = vector(from[2].add(at));
                merge::<A, O>(&mut value, &c);
            } else if K == 4 {
                let mut c = vector(from[2].add(at));
                let d = vector(from[3].add(at));
                merge::<A, O>(&mut c, &d);
                merge::<A, O>(&mut value, &c);
            }
            if A::FLOAT {
                if let Some(divisor) = divisor {
                    divide(value.as_mut(), divisor);
                }
                canonical(value.as_mut());
            }
            for dest in dests.as_ref() {
                let to = dest.as_ptr().add(at);
                if ANY_ADDRESS {
                    to.cast::<A::Vector>().write_unaligned(value);
                } else {
                    to.cast::<Aligned<A::Vector>>().write(Aligned(value));
                }
            }
        }
        at += step;
    }
    // What is left is less than a vector: not worth the set-up of a tile.
    let (end, step) = (job.count * size_of::<A>(), core::hint::black_box(size_of::<A>()));
    while at < end {
        // SAFETY: the element at byte `at` lies in all spans.
        unsafe {
            let element = |k: usize| get(from[k].add(at).cast::<A>(), 0);
            let mut value = O::merge(element(0), element(1));
            if K == 3 {
                value = O::merge(value, element(2));
            } else if K == 4 {
                value = O::merge(value, O::merge(element(2), element(3)));
            }
            if A::FLOAT {
                value = divisor.map_or(value, |d| value.divide(d)).canonical();
            }
            for dest in dests.as_ref() {
                dest.as_ptr().add(at).cast::<A>().write_unaligned(value);
            }
        }
        at += step;
    }
    job.count
}

/// `a = a OP b`, lane by lane.
#[inline(always)]
fn merge<A: Number, O: Op<A>>(a: &mut A::Vector, b: &A::Vector) {
    for (a, b) in a.as_mut().iter_mut().zip(b.as_ref()) {
        *a = O::merge(*a, *b);
    }
}
