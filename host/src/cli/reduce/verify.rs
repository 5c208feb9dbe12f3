//! `--verify`: reads the inputs again and computes the result in another way.

use super::super::args::{Algo, OrderArg};
use super::super::reference::{Exact, exact, fold, ulp};
use super::input::{Input, Tensor};
use super::run::Work;
use anyhow::{Result, bail};
use serde::Serialize;
use std::env;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use unisono::{DType, Kind, Order, Selection};

/// Elements that are checked at a time.
const PIECE: usize = 1 << 16;

/// What the check found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Elements checked.
    pub elements: u64,
    /// Elements whose bits are not those of the scalar fold in canonical order.
    pub differ: u64,
    /// Must there be none? Not with an order that is the schedule's own.
    pub canonical: bool,
    /// The first tensor and element that differs.
    pub first: Option<(String, usize)>,
    /// The rounding error of floating-point elements.
    pub error: Errors,
}

/// Rounding errors against binary64.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Errors {
    /// Floating-point elements with a finite result and a finite reference.
    pub finite: u64,
    /// Floating-point elements that are infinite or NaN in the result or the reference.
    pub not_finite: u64,
    /// Largest absolute error.
    pub max_abs: f64,
    /// Largest error relative to a reference that is not 0.
    pub max_rel: f64,
    /// Largest error in units of the last place of the sum of the terms' absolute values: where
    /// terms cancel, an error is not small beside the result.
    pub max_ulp: f64,
    /// Root of the mean square error.
    pub rms: f64,
}

impl Verdict {
    /// An error if bits differ that must not.
    pub fn demand(&self) -> Result<()> {
        match &self.first {
            Some((name, i)) if self.canonical => bail!(
                "{} of {} elements differ from the scalar reference, the first one is element {i} \
                 of {name:?}: a bug in unisono, or an input has changed meanwhile",
                self.differ,
                self.elements
            ),
            _ => Ok(()),
        }
    }

    fn merge(mut self, other: Self) -> Self {
        self.elements += other.elements;
        self.differ += other.differ;
        let either = match (self.first, other.first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.first = either;
        let (a, b) = (&mut self.error, other.error);
        a.finite += b.finite;
        a.not_finite += b.not_finite;
        a.max_abs = a.max_abs.max(b.max_abs);
        a.max_rel = a.max_rel.max(b.max_rel);
        a.max_ulp = a.max_ulp.max(b.max_ulp);
        // The sum of squares until the end.
        a.rms += b.rms;
        self
    }
}

/// Some elements of a tensor.
struct Piece<'a> {
    name: &'a str,
    tensor: &'a Tensor,
    elements: Range<usize>,
}

/// Checks every element of the result, on all cores.
pub fn verify(work: &Work<'_>, inputs: &[Input], result: &[u8]) -> Result<Verdict> {
    work.progress.stage("verifying");
    let pieces = pieces(inputs);
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let verdicts: Vec<Result<Verdict>> = std::thread::scope(|scope| {
        let one = || {
            let mut verdict = Verdict::default();
            while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                work.interrupt.check()?;
                verdict = verdict.merge(check(work, inputs, piece, result)?);
            }
            Ok(verdict)
        };
        // This thread and as many more as there are: without them it takes longer, and that is all.
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, one).ok();
        let threads: Vec<_> = (1..cores).filter_map(start).collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, _>| {
            t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let own = one();
        std::iter::once(own).chain(threads.into_iter().map(join)).collect()
    });
    let mut total = Verdict::default();
    for verdict in verdicts {
        total = total.merge(verdict?);
    }
    total.canonical = is_canonical(work)?;
    if total.error.finite > 0 {
        total.error.rms = (total.error.rms / total.error.finite as f64).sqrt();
    }
    Ok(total)
}

/// Does the contract fix the bits of every tensor?
fn is_canonical(work: &Work<'_>) -> Result<bool> {
    let ranks = work.job.ranks();
    let group = &work.args.group;
    // With any order, a planner that knows the links may choose any schedule.
    let chosen = match &group.algo {
        Algo::Selection(_) => true,
        Algo::Shares(_) => false,
        Algo::Pick(_) => group.topology.is_some() || env::var_os(Selection::VARIABLE).is_some(),
    };
    let free = chosen && group.order == OrderArg::Any;
    for dtype in work.buckets.dtypes() {
        let op = work.args.op;
        let differs = match group.algo.schedule(ranks)? {
            Some(schedule) => {
                !Order::Canonical.permits(&schedule, Kind::AllReduce, ranks as u16, op, dtype)
            }
            None => free && !op.is_exact(dtype),
        };
        if differs {
            return Ok(false);
        }
    }
    Ok(true)
}

fn pieces(inputs: &[Input]) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    for (name, tensor) in inputs.first().into_iter().flat_map(|i| &i.tensors) {
        let count = tensor.bytes / tensor.dtype.size();
        for start in (0..count).step_by(PIECE) {
            let elements = start..(start + PIECE).min(count);
            pieces.push(Piece { name, tensor, elements });
        }
    }
    pieces
}

fn check(work: &Work<'_>, inputs: &[Input], piece: &Piece<'_>, result: &[u8]) -> Result<Verdict> {
    let (dtype, op) = (piece.tensor.dtype, work.args.op);
    let size = dtype.size();
    let span = piece.elements.start * size..piece.elements.end * size;
    let mut tensors = Vec::new();
    for input in inputs {
        let mut bytes = vec![0; span.len()];
        let start = input.tensors.get(piece.name).map_or(0, |t| t.start);
        input.read_at(start + span.start as u64, &mut bytes)?;
        tensors.push(bytes);
    }
    let tensors: Vec<_> = tensors.iter().map(Vec::as_slice).collect();
    let weights = work.args.scalars(inputs.len(), dtype)?;
    let mut want = vec![0; span.len()];
    fold(dtype, op, &tensors, &weights, &mut want)?;
    let place = work.buckets.places.get(piece.name).map_or(0, |p| p.start);
    let got = &result[place + span.start..place + span.end];
    let mut verdict = Verdict { elements: piece.elements.len() as u64, ..Verdict::default() };
    let both = got.chunks_exact(size).zip(want.chunks_exact(size));
    for (i, _) in both.enumerate().filter(|(_, (a, b))| a != b) {
        verdict.differ += 1;
        let first = (piece.name.to_owned(), piece.elements.start + i);
        verdict.first.get_or_insert(first);
    }
    if dtype.is_float() {
        for i in 0..piece.elements.len() {
            let value = unisono_core::numeric::read_f64(dtype, got, i);
            let exact = exact(dtype, op, &tensors, &weights, i);
            if let (Some(value), Some(exact)) = (value, exact) {
                verdict.error.add(dtype, value, exact);
            }
        }
    }
    work.progress.add(span.len() as u64);
    Ok(verdict)
}

impl Errors {
    fn add(&mut self, dtype: DType, value: f64, exact: Exact) {
        let Exact { value: exact, magnitude } = exact;
        if !value.is_finite() || !exact.is_finite() {
            self.not_finite += 1;
            return;
        }
        self.finite += 1;
        let error = (value - exact).abs();
        self.max_abs = self.max_abs.max(error);
        if exact != 0.0 {
            self.max_rel = self.max_rel.max(error / exact.abs());
        }
        if let Some(ulp) = ulp(dtype, magnitude) {
            self.max_ulp = self.max_ulp.max(error / ulp);
        }
        self.rms += error * error;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::args::{Devices, Ranks};
    use super::super::super::interrupt::Interrupt;
    use super::super::super::job::Job;
    use super::super::super::progress::Progress;
    use super::super::buckets::Buckets;
    use super::super::{ReduceArgs, input, run};
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ReduceArgs,
    }

    #[test]
    fn one_wrong_bit_is_found() -> Result<()> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/data/digits-mlp");
        let files = (0..3).map(|rank| format!("{folder}/rank{rank}.safetensors"));
        let line = ["reduce", "-o", "unused"].map(str::to_owned).into_iter().chain(files);
        let args = Line::try_parse_from(line)?.args;
        let inputs = input::open_all(&args.files)?;
        let buckets = Buckets::new(&inputs[0], args.bucket);
        let interrupt = Interrupt::install(false)?;
        let progress = Progress::new(0);
        let ranks = Ranks::cpus(inputs.len());
        let job = Job::alone(Devices::cpus(inputs.len()).named(None));
        let work = Work {
            job: &job,
            ranks: &ranks,
            args: &args,
            inputs: &inputs,
            buckets: &buckets,
            interrupt: &interrupt,
            progress,
        };
        let mut result = run::reduce(&work)?.result().to_vec();
        let verdict = verify(&work, work.inputs, &result)?;
        assert_eq!((verdict.differ, verdict.elements), (0, 50_826));
        assert!(verdict.canonical && verdict.demand().is_ok());
        let place = buckets.places["fc2.weight"].start;
        result[place + 4 * 7000 + 1] ^= 1;
        let verdict = verify(&work, work.inputs, &result)?;
        assert_eq!(verdict.first, Some(("fc2.weight".into(), 7000)));
        assert_eq!(verdict.differ, 1);
        assert!(verdict.demand().is_err());
        Ok(())
    }
}
