//! The kernels' arithmetic, built by a C compiler, against the scalar reference: every type,
//! operator and finish, in integers and natively. Needs no GPU and no GPU API.
//!
//! `UNISONO_PATTERNS` sets how many elements each is tested with.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_core::fold::leaf_merges;
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source, numeric};
use unisono_gpu::kernel::{Arithmetic, Params, Variant, opencl, weight};
use unisono_testkit::device::Bits;

/// `run` in tests/c/run.h.
type Run = unsafe extern "C" fn(*const Params, *const *const u8, *const *mut u8, u32);

/// A variant of the kernels as a function of this process.
struct Kernel {
    library: *mut libc::c_void,
    run: Run,
}

impl Kernel {
    /// Builds a variant.
    fn new(variant: &Variant, name: &str) -> Self {
        let c = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
        let read = |file: &str| std::fs::read_to_string(c.join(file)).expect("a file of the test");
        let words = include_str!("../kernels/lang_cl.h");
        let kernels = opencl::SOURCE.strip_prefix(words).expect("OpenCL C's words come first");
        let file = |end: &str| scratch(&format!("{name}.{end}"));
        let source = read("lang_c.h") + kernels + &read("run.h");
        std::fs::write(file("c"), source).expect("a file");
        let options = variant.options().expect("a variant that makes sense");
        let output = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-w", "-ffp-contract=off", "-shared", "-fPIC"])
            .args(options.split(' ').filter(|option| option.starts_with("-D")))
            .args([file("c").as_os_str(), "-o".as_ref(), file("so").as_os_str()])
            .output()
            .expect("cc, which links Rust programs as well");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let path = CString::new(file("so").to_str().expect("a path")).expect("a path");
        // SAFETY: a library of plain functions, nothing runs when it is loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "the library that was just built loads");
        // SAFETY: the library is open, the name is a C string.
        let run = unsafe { libc::dlsym(library, c"run".as_ptr()) };
        assert!(!run.is_null(), "the library has the function");
        // SAFETY: that is the function's type.
        let run = unsafe { std::mem::transmute::<*mut libc::c_void, Run>(run) };
        Self { library, run }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: opened once, and `run` is not used any more.
        unsafe { libc::dlclose(self.library) };
    }
}

/// A place for files of this test.
fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// One fold of random elements.
struct Case {
    variant: Variant,
    finish: Finish,
    inputs: Vec<(Vec<u8>, Form, Scalar, u8)>,
    count: usize,
    /// Where the spans start in their buffers: small elements anywhere, others at whole words.
    starts: [usize; SPANS],
}

/// Sources, and the destinations after them.
const SPANS: usize = 7 + DESTS;
/// Destinations; the second one starts elsewhere than the first.
const DESTS: usize = 2;
/// Bytes around a destination.
const UNTOUCHED: u8 = 0xa5;

fn random_weight(bits: &mut Bits, dtype: DType) -> Scalar {
    if !dtype.is_float() {
        return Scalar(bits.next() >> bits.below(64));
    }
    let plain = bits.next() as i32 as f64 / 1e9;
    Scalar::from_f64(bits.pick(&[plain, plain, 0.1, -0.0, 1e300, 4e-39, 3e-310, f64::NAN]))
}

impl Case {
    fn new(bits: &mut Bits, variant: &Variant, count: usize) -> Self {
        let dtype = variant.dtype;
        let inputs = (0..u32::from(variant.sources))
            .zip(leaf_merges(u32::from(variant.sources)))
            .map(|(i, merges)| {
                let (form, bytes) = if variant.partials >> i & 1 == 1 {
                    (Form::Partial, bits.partials(dtype, count))
                } else {
                    (Form::Leaf, bits.elements(dtype, count))
                };
                (bytes, form, random_weight(bits, dtype), merges)
            })
            .collect();
        let ranks = bits.pick(&[1, 2, 3, 5, 7, 127, 1000, 65_535, 65_536, 16_777_213, 1 << 24]);
        let finish = if variant.partial { Finish::Partial } else { Finish::Final { ranks } };
        let starts = std::array::from_fn(|_| bits.below(8));
        Self { variant: *variant, finish, inputs, count, starts }
    }

    fn check(&self, kernel: &Kernel) {
        let variant = &self.variant;
        let (dtype, op) = (variant.dtype, variant.op);
        let sources: Vec<Source<&[u8]>> = self
            .inputs
            .iter()
            .map(|(mem, form, weight, merges)| Source {
                mem: &**mem,
                form: *form,
                weight: *weight,
                merges: *merges,
            })
            .collect();
        let size = numeric::dest_size(dtype, op, self.finish, &sources);
        let mut want = vec![0; self.count * size];
        numeric::fold(dtype, op, self.finish, &sources, &mut want).expect("a fold");

        let ranks = if let Finish::Final { ranks } = self.finish { ranks } else { 1 };
        let mut params = Params::new(self.count as u32, ranks);
        for (i, source) in sources.iter().enumerate() {
            params.weights[i] = weight(dtype, source.weight);
        }
        let start = |span: usize, size: usize| {
            let start = self.starts[span];
            if size < 4 { start } else { start & !3 }
        };
        let mut held: Vec<Vec<u32>> = Vec::new();
        for (i, source) in sources.iter().enumerate() {
            let at = start(i, numeric::form_size(dtype, source.form));
            params.sources[i] = at as u32;
            held.push(words(at, source.mem));
        }
        let mut got: Vec<Vec<u32>> = Vec::new();
        for i in 0..DESTS {
            let at = start(sources.len() + i, size);
            params.dests[i] = at as u32;
            got.push(words(at, &vec![UNTOUCHED; want.len()]));
        }
        let from: Vec<*const u8> = held.iter().map(|words| words.as_ptr().cast()).collect();
        let to: Vec<*mut u8> = got.iter_mut().map(|words| words.as_mut_ptr().cast()).collect();
        let items = variant.groups(self.count as u32, u32::MAX)[0] * variant.group_size;
        // SAFETY: all spans hold `count` elements and end at whole words.
        unsafe { (kernel.run)(&params, from.as_ptr(), to.as_ptr(), items) };
        for (words, &at) in got.iter().zip(&params.dests) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let (before, rest) = bytes.split_at(at as usize);
            let (got, after) = rest.split_at(want.len());
            let mut around = before.iter().chain(after);
            assert!(around.all(|&byte| byte == UNTOUCHED), "outside the span: {variant:?}");
            self.compare(&sources, got, &want);
        }
    }

    fn compare(&self, sources: &[Source<&[u8]>], got: &[u8], want: &[u8]) {
        let size = want.len() / self.count;
        let (variant, finish) = (&self.variant, self.finish);
        for i in 0..self.count {
            let at = i * size..(i + 1) * size;
            if got[at.clone()] != want[at.clone()] {
                let inputs: Vec<String> = sources
                    .iter()
                    .map(|s| hex(&s.mem[i * s.mem.len() / self.count..], 8))
                    .collect();
                panic!(
                    "element {i}: {} instead of {}, sources {inputs:?}, {finish:?}: {variant:?}",
                    hex(&got[at.clone()], size),
                    hex(&want[at], size),
                );
            }
        }
    }
}

/// Little-endian bytes as a number.
fn hex(bytes: &[u8], most: usize) -> String {
    bytes.iter().take(most).rev().map(|byte| format!("{byte:02x}")).collect()
}

/// Whole words with `bytes` in them from byte `start` on.
fn words(start: usize, bytes: &[u8]) -> Vec<u32> {
    let mut all = vec![UNTOUCHED; (start + bytes.len()).next_multiple_of(4)];
    all[start..][..bytes.len()].copy_from_slice(bytes);
    all.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
}

/// Every way of doing arithmetic that makes a difference to the type.
fn arithmetics(dtype: DType) -> Vec<Arithmetic> {
    let plain = Arithmetic::default();
    let narrow = Arithmetic { narrow: true, ..plain };
    match dtype.acc() {
        DType::F32 if dtype.size() < 4 => {
            vec![plain, Arithmetic { normal_f32: true, native_f32: true, ..narrow }]
        }
        _ if dtype.size() < 4 => vec![plain, narrow],
        DType::F32 => vec![
            plain,
            Arithmetic { normal_f32: true, ..plain },
            Arithmetic { normal_f32: true, native_f32: true, ..plain },
        ],
        DType::F64 => vec![plain, Arithmetic { native_f64: true, ..plain }],
        DType::I64 | DType::U64 => vec![plain, Arithmetic { native_i64: true, ..plain }],
        _ => vec![plain],
    }
}

fn patterns() -> usize {
    let set = std::env::var("UNISONO_PATTERNS").ok();
    set.map_or(50_000, |set| set.parse().expect("UNISONO_PATTERNS is a number"))
}

/// All variants of one type.
fn check_type(dtype: DType) {
    let mut bits = Bits::new(dtype as u64 + 1);
    for op in ReduceOp::ALL.into_iter().filter(|op| op.supports(dtype)) {
        for arithmetic in arithmetics(dtype) {
            let sources = bits.pick(&[2, 3, 4, 7]);
            for partial in [false, true] {
                let variant = Variant {
                    dtype,
                    op: Some(op),
                    partial,
                    sources,
                    dests: DESTS as u8,
                    // Leaves only, or the second source is partial.
                    partials: if partial { 2 } else { 0 },
                    merges: leaf_merges(u32::from(sources))
                        .enumerate()
                        .fold(0, |word, (i, merges)| word | u64::from(merges) << (4 * i)),
                    arithmetic,
                    group_size: 64,
                };
                let kernel = Kernel::new(&variant, &format!("{dtype}"));
                let mut left = patterns();
                while left > 0 {
                    let count = left.min(1 + bits.below(8000));
                    Case::new(&mut bits, &variant, count).check(&kernel);
                    left -= count;
                }
            }
        }
    }
}

macro_rules! types {
    ($($name:ident: $dtype:ident;)*) => {$(
        #[test]
        fn $name() {
            check_type(DType::$dtype);
        }
    )*};
}

types! {
    f64: F64; f32: F32; f16: F16; bf16: BF16; f8e4m3: F8E4M3; f8e5m2: F8E5M2;
    i8: I8; i16: I16; i32: I32; i64: I64; u8: U8; u16: U16; u32: U32; u64: U64;
}

#[test]
fn every_rounding_of_small_types() {
    for dtype in [DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2] {
        let variant = Variant {
            dtype,
            op: Some(ReduceOp::Sum),
            partial: false,
            sources: 1,
            dests: DESTS as u8,
            partials: 1,
            merges: 0,
            arithmetic: Arithmetic::default(),
            group_size: 64,
        };
        let kernel = Kernel::new(&variant, &format!("round_{dtype}"));
        for low in [0, 1, 0x0fff, 0x1000, 0x1001, 0x2000, 0x7fff, 0x8000, 0x8001, 0xffff_u32] {
            let bytes = (0..1_u32 << 16).flat_map(|high| (high << 16 | low).to_le_bytes());
            let inputs = vec![(bytes.collect(), Form::Partial, Scalar(0), 0)];
            let finish = Finish::Final { ranks: 1 };
            let starts = [0; SPANS];
            Case { variant, finish, inputs, count: 1 << 16, starts }.check(&kernel);
        }
        let leaf = Variant { partials: 0, partial: true, ..variant };
        let kernel = Kernel::new(&leaf, &format!("widen_{dtype}"));
        let codes =
            (0..1_u32 << 16).flat_map(|code| code.to_le_bytes().into_iter().take(dtype.size()));
        let inputs = vec![(codes.collect(), Form::Leaf, Scalar(0), 0)];
        let (finish, starts) = (Finish::Partial, [0; SPANS]);
        Case { variant: leaf, finish, inputs, count: 1 << 16, starts }.check(&kernel);
    }
}
