//! How fast the board folds.

use unisono_core::time::Instant;
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source};
use unisono_driver::{Device, Fold, HostPtr};

/// Elements of a fold, and folds that are timed.
const ELEMS: usize = 256;
const FOLDS: u32 = 64;

/// f32 elements that the device adds in a millisecond, by the clock `now`; 0 if it cannot.
pub fn add_rate<D: Device<Mem = HostPtr>>(device: &mut D, now: impl Fn() -> Instant) -> u32 {
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
    let nanos = now().as_nanos().saturating_sub(start.as_nanos()).max(1);
    u32::try_from(u64::from(FOLDS) * ELEMS as u64 * 1_000_000 / nanos).unwrap_or(u32::MAX)
}
