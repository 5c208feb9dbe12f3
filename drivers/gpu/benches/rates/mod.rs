//! What a device does in a second, against its own plain copy: the same for every API, whose
//! bench includes this file.
//!
//! What is compared runs in turns, so that a change of the machine's speed meets all alike; the
//! lower quartile counts. Rates are bytes of the sources in a second; CPU time is that of the whole
//! process, which on a software device is what a kernel costs.

use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_core::fold::leaf_merges;
use unisono_core::{DType, ReduceOp};
use unisono_gpu::{Arithmetic, Context, Params, Place, Queue, Span, Variant};

/// The benchmark's argument, MiB of a span; `None` if cargo only wants to know that it runs.
pub fn span_bytes() -> Option<u64> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench` says so; `cargo test --benches` does not, and wants nothing measured.
    let measure = args.iter().any(|arg| arg == "--bench");
    args.retain(|arg| arg != "--bench");
    measure.then(|| args.first().map_or(16, |n| n.parse::<u64>().expect("MiB")) << 20)
}

/// CPU time of this process.
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid structure.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The lower quartile.
fn quartile(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 4].as_secs_f64()
}

/// A device with a queue and buffers.
pub struct Bench<C: Context> {
    context: Arc<C>,
    queue: C::Queue,
    buffers: Vec<Arc<C::Buffer>>,
    bytes: u64,
}

/// Something to measure, over whole buffers.
enum Work<K> {
    /// The API's own copy.
    Copy,
    /// A kernel: the variant, and the compiled kernel.
    Kernel(Variant, K),
}

impl<C: Context> Bench<C> {
    /// A device, and buffers of so many bytes in its memory.
    pub fn new(context: &Arc<C>, bytes: u64) -> Self {
        let queue = context.clone().queue().unwrap_or_else(|e| panic!("{e}"));
        let buffer = |_| context.alloc(bytes, Place::Device).unwrap_or_else(|e| panic!("{e}"));
        let buffers = (0..5).map(buffer).map(Arc::new).collect();
        let mut bench = Self { context: context.clone(), queue, buffers, bytes };
        bench.fill();
        bench
    }

    /// Writes all buffers: pages that nobody has written are all the same one on some systems.
    fn fill(&mut self) {
        let bytes = self.bytes.min(1 << 20);
        let pinned = Arc::new(self.context.alloc(bytes, Place::Pinned).expect("pinned memory"));
        let start = self.context.mapped(&pinned).expect("an address");
        // SAFETY: as long as that, and nobody else uses it.
        unsafe { start.as_ptr().write_bytes(0x3f, bytes as usize) };
        for buffer in self.buffers.clone() {
            for offset in (0..self.bytes).step_by(bytes as usize) {
                let bytes = bytes.min(self.bytes - offset);
                let from = Span { buffer: &pinned, offset: 0, bytes };
                let to = Span { buffer: &buffer, offset, bytes };
                // SAFETY: both outlive the batch.
                unsafe { self.queue.copy(from, to) }.expect("a copy");
                self.finish();
            }
        }
    }

    fn finish(&mut self) {
        let batch = self.queue.submit().expect("a submission");
        self.queue.wait(batch).expect("a completion");
    }

    fn variant(&self, dtype: DType, sources: u8, soft: bool) -> Variant {
        let merges = leaf_merges(sources.into()).enumerate();
        let limits = self.context.limits();
        Variant {
            dtype,
            op: (sources > 1).then_some(ReduceOp::Sum),
            partial: false,
            sources,
            dests: 1,
            partials: 0,
            merges: merges.map(|(i, merges)| u64::from(merges) << (4 * i)).sum(),
            arithmetic: if soft { Arithmetic::default() } else { limits.offers },
            group_size: limits.group_size,
        }
    }

    /// Enqueues work on the first `bytes` bytes of buffers.
    fn start(&mut self, work: &Work<<C::Queue as Queue>::Kernel>, bytes: u64) {
        let span = |i: usize| Span { buffer: &self.buffers[i], offset: 0, bytes };
        match work {
            // SAFETY: the buffers outlive the batch, and are apart.
            Work::Copy => unsafe { self.queue.copy(span(0), span(1)) }.expect("a copy"),
            Work::Kernel(variant, kernel) => {
                let count = (bytes / variant.dtype.size() as u64) as u32;
                let groups = variant.groups(count, self.context.limits().groups_max);
                let spans: Vec<_> = (0..=usize::from(variant.sources)).map(span).collect();
                let params = Params::new(count, 1);
                // SAFETY: as above; a source and a destination for each that the kernel has.
                unsafe { self.queue.dispatch(kernel, &params, &spans, groups) }.expect("a kernel");
            }
        }
    }

    /// Rates of kernels over whole buffers.
    pub fn rates(&mut self, copy: &str) {
        let mut all = vec![(copy.to_owned(), Work::Copy, Vec::new(), Vec::new())];
        let types = [DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::F64, DType::I64];
        let sums = types.into_iter().flat_map(|dtype| {
            [false, true].into_iter().flat_map(move |soft| [2, 4].map(|k| (dtype, k, soft)))
        });
        for (dtype, sources, soft) in std::iter::once((DType::U8, 1, false)).chain(sums) {
            let variant = self.variant(dtype, sources, soft);
            let how = if soft { "in integers" } else { "native" };
            let name = if sources == 1 {
                "copy kernel".to_owned()
            } else {
                format!("{dtype} sum of {sources}, {how}")
            };
            let (begin, before) = (Instant::now(), cpu());
            let kernel = self.queue.compile(&variant).unwrap_or_else(|e| panic!("{e}"));
            let work = Work::Kernel(variant, kernel);
            self.start(&work, 4096);
            self.finish();
            let (took, cpu) = (begin.elapsed(), cpu() - before);
            println!("{name:>36}: compiled and run once in {took:.0?}, {cpu:.0?} of CPU time");
            all.push((name, work, Vec::new(), Vec::new()));
        }
        for _ in 0..7 {
            for (_, work, wall, busy) in &mut all {
                let (begin, before) = (Instant::now(), cpu());
                self.start(work, self.bytes);
                self.finish();
                wall.push(begin.elapsed());
                busy.push(cpu() - before);
            }
        }
        let plain = quartile(all[0].2.clone());
        for (name, work, wall, busy) in all {
            let sources = match work {
                Work::Copy => 1,
                Work::Kernel(variant, _) => variant.sources,
            };
            let moved = u64::from(sources) * self.bytes;
            let (wall, busy) = (quartile(wall), quartile(busy));
            let rate = |seconds: f64| moved as f64 / seconds / 1e9;
            // A plain copy moves a byte in and one out; so much for each byte a kernel moves.
            let ratio = plain / wall * f64::from(sources + 1) / 2.0;
            println!(
                "{name:>36}: {:6.2} GB/s, {:6.2} GB/s per CPU, {:4.0} % of the copy's traffic",
                rate(wall),
                rate(busy),
                100.0 * ratio
            );
        }
    }

    /// Round trips of small kernels, alone and in batches.
    pub fn trips(&mut self) {
        let variant = self.variant(DType::F32, 2, false);
        let kernel = self.queue.compile(&variant).unwrap_or_else(|e| panic!("{e}"));
        let work = Work::Kernel(variant, kernel);
        for jobs in [1, 8, 32] {
            let mut times = Vec::new();
            for _ in 0..400 / jobs + 10 {
                let begin = Instant::now();
                (0..jobs).for_each(|_| self.start(&work, 4096));
                let recorded = begin.elapsed();
                self.finish();
                times.push((begin.elapsed(), recorded));
            }
            let each = |time: fn(&(Duration, Duration)) -> Duration| {
                quartile(times.iter().map(time).collect()) * 1e6 / f64::from(jobs)
            };
            let (trip, record) = (each(|time| time.0), each(|time| time.1));
            println!(
                "{jobs:>5} kernels of 4 KiB in a batch: {trip:6.1} us each, {record:.2} us of it \
                 recording"
            );
        }
    }
}
