//! Work of all sizes on memory of all kinds, many jobs at a time.

mod mock;

use mock::{Call, Kind, Rig, Task, awkward, generous};
use std::sync::atomic::Ordering;
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source};
use unisono_driver::{Copy, Device, Fold, HostPtr, Memory as _};
use unisono_gpu::{GpuError, Options};
use unisono_testkit::device::{Bits, DeviceHarness};

const SUM: (DType, ReduceOp) = (DType::F32, ReduceOp::Sum);

fn small_slots() -> Options {
    Options { slots: 2, slot_bytes: 8 << 10, ..Options::default() }
}

#[test]
fn a_fold_may_be_larger_than_all_staging() {
    let mut bits = Bits::new(1);
    for kinds in [
        &[Kind::Host; 3][..],
        &[Kind::Host; 2],
        &[Kind::Device, Kind::Host, Kind::Device],
        &[Kind::Pinned, Kind::Device, Kind::Host],
    ] {
        for start in [0, 1] {
            let mut rig = Rig::new(awkward(), &small_slots()).unwrap();
            let task = Task::new(&mut rig, &mut bits, SUM, 40_000, (2, kinds), start);
            task.start(&mut rig, 7).unwrap();
            rig.gpu.flush();
            assert_eq!(rig.wait().0, 7);
            task.check(&rig);
            assert!(rig.gpu.poll_done().is_none(), "one completion");
        }
    }
}

#[test]
fn many_jobs_of_all_kinds_at_a_time() {
    let kinds = [Kind::Device, Kind::Pinned, Kind::Host];
    for seed in 0..60 {
        let mut bits = Bits::new(seed);
        let mut config = if bits.below(2) == 0 { awkward() } else { generous() };
        config.jobs = 32 + bits.below(30);
        config.batches = 1 + bits.below(3);
        config.delay = bits.below(4);
        config.mapped = bits.below(2) == 0;
        config.limits.pinned_kernels = bits.below(2) == 0;
        config.limits.buffer_max = 1 << 20;
        let import_min = bits.pick(&[0, 1000, 1 << 20]);
        let options = Options { import_min, slots: 1 + bits.below(4), ..small_slots() };
        let mut rig = Rig::new(config, &options).unwrap();
        let mut tasks = Vec::new();
        for _ in 0..1 + bits.below(60) {
            let dtype = bits.pick(&[DType::F32, DType::U8, DType::F16, DType::I64]);
            let sources = 1 + bits.below(4);
            let spans: Vec<Kind> =
                (0..sources + bits.below(2)).map(|_| bits.pick(&kinds)).collect();
            let (count, start) = (bits.below(3000), bits.below(9));
            let what = (dtype, ReduceOp::Sum);
            let task = Task::new(&mut rig, &mut bits, what, count, (sources, &spans), start);
            tasks.push(task);
        }
        for (token, task) in tasks.iter().enumerate() {
            assert!(rig.gpu.has_room());
            task.start(&mut rig, token as u32).unwrap();
            if bits.below(4) == 0 {
                rig.gpu.flush();
            }
        }
        rig.gpu.flush();
        let mut tokens: Vec<u32> = (0..tasks.len())
            .map(|_| {
                let (token, result) = rig.wait();
                result.unwrap();
                token
            })
            .collect();
        tokens.sort_unstable();
        assert!(tokens.into_iter().eq(0..tasks.len() as u32), "seed {seed}");
        for task in &tasks {
            task.check(&rig);
        }
    }
}

#[test]
fn copies_between_all_kinds_of_memory() {
    let kinds = [Kind::Device, Kind::Pinned, Kind::Host];
    for mapped in [true, false] {
        let mut config = awkward();
        config.mapped = mapped;
        config.limits.buffer_max = 1 << 20;
        let mut rig = Rig::new(config, &small_slots()).unwrap();
        let mut bits = Bits::new(3);
        for bytes in [1, 100, 70_000, 300_000] {
            for (from, to) in kinds.iter().flat_map(|&a| kinds.map(|b| (a, b))) {
                let data: Vec<u8> = (0..bytes).map(|_| bits.next() as u8).collect();
                let source = rig.place(from, bytes + 1).offset(1);
                let target = rig.place(to, bytes + 3).offset(3);
                rig.put(source, &data);
                let work = Copy { from: source, to: target, bytes };
                // SAFETY: memory of the rig.
                unsafe { rig.gpu.copy(&work, 9) }.unwrap();
                rig.gpu.flush();
                rig.wait().1.unwrap();
                assert!(rig.get(target, bytes) == data, "{bytes} bytes, {from:?} to {to:?}");
            }
        }
    }
}

/// One source to several places: a fold without an operator.
#[test]
fn one_copy_to_several_places() {
    let mut rig = Rig::new(awkward(), &small_slots()).unwrap();
    for from in [Kind::Host, Kind::Device, Kind::Pinned] {
        let data: Vec<u8> = (0..40_001).map(|i| (i * 3 + i / 255) as u8).collect();
        let source = rig.place(from, data.len());
        let others = [Kind::Device, Kind::Host, Kind::Pinned];
        let mut dests: Vec<HostPtr> = others.map(|kind| rig.place(kind, data.len())).into();
        dests.push(source);
        rig.put(source, &data);
        let (form, weight) = (Form::Final, Scalar(0));
        let work = Fold {
            dtype: DType::U8,
            op: None,
            count: data.len(),
            sources: &[Source { mem: source, form, weight, merges: 0 }],
            dests: &dests,
            finish: Finish::Final { ranks: 1 },
        };
        // SAFETY: memory of the rig.
        unsafe { rig.gpu.fold(&work, 1) }.unwrap();
        rig.gpu.flush();
        rig.wait().1.unwrap();
        for dest in dests {
            assert!(rig.get(dest, data.len()) == data, "from {from:?}");
        }
    }
}

#[test]
fn work_is_gathered_until_it_is_flushed() {
    let mut rig = Rig::new(generous(), &Options::default()).unwrap();
    let mut bits = Bits::new(4);
    let tasks: Vec<Task> = (0..20)
        .map(|_| Task::new(&mut rig, &mut bits, SUM, 100, (2, &[Kind::Device; 3]), 0))
        .collect();
    let before = rig.context.calls(Call::Submit);
    for (token, task) in tasks.iter().enumerate() {
        task.start(&mut rig, token as u32).unwrap();
    }
    assert_eq!(rig.context.calls(Call::Submit), before);
    rig.gpu.flush();
    for token in 0..20 {
        assert_eq!(rig.wait().0, token, "completions come in order");
    }
    assert_eq!(rig.context.calls(Call::Submit), before + 1);
    for task in &tasks {
        task.check(&rig);
    }
}

#[test]
fn imports_last_as_long_as_the_job() {
    let mut rig = Rig::new(generous(), &Options::default()).unwrap();
    let mut bits = Bits::new(5);
    let task = Task::new(&mut rig, &mut bits, SUM, 10_000, (3, &[Kind::Host; 3]), 0);
    let live = rig.context.live.load(Ordering::Relaxed);
    let imports = rig.context.calls(Call::Import);
    task.start(&mut rig, 1).unwrap();
    assert_eq!(rig.context.calls(Call::Import), imports + 3, "in place: the same pages once");
    rig.wait().1.unwrap();
    assert_eq!(rig.context.live.load(Ordering::Relaxed), live);
    task.check(&rig);
}

#[test]
fn in_place_with_elements_of_another_size() {
    let mut rig = Rig::new(generous(), &Options::default()).unwrap();
    let mem = rig.place(Kind::Device, 4000);
    let values: Vec<u8> = (0..1000).flat_map(|i| (i as f32).to_le_bytes()).collect();
    rig.put(mem, &values);
    let source = |form| Source { mem, form, weight: Scalar(0), merges: 0 };
    let work = |source, finish| Fold {
        dtype: DType::BF16,
        op: Some(ReduceOp::Sum),
        count: 1000,
        sources: source,
        dests: std::slice::from_ref(Box::leak(Box::new(mem))),
        finish,
    };
    let partial = [source(Form::Partial)];
    // SAFETY: memory of the rig.
    unsafe { rig.gpu.fold(&work(&partial, Finish::Final { ranks: 1 }), 1) }.unwrap();
    rig.wait().1.unwrap();
    let got = rig.get(mem, 2000);
    for (i, got) in got.chunks(2).enumerate() {
        let mut want = [0; 2];
        unisono_core::numeric::write_f64(DType::BF16, &mut want, 0, i as f64).unwrap();
        assert_eq!(got, want, "element {i}");
    }
    let leaf = [source(Form::Leaf)];
    // SAFETY: memory of the rig.
    let refused = unsafe { rig.gpu.fold(&work(&leaf, Finish::Partial), 1) };
    assert!(matches!(refused, Err(GpuError::Fold(_))), "{refused:?}");
}

#[test]
fn nothing_to_do_is_done_at_once() {
    let mut rig = Rig::new(generous(), &Options::default()).unwrap();
    let task = Task::new(&mut rig, &mut Bits::new(1), SUM, 0, (2, &[Kind::Device; 3]), 0);
    let before = rig.context.calls(Call::Submit);
    task.start(&mut rig, 5).unwrap();
    let done = rig.gpu.poll_done().unwrap();
    assert!(done.token == 5 && done.result.is_ok());
    assert_eq!(rig.context.calls(Call::Submit), before);
}

#[test]
fn more_than_there_is_room_for_is_refused() {
    let mut rig = Rig::new(generous(), &Options::default()).unwrap();
    let task = Task::new(&mut rig, &mut Bits::new(1), SUM, 10, (2, &[Kind::Device; 3]), 0);
    let mut started = 0;
    while rig.gpu.has_room() {
        task.start(&mut rig, started).unwrap();
        started += 1;
    }
    assert_eq!(task.start(&mut rig, 1000), Err(GpuError::Busy));
    for token in 0..started {
        assert_eq!(rig.wait().0, token);
    }
    assert!(rig.gpu.poll_done().is_none() && rig.gpu.has_room());
}

#[test]
fn kernels_are_compiled_once_and_shared_where_they_are_the_same() {
    let mut rig = Rig::new(generous(), &Options::default()).unwrap();
    let mut bits = Bits::new(1);
    let compiled = rig.context.calls(Call::Compile);
    for dtype in [DType::I32, DType::U32, DType::I32] {
        let kinds = [Kind::Device; 3];
        let task = Task::new(&mut rig, &mut bits, (dtype, ReduceOp::Sum), 10, (2, &kinds), 0);
        task.start(&mut rig, 1).unwrap();
        rig.wait().1.unwrap();
        task.check(&rig);
    }
    assert_eq!(rig.context.calls(Call::Compile), compiled + 1);
}

#[test]
fn rates_are_measured() {
    let mut rig = Rig::new(generous(), &Options::default()).unwrap();
    let rates = unisono_gpu::Rates::measure(&mut rig.gpu).unwrap();
    for rate in [rates.fold, rates.fold_host, rates.copy] {
        assert!(rate.is_finite() && rate > 1e4, "{rates:?}");
    }
    assert!(!rates.round_trip.is_zero());
    assert!(rig.gpu.poll_done().is_none() && rig.gpu.has_room());
}
