//! What a Vulkan device does in a second, against its own plain copy.
//!
//! ```text
//! cargo bench -p unisono-device-vulkan -- [MiB]     device `UNISONO_VULKAN`, spans of so many MiB
//! ```
//!
//! What is compared runs in turns, so that a change of the machine's speed meets all alike; the
//! lower quartile counts. Rates are bytes of the sources in a second; CPU time is that of the whole
//! process, which on a software device is what a kernel costs.

use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_core::fold::leaf_merges;
use unisono_core::{DType, ReduceOp};
use unisono_device_vulkan::{Context, Options, VulkanBuffer, VulkanContext, VulkanQueue};
use unisono_gpu::{Arithmetic, Params, Place, Queue, Span, Variant};

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench` says so; `cargo test --benches` does not, and wants nothing measured.
    if !args.iter().any(|arg| arg == "--bench") {
        return;
    }
    args.retain(|arg| arg != "--bench");
    let bytes = args.first().map_or(16, |n| n.parse::<u64>().expect("MiB")) << 20;
    let index = std::env::var("UNISONO_VULKAN").map_or(0, |n| n.parse().expect("a device"));
    for group_size in [64, 256] {
        let options = Options { group_size, ..Options::default() };
        let context = VulkanContext::open(index, &options).unwrap_or_else(|e| panic!("{e}"));
        println!("{}, groups of {group_size}", context.card().name);
        rates(&context, bytes);
        trips(&context);
    }
}

/// CPU time of this process.
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid structure.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A kernel over whole buffers.
struct Kernel {
    variant: Variant,
    count: u32,
    name: String,
}

fn kernel(context: &VulkanContext, dtype: DType, sources: u8, soft: bool, bytes: u64) -> Kernel {
    let merges = leaf_merges(sources.into()).enumerate();
    let arithmetic = if soft { Arithmetic::default() } else { context.limits().offers };
    let count = (bytes / dtype.size() as u64) as u32;
    let variant = Variant {
        dtype,
        op: (sources > 1).then_some(ReduceOp::Sum),
        partial: false,
        sources,
        dests: 1,
        partials: 0,
        merges: merges.map(|(i, merges)| u64::from(merges) << (4 * i)).sum(),
        arithmetic,
        group_size: context.limits().group_size,
    };
    let how = if soft { "in integers" } else { "native" };
    let what =
        if sources == 1 { "copy kernel".into() } else { format!("{dtype} sum of {sources}") };
    Kernel { variant, count, name: format!("{what}, {how}") }
}

fn dispatch(queue: &mut VulkanQueue, kernel: &Kernel, buffers: &[Arc<VulkanBuffer>]) {
    let compiled = queue.compile(&kernel.variant).unwrap();
    let count = kernel.count;
    let bytes = u64::from(count) * kernel.variant.dtype.size() as u64;
    let spans = usize::from(kernel.variant.sources) + 1;
    let spans: Vec<_> =
        buffers[..spans].iter().map(|buffer| Span { buffer, offset: 0, bytes }).collect();
    let groups = kernel.variant.groups(count, 65_535);
    // SAFETY: the buffers outlive the batch and do not overlap.
    unsafe { queue.dispatch(&compiled, &Params::new(count, 1), &spans, groups) }.unwrap();
}

fn copy(queue: &mut VulkanQueue, buffers: &[Arc<VulkanBuffer>], bytes: u64) {
    let span = |i: usize| Span { buffer: &buffers[i], offset: 0, bytes };
    // SAFETY: as above.
    unsafe { queue.copy(span(0), span(1)) }.unwrap();
}

fn finish(queue: &mut VulkanQueue) {
    let batch = queue.submit().unwrap();
    queue.wait(batch).unwrap();
}

/// The lower quartile.
fn quartile(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 4].as_secs_f64()
}

fn rates(context: &Arc<VulkanContext>, bytes: u64) {
    let mut queue = context.clone().queue().unwrap();
    let buffer = |_| Arc::new(context.alloc(bytes, Place::Device).unwrap());
    let buffers: Vec<_> = (0..5).map(buffer).collect();
    let mut kernels = vec![kernel(context, DType::U8, 1, false, bytes)];
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::F64, DType::I64] {
        for soft in [false, true] {
            kernels.extend([2, 4].map(|sources| kernel(context, dtype, sources, soft, bytes)));
        }
    }
    let mut times = vec![(Vec::new(), Vec::new()); kernels.len() + 1];
    for round in 0..6 {
        for (i, (wall, work)) in times.iter_mut().enumerate() {
            let compile = cpu();
            if let Some(i) = i.checked_sub(1) {
                queue.compile(&kernels[i].variant).unwrap();
            }
            let (start, before) = (Instant::now(), cpu());
            match i.checked_sub(1) {
                None => copy(&mut queue, &buffers, bytes),
                Some(i) => dispatch(&mut queue, &kernels[i], &buffers),
            }
            finish(&mut queue);
            // The first round compiles.
            if round > 0 {
                wall.push(start.elapsed());
                work.push(cpu() - before);
            } else if let Some(i) = i.checked_sub(1) {
                let (made, run) = (before - compile, start.elapsed());
                println!("{:>36}: compiled in {made:.0?}, first run {run:.0?}", kernels[i].name);
            }
        }
    }
    let names = ["vkCmdCopyBuffer"].into_iter().chain(kernels.iter().map(|k| &*k.name));
    let sources = [1].into_iter().chain(kernels.iter().map(|k| k.variant.sources));
    let plain = quartile(times[0].0.clone());
    for ((name, sources), (wall, work)) in names.zip(sources).zip(times) {
        let moved = u64::from(sources) * bytes;
        let (wall, work) = (quartile(wall), quartile(work));
        let rate = |seconds: f64| moved as f64 / seconds / 1e9;
        // A plain copy moves a byte in and one out; so much for each byte a kernel moves.
        let ratio = plain / wall * f64::from(sources + 1) / 2.0;
        println!(
            "{name:>36}: {:6.2} GB/s, {:6.2} GB/s per CPU, {:4.0} % of the copy's traffic",
            rate(wall),
            rate(work),
            100.0 * ratio
        );
    }
}

/// Round trips of small kernels, alone and in batches.
fn trips(context: &Arc<VulkanContext>) {
    let mut queue = context.clone().queue().unwrap();
    let buffers: Vec<_> =
        (0..3).map(|_| Arc::new(context.alloc(4096, Place::Device).unwrap())).collect();
    let small = kernel(context, DType::F32, 2, false, 4096);
    for jobs in [1, 8, 32, 128] {
        let mut times = Vec::new();
        for _ in 0..400 / jobs + 10 {
            let start = Instant::now();
            for _ in 0..jobs {
                dispatch(&mut queue, &small, &buffers);
            }
            let recorded = start.elapsed();
            finish(&mut queue);
            times.push((start.elapsed(), recorded));
        }
        let trip = quartile(times.iter().map(|time| time.0).collect());
        let record = quartile(times.iter().map(|time| time.1).collect());
        let each = |seconds: f64| seconds * 1e6 / f64::from(jobs);
        println!(
            "{jobs:>5} kernels of 4 KiB in a batch: {:6.1} us each, {:.2} us of it recording",
            each(trip),
            each(record)
        );
    }
}
