//! How fast the board folds and copies.

use core::hint::black_box;
use unisono_core::time::Instant;
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source};
use unisono_driver::{Device, Fold, HostPtr};

/// Elements of a fold, and folds that are timed.
const ELEMS: usize = 256;
const FOLDS: u32 = 64;

/// How fast a board is.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// f32 elements that it adds in a millisecond; 0 if it cannot.
    pub adds: u32,
    /// Bytes that a plain copy moves in a millisecond: what every link is measured by.
    pub copies: u32,
}

impl Rates {
    /// Measures a device and the core that this runs on, by the clock `now`.
    pub fn measure<D: Device<Mem = HostPtr>>(
        device: &mut D,
        now: impl Fn() -> Instant + Copy,
    ) -> Self {
        Self { adds: add_rate(device, now), copies: copy_rate(now) }
    }
}

/// f32 elements that the device adds in a millisecond, by the clock `now`; 0 if it cannot.
fn add_rate<D: Device<Mem = HostPtr>>(device: &mut D, now: impl Fn() -> Instant) -> u32 {
    let mut numbers = [[1f32; ELEMS]; 2];
    let [a, b] = &mut numbers;
    let mems = [a, b].map(|x| HostPtr::new(x.as_mut_ptr().cast()));
    let mut merges = 0..;
    let sources = mems.map(|mem| Source {
        mem,
        form: Form::Leaf,
        weight: Scalar::one(DType::F32),
        merges: merges.next().unwrap_or(0),
    });
    let fold = Fold {
        dtype: DType::F32,
        op: Some(ReduceOp::Sum),
        count: ELEMS,
        sources: &sources,
        dests: &mems[..1],
        finish: Finish::Final { ranks: 2 },
    };
    let start = now();
    for token in 0..FOLDS {
        // SAFETY: both arrays live on, and the first destination is the first source.
        if unsafe { device.fold(&fold, token) }.is_err() {
            return 0;
        }
        while device.poll_done().is_none() {
            core::hint::spin_loop();
        }
    }
    in_a_millisecond(u64::from(FOLDS) * ELEMS as u64, start, now())
}

/// Bytes that a plain copy moves in a millisecond, by the clock `now`.
fn copy_rate(now: impl Fn() -> Instant) -> u32 {
    let (from, mut to) = ([1f32; ELEMS], [0f32; ELEMS]);
    let start = now();
    for _ in 0..FOLDS {
        copy(black_box(&from), black_box(&mut to));
    }
    in_a_millisecond(u64::from(FOLDS) * size_of_val(&from) as u64, start, now())
}

/// Apart, so that its instructions can be counted.
#[inline(never)]
fn copy(from: &[f32; ELEMS], to: &mut [f32; ELEMS]) {
    to.copy_from_slice(from);
}

fn in_a_millisecond(amount: u64, start: Instant, end: Instant) -> u32 {
    let nanos = end.as_nanos().saturating_sub(start.as_nanos()).max(1);
    u32::try_from(amount * 1_000_000 / nanos).unwrap_or(u32::MAX)
}
