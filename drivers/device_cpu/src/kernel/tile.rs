//! Any fold program, a tile at a time: the accumulators of a tile stay in the L1 cache.
//!
//! The stack of the program holds *operands*: where the accumulators of a tile are. For a source
//! in the accumulation type that is the source itself, nothing is copied; a small type is widened
//! into scratch. All operands of a tile are read before any destination is written, so a
//! destination may be a source.

use super::loops::can_be_direct;
use super::number::Number;
use super::table::{Ops, Types};
use super::{Job, SPANS_MAX};
use core::mem::MaybeUninit;
use unisono_core::{Form, Source};
use unisono_driver::{HostMemory, HostPtr};

/// Bytes of scratch: a third of a usual L1 cache, or what a firmware stack can bear.
const SCRATCH: usize = if cfg!(feature = "std") { 16 << 10 } else { (SPANS_MAX + 1) * ALIGN };

/// Bytes of the largest tile of accumulators; more does not pay.
const TILE_MAX: usize = 4 << 10;

/// Tiles start at cache lines.
const ALIGN: usize = 64;

/// Room for the accumulators of one tile at every level of the stack, and for the finished tile.
#[repr(align(64))]
struct Scratch(MaybeUninit<[u8; SCRATCH]>);

/// Where the accumulators of one tile are.
#[derive(Clone, Copy)]
struct Operand<A> {
    at: *const A,
    /// In the scratch of its level, or in a source?
    own: bool,
}

/// A fold with what it needs of the kernel tables.
struct Program<'a, A> {
    job: &'a Job<'a>,
    ops: &'a Ops<A>,
    types: &'a Types<A>,
}

/// Runs a job: the common ones straight through, the others and the rest by tiles.
///
/// # Safety
/// The spans are valid as for [`unisono_driver::Device::fold`], `ops` and `types` can run on this
/// CPU and belong to the job's operator and type.
pub unsafe fn run<A: Number>(job: &Job<'_>, ops: &Ops<A>, types: &Types<A>) {
    let program = Program { job, ops, types };
    // SAFETY: the caller's promise.
    unsafe {
        let start = program.direct();
        if start < job.count {
            program.run(start);
        }
    }
}

/// A stack of operands over scratch.
struct Stack<A> {
    scratch: *mut u8,
    /// Elements of a full tile.
    tile: usize,
    /// Elements of this tile.
    len: usize,
    operands: heapless::Vec<Operand<A>, SPANS_MAX>,
}

impl<A: Number> Stack<A> {
    /// The scratch of a level; level `depth` is for the finished tile.
    ///
    /// # Safety
    /// No other reference to the same level is alive, and the level is within the depth that the
    /// scratch was divided for.
    unsafe fn level<'s>(&self, level: usize) -> &'s mut [A] {
        // SAFETY: the caller's promise.
        unsafe {
            let at = self.scratch.cast::<A>().add(level * self.tile);
            core::slice::from_raw_parts_mut(at, self.len)
        }
    }
}

impl<A: Number> Program<'_, A> {
    /// Folds what can be folded in registers; returns how many elements that were.
    unsafe fn direct(&self) -> usize {
        let job = self.job;
        let in_place = job.sources.iter().all(|source| self.in_place(source));
        let stored = self.types.encode.is_none() || job.partial;
        let divided = A::FLOAT || job.divide.is_none();
        let can = in_place && stored && divided && can_be_direct(job);
        let Some(direct) = self.ops.direct.filter(|_| can) else {
            return 0;
        };
        let merges =
            |wanted: &[u8]| job.sources.iter().map(|s| s.merges).eq(wanted.iter().copied());
        let Some(k) = [&[0, 1][..], &[0, 1, 1], &[0, 1, 0, 2]].into_iter().position(merges) else {
            return 0;
        };
        // SAFETY: the caller's promise; as many sources as the loop reads.
        unsafe { direct[k](job) }
    }

    /// Folds elements from `start` on, a tile at a time.
    unsafe fn run(&self, start: usize) {
        let mut scratch = Scratch(MaybeUninit::uninit());
        let levels = depth(self.job.sources) + 1;
        let needed = (self.job.count - start).saturating_mul(size_of::<A>());
        let most = usize::min(SCRATCH / levels, TILE_MAX) / ALIGN * ALIGN;
        let bytes = usize::min(most, needed.max(1).div_ceil(ALIGN).saturating_mul(ALIGN));
        let at: *mut u8 = scratch.0.as_mut_ptr().cast();
        // SAFETY: no more than SCRATCH. Initialised so that slices may cover it; done once.
        unsafe { at.write_bytes(0, levels * bytes) };
        let tile = bytes / size_of::<A>();
        let mut stack = Stack { scratch: at, tile, len: 0, operands: heapless::Vec::new() };
        let mut at = start;
        while at < self.job.count {
            stack.len = usize::min(stack.tile, self.job.count - at);
            // SAFETY: the caller's promise; the tile lies in the spans.
            unsafe {
                self.fold(&mut stack, at);
                self.finish(&mut stack, at, levels - 1);
            }
            at += stack.len;
        }
    }

    /// Bytes of one element in memory.
    fn size(&self, form: Form) -> usize {
        if form == Form::Partial { size_of::<A>() } else { self.types.size }
    }

    /// Runs the program for the tile at element `at`; leaves one operand.
    unsafe fn fold(&self, stack: &mut Stack<A>, at: usize) {
        let mut sources = self.job.sources;
        while let Some(source) = sources.first() {
            let mut merges = source.merges;
            // SAFETY: the caller's promise; the program has been checked.
            unsafe {
                if self.is_quad(sources) {
                    let level = stack.operands.len();
                    let out = stack.level(level);
                    let four = core::array::from_fn(|k| self.span(&sources[k], at).cast());
                    (self.ops.quad)(out, four);
                    push(stack, Operand { at: out.as_ptr(), own: true });
                    merges = sources[3].merges - 2;
                    sources = &sources[4..];
                } else {
                    self.load(stack, source, at);
                    sources = &sources[1..];
                }
                for _ in 0..merges {
                    self.merge(stack);
                }
            }
        }
    }

    /// Do the sources start with a complete tree of four that can be read in place?
    fn is_quad(&self, sources: &[Source<HostPtr>]) -> bool {
        let [a, b, c, d, ..] = sources else {
            return false;
        };
        (a.merges, b.merges, c.merges) == (0, 1, 0)
            && d.merges >= 2
            && [a, b, c, d].iter().all(|source| self.in_place(source))
    }

    /// Are the source's elements accumulators already?
    fn in_place(&self, source: &Source<HostPtr>) -> bool {
        let raw = self.types.decode.is_none() && !self.job.weighted;
        raw || source.form == Form::Partial
    }

    /// Where element `at` of a source is.
    unsafe fn span(&self, source: &Source<HostPtr>, at: usize) -> *const u8 {
        // SAFETY: the caller's promise.
        unsafe { source.mem.as_ptr().add(at * self.size(source.form)) }
    }

    /// Pushes a source, widened and weighted if need be.
    unsafe fn load(&self, stack: &mut Stack<A>, source: &Source<HostPtr>, at: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let span = self.span(source, at);
            if self.in_place(source) {
                push(stack, Operand { at: span.cast(), own: false });
                return;
            }
            let out = stack.level(stack.operands.len());
            let weight = self.job.weighted.then(|| A::weight(source.weight));
            if let Some(decode) = self.types.decode {
                decode(out, span);
                if let Some(weight) = weight {
                    (self.types.scale_own)(out, weight);
                }
            } else if let Some(weight) = weight {
                (self.types.scale)(out, span.cast(), weight);
            }
            push(stack, Operand { at: out.as_ptr(), own: true });
        }
    }

    /// Replaces the two top operands by their merge.
    unsafe fn merge(&self, stack: &mut Stack<A>) {
        let (Some(b), Some(a)) = (stack.operands.pop(), stack.operands.pop()) else {
            return;
        };
        // SAFETY: the caller's promise; `b` is in a source or one level further up.
        unsafe {
            let out = stack.level(stack.operands.len());
            if a.own {
                (self.ops.into)(out, b.at);
            } else {
                (self.ops.pair)(out, a.at, b.at);
            }
            push(stack, Operand { at: out.as_ptr(), own: true });
        }
    }

    /// Finishes the operand that is left and stores it in every destination.
    unsafe fn finish(&self, stack: &mut Stack<A>, at: usize, depth: usize) {
        let Some(operand) = stack.operands.pop() else {
            return;
        };
        // SAFETY: the caller's promise; a single operand is in a source or on level 0.
        unsafe {
            let value = stack.level(0);
            if !operand.own {
                let bytes = size_of_val(value);
                core::ptr::copy_nonoverlapping(
                    operand.at.cast::<u8>(),
                    value.as_mut_ptr().cast(),
                    bytes,
                );
            }
            if let Some(divisor) = self.job.divide {
                (self.types.divide)(value, divisor);
            }
            if A::FLOAT {
                (self.types.canonical)(value);
            }
            let form = if self.job.partial { Form::Partial } else { Form::Final };
            let mut from = value.as_ptr().cast::<u8>();
            if let (Some(encode), Form::Final) = (self.types.encode, form) {
                let out = stack.scratch.add(depth * stack.tile * size_of::<A>());
                encode(out, value);
                from = out;
            }
            let size = self.size(form);
            for dest in self.job.dests {
                let to = dest.as_ptr().add(at * size);
                core::ptr::copy_nonoverlapping(from, to, stack.len * size);
            }
        }
    }
}

/// Never full: a job has at most `SPANS_MAX` sources.
fn push<A>(stack: &mut Stack<A>, operand: Operand<A>) {
    let pushed = stack.operands.push(operand);
    debug_assert!(pushed.is_ok());
}

/// Most values that a program holds at a time; at least 1, at most the number of sources.
fn depth(sources: &[Source<HostPtr>]) -> usize {
    let (mut depth, mut most) = (0, 1);
    for source in sources {
        depth += 1;
        most = usize::max(most, depth);
        depth -= usize::from(source.merges);
    }
    most
}
