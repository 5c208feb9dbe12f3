//! How fast each member's device folds in a group, for the shares of an all-reduce.

use super::any::{AnyDevice, DeviceError};
use super::store::Opened;
use crate::error::Error;
use crate::memory::Block;
use std::time::{Duration, Instant};
use unisono_core::fold::leaf_merges;
use unisono_core::plan::{LinkModel, shares};
use unisono_core::schedule::Owners;
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source};
use unisono_driver::{Copy, Device, Fold, Memory};
use unisono_gpu::Place;

/// Bytes of a source: as many as a chunk of a large tensor has.
const BYTES: usize = 1 << 20;
/// Sources are the same few, over and over: more would not fit a short measurement.
const SOURCES: usize = 4;
/// A device is measured for so long, but at least twice.
const TIME: Duration = Duration::from_millis(15);
/// Jobs under way at a time.
const JOBS: u32 = 3;

/// Bytes per second of one member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    /// Of each source that it folds.
    pub fold: f64,
    /// From its own memory to where peers reach it; infinite if they reach its own.
    pub send: f64,
}

/// Who owns which share of an all-reduce, so that all are ready at the same time; `None` if the
/// rates make no sense.
pub(crate) fn owners(ranks: u16, rates: &[Rate]) -> Option<Owners> {
    // What peers read in place costs them nothing but the fold.
    let send = |rate: &Rate| (1e9 / rate.send).max(1e-9);
    let model: Vec<_> = rates
        .iter()
        .map(|rate| LinkModel {
            alpha_ns: 0.0,
            ns_per_byte: send(rate),
            fold_ns_per_byte: 1e9 / rate.fold,
        })
        .collect();
    shares(ranks, &model)?.owners()
}

/// Bytes per second of a board that folds so many f32 elements in a millisecond, by its own word.
pub(crate) fn of_board(elements: u32) -> f64 {
    (f64::from(elements) * 4000.0).max(1.0)
}

/// Measures a device in the part of an owner: it folds its own memory and that of the host.
pub(crate) fn measure(
    device: &mut AnyDevice,
    on: Option<&Opened>,
    devices: &[Opened],
    ranks: usize,
) -> Result<Rate, Error> {
    let sources = ranks.clamp(2, SOURCES);
    let no_memory = |_| Error::Memory((sources + 1) * BYTES);
    let peers = Block::host(sources * BYTES, devices).map_err(no_memory)?;
    let own = match on {
        Some(on) => Block::of(on, BYTES, Place::Device, devices)?,
        None => Block::host(BYTES, devices).map_err(no_memory)?,
    };
    let at = |i: usize| match i {
        0 => own.start,
        i => peers.start.offset((i * BYTES) as u64),
    };
    let merges = leaf_merges(sources as u32);
    let sources: Vec<_> = (0..sources)
        .zip(merges)
        .map(|(i, merges)| Source {
            mem: at(i),
            form: Form::Leaf,
            weight: Scalar::one(DType::F32),
            merges,
        })
        .collect();
    // The result goes to the members' own memory, as far as the device writes it there itself.
    let dests: Vec<_> = (0..sources.len().min(device.caps().dests_max)).map(at).collect();
    let fold = Fold {
        dtype: DType::F32,
        op: Some(ReduceOp::Sum),
        count: BYTES / 4,
        sources: &sources,
        dests: &dests,
        finish: Finish::Final { ranks: sources.len() as u32 },
    };
    // It is over in a moment.
    let go_on = &|| Ok(());
    // SAFETY: the spans are as long as that, and only this device uses them.
    let seconds = run(device, JOBS, TIME, go_on, &mut |device| unsafe { device.fold(&fold, 0) })?;
    let fold = ((sources.len() - 1) * BYTES) as f64 / seconds;
    if own.shared {
        return Ok(Rate { fold, send: f64::INFINITY });
    }
    let copy = Copy { from: own.start, to: peers.start, bytes: BYTES };
    // SAFETY: as above.
    let seconds = run(device, JOBS, TIME, go_on, &mut |device| unsafe { device.copy(&copy, 0) })?;
    Ok(Rate { fold, send: BYTES as f64 / seconds })
}

/// Seconds that one job takes when `jobs` are under way at a time; at least twice, and for about
/// `time`. Between jobs `go_on` may end it.
pub(crate) fn run(
    device: &mut AnyDevice,
    jobs: u32,
    time: Duration,
    go_on: &dyn Fn() -> Result<(), Error>,
    start: &mut dyn FnMut(&mut AnyDevice) -> Result<(), DeviceError>,
) -> Result<f64, Error> {
    go_on()?;
    // The first one compiles the kernel and touches the memory.
    start(device)?;
    wait(device)?;
    let started = Instant::now();
    let mut done = 0;
    while done < 2 || started.elapsed() < time {
        go_on()?;
        let mut under_way = 0;
        while under_way < jobs && device.has_room() {
            start(device)?;
            under_way += 1;
        }
        for _ in 0..under_way {
            wait(device)?;
        }
        done += under_way;
    }
    Ok(started.elapsed().as_secs_f64() / f64::from(done))
}

/// Waits for one job.
pub(crate) fn wait(device: &mut AnyDevice) -> Result<(), Error> {
    loop {
        device.flush();
        if let Some(done) = device.poll_done() {
            return done.result.map_err(Into::into);
        }
        std::thread::yield_now();
    }
}
