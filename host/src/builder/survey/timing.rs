//! Times of calls, each of which says something of a link or of a rank.

use crate::error::Error;
use crate::member::Member;
use crate::tensor::Tensor;
use std::time::{Duration, Instant};
use unisono_core::ReduceOp::Sum;

/// A number is measured in short pieces, of which the fastest counts: what else runs here only ever
/// makes them slower. So many are enough, and fewer if they take long.
const PIECE: Duration = Duration::from_millis(1);
const PIECES: std::ops::Range<u32> = 3..25;
const ENOUGH: Duration = Duration::from_millis(100);
/// A broadcast that takes so long is of a large tensor.
const LONG: f64 = 5e-3;
/// Most calls of a piece: they tell each other nothing in between.
const CALLS_MAX: u32 = 4096;
/// Tensors whose broadcasts are timed: the first one that takes a piece, or the largest.
pub const SIZES: [usize; 5] = [16 << 10, 128 << 10, 1 << 20, 4 << 20, 16 << 20];

/// Seconds of a message without data.
pub fn small(member: &mut Member) -> Result<f64, Error> {
    let mut tensor = member.tensor::<f32>(2)?;
    Ok(steady(member, &mut |member| member.all_reduce(&mut tensor, Sum))? / 2.0)
}

/// Bytes of a message that is little more than its frame, and how many there are of it.
pub const SHORT: u64 = 1024;
const MANY: u64 = 64;

/// Seconds of one of many short messages.
pub fn many(member: &mut Member) -> Result<f64, Error> {
    let mut tensor = member.tensor::<f32>((MANY * SHORT / 4) as usize)?;
    Ok(steady(member, &mut |member| member.broadcast(&mut tensor, 0))? / MANY as f64)
}

/// Bytes per second that each of two ranks sends and receives at the same time.
pub fn exchanges(member: &mut Member) -> Result<f64, Error> {
    let mut rate = 0.0;
    for bytes in SIZES {
        let count = bytes / 8;
        let input = member.tensor::<f32>(count)?;
        let mut output = member.tensor::<f32>(2 * count)?;
        let time = steady(member, &mut |member| member.all_gather(&input, &mut output))?;
        rate = bytes as f64 / time.max(1e-9);
        if time > LONG {
            break;
        }
    }
    Ok(rate)
}

/// Bytes per second of broadcasts.
pub fn large(member: &mut Member, root: u16) -> Result<f64, Error> {
    sized(member, &mut |member, tensor| member.broadcast(tensor, root))
}

/// Bytes per second that reach a root from each of the others.
pub fn reduces(member: &mut Member, root: u16) -> Result<f64, Error> {
    sized(member, &mut |member, tensor| member.reduce(tensor, Sum, root))
}

type Made<'a> = &'a mut dyn FnMut(&mut Member, &mut Tensor<f32>) -> Result<(), Error>;

/// Bytes of a tensor over the time of a call, for one that takes long enough.
fn sized(member: &mut Member, call: Made<'_>) -> Result<f64, Error> {
    let mut rate = 0.0;
    for bytes in SIZES {
        let mut tensor = member.tensor::<f32>(bytes / 4)?;
        let time = steady(member, &mut |member| call(member, &mut tensor))?;
        rate = bytes as f64 / time.max(1e-9);
        if time > LONG {
            break;
        }
    }
    Ok(rate)
}

/// Seconds of a call that is made again and again, in the fastest of some pieces by rank 0's clock.
fn steady(
    member: &mut Member,
    call: &mut dyn FnMut(&mut Member) -> Result<(), Error>,
) -> Result<f64, Error> {
    let (mut calls, mut pieces, mut least) = (1u32, 0, f64::INFINITY);
    let mut taken = Duration::ZERO;
    while pieces < PIECES.start || (pieces < PIECES.end && taken < ENOUGH) {
        let whole = timed(member, calls, call)? * f64::from(calls);
        // All go by the same clock, so all make as many calls.
        let mut time = [(whole * 1e9) as u64];
        member.broadcast(&mut time[..], 0)?;
        let whole = Duration::from_nanos(time[0]);
        if whole < PIECE && calls < CALLS_MAX && pieces == 0 {
            calls *= 4;
            continue;
        }
        pieces += 1;
        taken += whole;
        least = least.min(whole.as_secs_f64() / f64::from(calls));
    }
    Ok(least)
}

/// Seconds of a call that is made again and again, in the middle one of some pieces by the own
/// clock; `about`: what it takes, the same on all members, so that all make as many.
pub fn typical(
    member: &mut Member,
    about: f64,
    call: &mut dyn FnMut(&mut Member) -> Result<(), Error>,
) -> Result<f64, Error> {
    /// Of pieces; the least and the most of them.
    const SOME: [u32; 2] = [3, 9];
    let fit = |time: Duration, about: f64| (time.as_secs_f64() / about.max(1e-9)) as u32;
    let calls = fit(2 * PIECE, about).clamp(1, CALLS_MAX);
    let pieces = fit(ENOUGH / 3, about * f64::from(calls)).clamp(SOME[0], SOME[1]) | 1;
    let times: Result<Vec<f64>, Error> = (0..pieces).map(|_| timed(member, calls, call)).collect();
    let mut times = times?;
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Seconds of one of so many calls.
pub fn timed(
    member: &mut Member,
    calls: u32,
    call: &mut dyn FnMut(&mut Member) -> Result<(), Error>,
) -> Result<f64, Error> {
    member.barrier()?;
    let started = Instant::now();
    for _ in 0..calls {
        call(member)?;
    }
    member.barrier()?;
    Ok(started.elapsed().as_secs_f64() / f64::from(calls))
}
