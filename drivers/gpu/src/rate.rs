//! How fast a device is: what its share of the work is made from.

use crate::backend::{Context, Place};
use crate::device::Gpu;
use crate::error::GpuError;
use std::time::{Duration, Instant};
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source};
use unisono_driver::{Copy, Device, Fold, HostPtr, Memory as _};

/// Bytes of the longest span that is tried.
const SPAN_MAX: usize = 2 << 20;
/// Bytes of the shortest.
const SPAN_MIN: usize = 64 << 10;
/// Bytes of the shortest copy: smaller ones may be done by the host.
const COPY_MIN: usize = 512 << 10;
/// Most jobs of a batch.
const JOBS_MAX: usize = 16;
/// Time for the runs of one rate.
const BUDGET: Duration = Duration::from_millis(10);
/// Runs of each size; the fastest counts, since a machine that does something else as well makes
/// runs longer, never shorter.
const RUNS: usize = 3;
/// Runs of a rate, however long they take: a few may all be disturbed.
const RUNS_MIN: usize = 9;
/// Small jobs that are timed.
const TRIPS: usize = 12;

/// What a device does in a second. Rates are of the second run and on, so without compile time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bytes of sources folded per second: binary32 sums of two spans in the device's memory.
    pub fold: f64,
    /// The same with all spans in host memory that the device has not seen before.
    pub fold_host: f64,
    /// Bytes copied per second within the device's memory.
    pub copy: f64,
    /// From the submission of a small fold to its completion: what a quarter of them take at most.
    pub round_trip: Duration,
}

impl Rates {
    /// Measures, in some 50 ms beside the time to compile one kernel.
    ///
    /// # Errors
    /// What the driver says, or that no memory is left.
    pub fn measure<C: Context>(gpu: &mut Gpu<C>) -> Result<Self, GpuError> {
        let memory = gpu.memory().alloc(3 * SPAN_MAX, Place::Device)?;
        let mut host = vec![0u8; 3 * SPAN_MAX];
        for value in host.chunks_exact_mut(4) {
            value.copy_from_slice(&1.25f32.to_le_bytes());
        }
        // SAFETY: an allocation of this function's own.
        unsafe { gpu.memory().write(memory.mem(), &host) }?;
        let device = memory.mem();
        let host = HostPtr::new(host.as_mut_ptr());
        // SAFETY: both have room for three spans, and live until all is measured.
        unsafe {
            run(gpu, device, SPAN_MIN, 1, fold)?;
            let round_trip = round_trip(gpu, device)?;
            let fold_rate = rate(gpu, device, (SPAN_MIN, 2), fold)?;
            let fold_host = rate(gpu, host, (SPAN_MIN, 2), fold)?;
            let copy = rate(gpu, device, (COPY_MIN, 1), copy)?;
            Ok(Self { fold: fold_rate, fold_host, copy, round_trip })
        }
    }
}

/// Starts one job on spans of so many bytes, [`SPAN_MAX`] apart.
type Start<C> = unsafe fn(&mut Gpu<C>, HostPtr, usize) -> Result<(), GpuError>;

/// # Safety
/// Three spans must be there.
unsafe fn fold<C: Context>(gpu: &mut Gpu<C>, mem: HostPtr, bytes: usize) -> Result<(), GpuError> {
    let source = |i: u8| {
        let mem = mem.offset(u64::from(i) * SPAN_MAX as u64);
        Source { mem, form: Form::Leaf, weight: Scalar(0), merges: i }
    };
    let work = Fold {
        dtype: DType::F32,
        op: Some(ReduceOp::Sum),
        count: bytes / 4,
        sources: &[source(0), source(1)],
        dests: &[mem.offset(2 * SPAN_MAX as u64)],
        finish: Finish::Final { ranks: 2 },
    };
    // SAFETY: the caller's promise. Jobs of a batch write the same bytes to the same place.
    unsafe { gpu.fold(&work, 0) }
}

/// # Safety
/// Three spans must be there.
unsafe fn copy<C: Context>(gpu: &mut Gpu<C>, mem: HostPtr, bytes: usize) -> Result<(), GpuError> {
    let to = mem.offset(2 * SPAN_MAX as u64);
    // SAFETY: as for `fold`.
    unsafe { gpu.copy(&Copy { from: mem, to, bytes }, 0) }
}

/// Time for some jobs in one batch.
///
/// # Safety
/// Three spans must be there.
unsafe fn run<C: Context>(
    gpu: &mut Gpu<C>,
    mem: HostPtr,
    bytes: usize,
    jobs: usize,
    start: Start<C>,
) -> Result<Duration, GpuError> {
    let begin = Instant::now();
    let mut started = Ok(());
    let mut running = 0;
    while running < jobs && started.is_ok() {
        // SAFETY: the caller's promise.
        started = unsafe { start(gpu, mem, bytes) };
        running += usize::from(started.is_ok());
    }
    // All of them, whatever becomes of one: they use the caller's memory.
    let mut result = started;
    for _ in 0..running {
        result = result.and(gpu.wait_for_one());
    }
    result.map(|()| begin.elapsed())
}

/// Bytes per second, with spans and batches that get larger until the time is used up: the better
/// of the last two sizes, since small ones live in caches and the last may be disturbed.
///
/// # Safety
/// Three spans must be there.
unsafe fn rate<C: Context>(
    gpu: &mut Gpu<C>,
    mem: HostPtr,
    (first, sources): (usize, usize),
    start: Start<C>,
) -> Result<f64, GpuError> {
    let (mut bytes, mut jobs, mut runs) = (first, 1, 0);
    let (mut before, mut best, mut spent) = (0f64, 0f64, Duration::ZERO);
    loop {
        // SAFETY: the caller's promise.
        let took = unsafe { run(gpu, mem, bytes, jobs, start) }?;
        best = best.max((bytes * jobs * sources) as f64 / took.as_secs_f64().max(1e-9));
        // The first run of a size may have to compile for it.
        if runs % RUNS != 0 {
            spent += took;
        }
        runs += 1;
        if spent >= BUDGET && runs >= RUNS_MIN {
            return Ok(best.max(before));
        }
        if runs % RUNS != 0 || (bytes >= SPAN_MAX && jobs >= JOBS_MAX) {
            continue;
        }
        (before, best) = (best, 0.0);
        if bytes < SPAN_MAX {
            bytes *= 2;
        } else {
            jobs *= 2;
        }
    }
}

/// The time of a small fold.
///
/// # Safety
/// Three spans must be there.
unsafe fn round_trip<C: Context>(gpu: &mut Gpu<C>, mem: HostPtr) -> Result<Duration, GpuError> {
    let mut times = [Duration::ZERO; TRIPS];
    for time in &mut times {
        // SAFETY: the caller's promise.
        *time = unsafe { run(gpu, mem, 64, 1, fold) }?;
    }
    times.sort_unstable();
    Ok(times[TRIPS / 4])
}
