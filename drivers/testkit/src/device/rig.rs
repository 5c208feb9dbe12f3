//! Runs one fold on the device and on the reference, and compares all memory that was in reach.

use super::{DeviceHarness, Mem};
use unisono_core::numeric::{self, read_f64};
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source};
use unisono_driver::{Device, Fold};

/// Bytes before and after each span that must stay as they are.
const GUARD: usize = 64;
/// What they are.
const UNTOUCHED: u8 = 0xa5;

/// A source and the bytes in it.
#[derive(Clone, Debug)]
pub struct Input {
    pub bytes: Vec<u8>,
    pub form: Form,
    pub weight: Scalar,
    pub merges: u8,
}

/// Where a result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Memory of its own.
    Own,
    /// On top of a source.
    InPlace(usize),
}

/// One fold.
#[derive(Clone, Debug)]
pub struct Case {
    pub dtype: DType,
    pub op: Option<ReduceOp>,
    pub finish: Finish,
    pub count: usize,
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
    /// Span `i` starts `i * step + start` bytes (modulo 64) after an aligned address.
    pub start: usize,
    pub step: usize,
}

/// A harness with memory for the spans of a fold.
pub struct Rig<'h, H: DeviceHarness> {
    harness: &'h mut H,
    spans: Vec<Mem<H>>,
    /// Bytes that fit into a span.
    room: usize,
    token: u32,
    image: Vec<u8>,
}

impl<'h, H: DeviceHarness> Rig<'h, H> {
    /// Memory for `spans` sources and destinations of at most `room` bytes.
    pub fn new(harness: &'h mut H, spans: usize, room: usize) -> Self {
        let bytes = room + 3 * GUARD;
        let spans = (0..spans).map(|_| harness.alloc(bytes)).collect();
        Self { harness, spans, room, token: 0, image: vec![0; bytes] }
    }

    /// Puts `bytes` into span `i`, guards around them; returns where they start.
    fn fill(&mut self, i: usize, shift: usize, bytes: &[u8]) -> Mem<H> {
        assert!(bytes.len() <= self.room, "the suite's own span is too short");
        self.image.fill(UNTOUCHED);
        self.image[GUARD + shift..][..bytes.len()].copy_from_slice(bytes);
        self.harness.write(self.spans[i], &self.image);
        self.harness.offset(self.spans[i], GUARD + shift)
    }

    /// Checks that span `i` holds `want` and that its guards are untouched.
    fn verify(&mut self, i: usize, shift: usize, want: &[u8], case: &Case, what: &str) {
        self.harness.read(self.spans[i], &mut self.image);
        let start = GUARD + shift;
        let (before, rest) = self.image.split_at(start);
        let (got, after) = rest.split_at(want.len());
        if got != want {
            differ(case, what, want, got);
        }
        let guarded = before.iter().chain(after).all(|&byte| byte == UNTOUCHED);
        assert!(guarded, "{} wrote outside its span: {}", what, title(case));
    }

    /// Runs a case on both and compares.
    ///
    /// # Panics
    /// If the device refuses, fails or differs.
    pub fn check(&mut self, case: &Case) {
        let sources: Vec<Source<&[u8]>> = case.inputs.iter().map(|x| x.source(&*x.bytes)).collect();
        let size = numeric::dest_size(case.dtype, case.op, case.finish, &sources);
        let mut want = vec![0; case.count * size];
        numeric::fold(case.dtype, case.op, case.finish, &sources, &mut want)
            .unwrap_or_else(|error| panic!("the suite's own case: {error}: {}", title(case)));

        let shift = |i: usize| (case.start + i * case.step) % GUARD;
        let inputs = case.inputs.len();
        let sources: Vec<Source<Mem<H>>> = case
            .inputs
            .iter()
            .enumerate()
            .map(|(i, input)| input.source(self.fill(i, shift(i), &input.bytes)))
            .collect();
        let blank = vec![UNTOUCHED; want.len()];
        let dests: Vec<Mem<H>> = case
            .outputs
            .iter()
            .enumerate()
            .map(|(j, output)| match *output {
                Output::Own => self.fill(inputs + j, shift(inputs + j), &blank),
                Output::InPlace(i) => sources[i].mem,
            })
            .collect();

        self.fold(case, &sources, &dests);

        for (j, output) in case.outputs.iter().enumerate() {
            if *output == Output::Own {
                self.verify(inputs + j, shift(inputs + j), &want, case, "destination");
            }
        }
        for (i, input) in case.inputs.iter().enumerate() {
            if case.outputs.contains(&Output::InPlace(i)) {
                self.verify(i, shift(i), &want, case, "destination in place");
            } else {
                self.verify(i, shift(i), &input.bytes, case, "source");
            }
        }
    }

    /// The device's part.
    fn fold(&mut self, case: &Case, sources: &[Source<Mem<H>>], dests: &[Mem<H>]) {
        let (dtype, op, finish, count) = (case.dtype, case.op, case.finish, case.count);
        let work = Fold { dtype, op, count, sources, dests, finish };
        self.token += 1;
        let device = self.harness.device();
        assert!(device.has_room(), "no room in an idle device");
        // SAFETY: all spans lie in allocations that live as long as the harness, nobody else uses
        // them, and a destination is a source or apart from all.
        let started = unsafe { device.fold(&work, self.token) };
        started.unwrap_or_else(|error| panic!("refused: {error}: {}", title(case)));
        let (token, result) = self.harness.wait();
        assert_eq!(token, self.token, "a completion of something else");
        result.unwrap_or_else(|error| panic!("failed: {error}: {}", title(case)));
        let more = self.harness.device().poll_done();
        assert!(more.is_none(), "more than one completion");
    }
}

impl Input {
    /// The source that it is at `mem`.
    fn source<M>(&self, mem: M) -> Source<M> {
        Source { mem, form: self.form, weight: self.weight, merges: self.merges }
    }
}

/// A case in one line.
fn title(case: &Case) -> String {
    let op = case.op.map_or("copy", ReduceOp::name);
    let merges: Vec<u8> = case.inputs.iter().map(|input| input.merges).collect();
    let forms: Vec<Form> = case.inputs.iter().map(|input| input.form).collect();
    format!(
        "{} {op} of {} elements, {:?}, forms {forms:?}, merges {merges:?}, outputs {:?}, \
         start {} step {}",
        case.dtype, case.count, case.finish, case.outputs, case.start, case.step
    )
}

/// Says where two results differ.
fn differ(case: &Case, what: &str, want: &[u8], got: &[u8]) -> ! {
    let size = want.len() / case.count.max(1);
    let i = want.iter().zip(got).position(|(a, b)| a != b).unwrap_or(0) / size.max(1);
    let hex = |bytes: &[u8], size: usize| {
        let digits = bytes[i * size..][..size].iter().rev();
        digits.map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let inputs: Vec<String> = case
        .inputs
        .iter()
        .map(|input| {
            let size = numeric::form_size(case.dtype, input.form);
            let dtype = if size == case.dtype.size() { case.dtype } else { case.dtype.acc() };
            let value = read_f64(dtype, &input.bytes, i);
            format!("{} ({value:?}) weight {:x}", hex(&input.bytes, size), input.weight.0)
        })
        .collect();
    panic!(
        "{what} differs from the reference at element {i}: {} instead of {}\n{}\nsources: {}",
        hex(got, size),
        hex(want, size),
        title(case),
        inputs.join(", ")
    );
}
