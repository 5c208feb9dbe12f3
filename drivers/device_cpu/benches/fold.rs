//! Rates of the fold kernels.
//!
//! ```text
//! cargo bench -p unisono-device-cpu -- limit [liblimit.so]   f32 sums in place, against C
//! cargo bench -p unisono-device-cpu -- rates [bytes]         every type and operator
//! ```
//!
//! `liblimit.so` is `limit.c` beside this file. What is compared runs in turns, many short rounds,
//! so that a change of the machine's speed meets all alike; the lower quartile counts.

use std::ffi::{CString, c_char, c_int, c_void};
use std::time::Instant;
use unisono_core::fold::leaf_merges;
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source};
use unisono_device_cpu::{CpuDevice, Isa};
use unisono_driver::{Device, Fold, HostPtr};

/// Bytes of each tensor.
const TENSOR: usize = 64 << 20;

/// `limit2` and `limit4` of the C library.
type Limit = unsafe extern "C" fn(*const *mut u8, usize);

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench` says so; `cargo test --benches` does not, and wants nothing measured.
    let measure = args.iter().any(|arg| arg == "--bench");
    args.retain(|arg| arg != "--bench");
    match args.first().map(String::as_str) {
        None if measure => limit(None),
        Some("limit") => limit(args.get(1).map(String::as_str)),
        Some("rates") => rates(args.get(1).map_or(64 << 10, |n| n.parse().expect("bytes"))),
        other => eprintln!("nothing measured: {other:?} is neither limit nor rates"),
    }
}

/// `count` tensors, aligned to pages and touched.
fn tensors(count: usize, bytes: usize) -> Vec<*mut u8> {
    let layout = std::alloc::Layout::from_size_align(bytes, 4096).expect("a layout");
    let new = || {
        // SAFETY: the size is not zero. Never freed: the process ends soon.
        let start = unsafe { std::alloc::alloc(layout) };
        assert!(!start.is_null(), "no memory");
        // SAFETY: just allocated.
        unsafe { start.write_bytes(0, bytes) };
        start
    };
    (0..count).map(|_| new()).collect()
}

/// Seconds of one call of each function.
fn compare(functions: &mut [Box<dyn FnMut() + '_>], calls: usize) -> Vec<f64> {
    let mut rounds = vec![Vec::new(); functions.len()];
    for _ in 0..25 {
        for (function, rounds) in functions.iter_mut().zip(&mut rounds) {
            let start = Instant::now();
            for _ in 0..calls {
                function();
            }
            rounds.push(start.elapsed().as_secs_f64() / calls as f64);
        }
    }
    for rounds in &mut rounds {
        rounds.sort_by(f64::total_cmp);
    }
    rounds.iter().map(|rounds| rounds[rounds.len() / 4]).collect()
}

/// One fold of the first `k` tensors.
fn fold(
    isa: Isa,
    (dtype, op): (DType, ReduceOp),
    (from, to): (&[*mut u8], &[*mut u8]),
    count: usize,
) -> Option<Box<dyn FnMut()>> {
    let mut device = CpuDevice::with_isa(isa)?;
    let ranks = from.len() as u32;
    let sources: Vec<Source<HostPtr>> = from
        .iter()
        .zip(leaf_merges(ranks))
        .map(|(&start, merges)| {
            let (mem, weight) = (HostPtr::new(start), Scalar::one(dtype));
            Source { mem, form: Form::Leaf, weight, merges }
        })
        .collect();
    let dests: Vec<HostPtr> = to.iter().map(|&start| HostPtr::new(start)).collect();
    Some(Box::new(move || {
        let (sources, dests, finish) = (&sources[..], &dests[..], Finish::Final { ranks });
        let work = Fold { dtype, op: Some(op), count, sources, dests, finish };
        // SAFETY: tensors of at least `count` elements, used by nobody else.
        unsafe { device.fold(&work, 0) }.expect("a fold");
        device.poll_done().expect("its completion").result.expect("success");
    }))
}

/// Sums of two and four f32 tensors in place.
fn limit(library: Option<&str>) {
    let tensors = tensors(5, TENSOR);
    let c = library.map(load);
    println!("f32 sum of k tensors into all of them; GB/s count k reads and k writes");
    println!("{:>2} {:>9} {:>8} | of the C loop's speed, or GB/s", "k", "KiB each", "C GB/s");
    for k in [2, 4] {
        for kib in [16, 64, 256, 1024, 4096, 61_440] {
            let (bytes, count) = (kib << 10, kib << 8);
            let calls = ((128 << 20) / bytes / k).clamp(1, 4000);
            let mut names = Vec::new();
            let mut functions: Vec<Box<dyn FnMut() + '_>> = Vec::new();
            if let Some(c) = c {
                let (c, starts) = (c[k / 4], &tensors);
                names.push("C");
                // SAFETY: `k` tensors of at least `count` elements.
                functions.push(Box::new(move || unsafe { c(starts.as_ptr(), count) }));
            }
            for isa in Isa::ALL {
                let spans = (&tensors[..k], &tensors[..k]);
                if let Some(f) = fold(isa, (DType::F32, ReduceOp::Sum), spans, count) {
                    names.push(isa.name());
                    functions.push(f);
                }
            }
            let (from, to) = (tensors[0], tensors[4]);
            // SAFETY: both tensors are at least so long.
            functions.push(Box::new(move || unsafe { from.copy_to_nonoverlapping(to, bytes) }));
            let times = compare(&mut functions, calls);
            let moved = (2 * k * bytes) as f64 / 1e9;
            let base = c.map(|_| times[0]);
            print!("{k:>2} {kib:>9} {:>8.1} |", base.map_or(f64::NAN, |t| moved / t));
            for (name, time) in names.iter().zip(&times).skip(usize::from(c.is_some())) {
                print!(" {name} {:.2}", base.map_or(moved / time, |base| base / time));
            }
            println!(" memcpy {:.1} GB/s", 2e-9 * bytes as f64 / times[names.len()]);
        }
    }
}

/// GB/s of every type and operator, `k` tensors into one more.
fn rates(bytes: usize) {
    let tensors = tensors(17, bytes);
    println!("GB/s, counting k reads and one write of {bytes} bytes");
    println!("{:16} | k = 2, 4, 8, 16 on {}", "", Isa::ALL.map(Isa::name).join(" | "));
    for dtype in DType::ALL {
        for op in ReduceOp::ALL.into_iter().filter(|op| op.supports(dtype)) {
            print!("{dtype:8}{op:8}");
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                print!(" |");
                for k in [2, 4, 8, 16] {
                    let spans = (&tensors[..k], &tensors[16..]);
                    let f = fold(isa, (dtype, op), spans, bytes / dtype.size());
                    let mut functions = [f.expect("an available instruction set")];
                    let time = compare(&mut functions, ((1 << 20) / bytes).max(1))[0];
                    print!(" {:6.1}", ((k + 1) * bytes) as f64 / time / 1e9);
                }
            }
            println!();
        }
    }
}

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The two loops of the C library.
fn load(path: &str) -> [Limit; 2] {
    let path = CString::new(path).expect("a path");
    // SAFETY: two zero-terminated strings; 2 is RTLD_NOW.
    let library = unsafe { dlopen(path.as_ptr(), 2) };
    assert!(!library.is_null(), "cannot load {path:?}");
    [c"limit2", c"limit4"].map(|name| {
        // SAFETY: a loaded library and a zero-terminated string.
        let symbol = unsafe { dlsym(library, name.as_ptr()) };
        assert!(!symbol.is_null(), "no {name:?}");
        // SAFETY: limit.c declares it so.
        unsafe { std::mem::transmute::<*mut c_void, Limit>(symbol) }
    })
}
