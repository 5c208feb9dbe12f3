//! What goes wrong is said once, in the driver's words, and the rest goes on.

mod mock;

use mock::{Call, Floats, Kind, Rig, Task, awkward, generous};
use std::sync::atomic::Ordering;
use unisono_core::{DType, ReduceOp};
use unisono_driver::Device;
use unisono_gpu::{GpuError, Options};
use unisono_testkit::device::{Bits, DeviceHarness};

const SUM: (DType, ReduceOp) = (DType::F32, ReduceOp::Sum);

fn error(text: &str) -> GpuError {
    GpuError::Driver { device: "mock".to_owned(), call: "call", text: text.to_owned() }
}

fn lost() -> GpuError {
    GpuError::Lost { device: "mock".to_owned(), text: "fell off the bus".to_owned() }
}

fn full() -> GpuError {
    GpuError::OutOfMemory { device: "mock".to_owned(), bytes: 9, text: "full".to_owned() }
}

fn rig(config: mock::Config) -> Rig {
    let options = Options { slots: 2, slot_bytes: 8 << 10, ..Options::default() };
    Rig::new(config, &options).unwrap()
}

/// A fold on memory of one kind.
fn task(rig: &mut Rig, kind: Kind, count: usize) -> Task {
    Task::new(rig, &mut Bits::new(count as u64), SUM, count, (2, &[kind; 3]), 0)
}

/// Starts it and waits.
fn outcome(rig: &mut Rig, task: &Task) -> Result<(), GpuError> {
    task.start(rig, 1)?;
    rig.gpu.flush();
    let (token, result) = rig.wait();
    assert_eq!(token, 1);
    assert!(rig.gpu.poll_done().is_none(), "one completion");
    result
}

#[test]
fn a_kernel_that_does_not_build_refuses_the_fold() {
    let mut rig = rig(generous());
    let task = task(&mut rig, Kind::Device, 100);
    let (device, kernel) = ("mock".to_owned(), "f32".to_owned());
    let build = GpuError::Build { device, kernel, text: "line 1: error".to_owned() };
    rig.context.fail(Call::Compile, 0, build.clone());
    assert_eq!(task.start(&mut rig, 1), Err(build));
    assert!(rig.gpu.poll_done().is_none(), "a completion of what was refused");
    rig.context.heal(Call::Compile);
    outcome(&mut rig, &task).unwrap();
    task.check(&rig);
}

#[test]
fn a_call_that_fails_fails_its_job_only() {
    for (call, kind, start) in [
        (Call::Dispatch, Kind::Device, 0),
        (Call::Dispatch, Kind::Host, 0),
        (Call::Copy, Kind::Device, 1),
        (Call::Submit, Kind::Device, 0),
        (Call::Submit, Kind::Device, 1),
    ] {
        // At once, and after some of the job's steps.
        for good in [0, 1, 3] {
            let mut rig = rig(awkward());
            let kinds = [kind; 3];
            let mut bits = Bits::new(1);
            let bad = Task::new(&mut rig, &mut bits, SUM, 20_000, (2, &kinds), start);
            let fine = task(&mut rig, Kind::Pinned, 500);
            let live = rig.context.live.load(Ordering::Relaxed);
            rig.context.fail(call, good, error("no"));
            assert_eq!(outcome(&mut rig, &bad), Err(error("no")), "{call:?} {kind:?} {good}");
            rig.context.heal(call);
            outcome(&mut rig, &fine).unwrap();
            fine.check(&rig);
            outcome(&mut rig, &bad).unwrap();
            bad.check(&rig);
            let slots = 2;
            assert!(rig.context.live.load(Ordering::Relaxed) <= live + slots, "a leak");
        }
    }
}

#[test]
fn a_lost_device_ends_all_work_and_refuses_more() {
    for call in [Call::Poll, Call::Submit, Call::Dispatch] {
        for good in [0, 2, 5] {
            let mut rig = rig(awkward());
            let tasks: Vec<Task> =
                (0..10).map(|i| task(&mut rig, [Kind::Device, Kind::Host][i % 2], 3000)).collect();
            rig.context.fail(call, good, lost());
            let started = (0..10).filter(|&i| tasks[i].start(&mut rig, i as u32).is_ok()).count();
            rig.gpu.flush();
            let mut failed = 0;
            for _ in 0..started {
                if let Err(error) = rig.wait().1 {
                    assert_eq!(error, lost());
                    failed += 1;
                }
            }
            assert!(failed > 0, "{call:?}");
            assert!(rig.gpu.poll_done().is_none(), "more completions than work");
            assert_eq!(tasks[0].start(&mut rig, 1), Err(lost()));
        }
    }
}

#[test]
fn no_memory_for_staging_is_an_error_and_little_of_it_is_not() {
    let mut rig = rig(awkward());
    let (a, b) = (task(&mut rig, Kind::Host, 9000), task(&mut rig, Kind::Host, 8000));
    rig.context.fail(Call::Alloc, 0, full());
    assert_eq!(outcome(&mut rig, &a), Err(full()));
    rig.context.fail(Call::Alloc, 1, full());
    for task in [&a, &b] {
        outcome(&mut rig, task).unwrap();
        task.check(&rig);
    }
}

#[test]
fn what_cannot_be_imported_is_staged() {
    let mut rig = rig(generous());
    let task = task(&mut rig, Kind::Host, 50_000);
    rig.context.fail(Call::Import, 1, full());
    outcome(&mut rig, &task).unwrap();
    task.check(&rig);
}

#[test]
fn a_device_that_flushes_subnormals_computes_them_with_integers() {
    for (floats, native, normal) in [
        (Floats::Right, true, true),
        (Floats::Flushing, false, true),
        (Floats::Missing, false, true),
    ] {
        let mut config = generous();
        config.floats = floats;
        let rig = rig(config);
        let found = rig.gpu.card().arithmetic.unwrap();
        assert_eq!((found.native_f32, found.normal_f32), (native, normal), "{floats:?}");
        assert!(found.native_f64 && found.native_i64 && found.storage_8);
        assert_eq!(rig.memory.arithmetic(), Some(found));
    }
}

#[test]
fn a_device_that_is_wrong_in_any_way_is_refused() {
    let mut config = generous();
    config.floats = Floats::Broken;
    let error = Rig::new(config, &Options::default()).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("mock fails its self-test: binary32: element 0 is"), "{error}");
}

#[test]
fn a_device_that_offers_nothing_gets_nothing_native() {
    let mut config = generous();
    config.limits.offers = Default::default();
    let rig = rig(config);
    assert_eq!(rig.gpu.card().arithmetic, Some(Default::default()));
}
