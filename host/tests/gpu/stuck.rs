//! A device that does not end its jobs: all who wait are told, and nobody gets its memory back.

use crate::data::{alone, build};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use unisono::opencl::opencl3::command_queue::CommandQueue;
use unisono::opencl::opencl3::kernel::{ExecuteKernel, Kernel};
use unisono::opencl::opencl3::memory::{Buffer, CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR};
use unisono::opencl::opencl3::program::Program;
use unisono::{DeviceSpec, Error, Group, Opened, Sum, opencl};

/// Occupies whatever runs it until the host says that it may end.
const SPIN: &str = "kernel void spin(global volatile int *end) { while (*end == 0) {} }";

/// Set where [`stuck`] runs: a process without other tests, as nobody else gets the device.
const STUCK: &str = "UNISONO_TEST_STUCK";

/// Enough for both ranks to own a part.
const LEN: usize = 200_000;

static END: AtomicI32 = AtomicI32::new(0);
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn stuck() {
    if std::env::var_os(STUCK).is_none() {
        return;
    }
    let device = opencl::OpenCl::open(0, &opencl::Options::default()).expect("OpenCL");
    let tell = |text: &str| {
        let mut told = TOLD.lock().expect("no panic");
        told.push(text.to_owned());
        // Both ranks are waiting.
        END.store(i32::from(told.len() == 2), Ordering::Relaxed);
    };
    // In case one of them is not.
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(60));
        END.store(1, Ordering::Relaxed);
    });
    let builder = Group::builder().open(Opened::opencl(device.clone())).device(DeviceSpec::Cpu);
    let builder = builder.rates(vec![1e9; 2]).timeout(Duration::from_secs(1)).on_stuck(tell);
    let mut group = build(builder);
    let mut sum = || {
        let (mut a, mut b) = (vec![1f32; LEN], vec![2f32; LEN]);
        group.all_reduce(&mut [&mut a[..], &mut b[..]], Sum).map(|()| (a[LEN - 1], b[0]))
    };
    assert_eq!(sum(), Ok((3.0, 3.0)));

    let context = device.context().expect("a context");
    let program = Program::create_and_build_from_source(&context, SPIN, "").expect("built");
    let kernel = Kernel::create(&program, "spin").expect("a kernel");
    let id = context.devices()[0];
    // SAFETY: the device is the context's.
    let queue = unsafe { CommandQueue::create_with_properties(&context, id, 0, 0) };
    let queue = queue.expect("a queue");
    let flags = CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR;
    // SAFETY: the flag outlives everything, and is only used atomically.
    let end = unsafe { Buffer::<i32>::create(&context, flags, 1, END.as_ptr().cast()) };
    let end = end.expect("a buffer");
    let mut run = ExecuteKernel::new(&kernel);
    // More groups than the device has cores.
    run.set_global_work_size(256).set_local_work_size(1);
    // SAFETY: the kernel has this one argument.
    let event = unsafe { run.set_arg(&end).enqueue_nd_range(&queue) }.expect("enqueued");
    queue.flush().expect("flushed");

    let error = sum().expect_err("the device does something else");
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    event.wait().expect("ended");
    let mut told = TOLD.lock().expect("no panic").clone();
    told.sort();
    let [peer, device] = &told[..] else { panic!("{told:?}") };
    assert!(peer.starts_with("rank 0 still uses the memory of rank 1 for a call"), "{peer}");
    assert!(device.starts_with("the device of rank 0, "), "{device}");
    assert!(told.iter().all(|t| t.ends_with("one the call's memory cannot be used")), "{told:?}");
    assert_eq!(sum(), Ok((3.0, 3.0)));
}

#[test]
fn whoever_waits_for_a_device_for_ever_is_told() {
    alone("stuck::stuck", STUCK);
}
