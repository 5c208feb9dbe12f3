//! Buffers and kernels of the caller and folds of the library, in one context: nothing goes
//! through the host.

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device as ClDevice};
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use opencl3::types::CL_BLOCKING;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source};
use unisono_device_opencl::{OpenCl, Options, devices};
use unisono_driver::{Device, Fold};
use unisono_gpu::{Gpu, Memory};

const COUNT: usize = 100_000;

/// The caller's compute code: a ramp, and later a square.
const THEIRS: &str = "
    __kernel void ramp(__global float *to, float step) {
        to[get_global_id(0)] = step * get_global_id(0);
    }
    __kernel void square(__global float *to) {
        to[get_global_id(0)] *= to[get_global_id(0)];
    }
";

fn source(mem: unisono_driver::HostPtr, merges: u8) -> Source<unisono_driver::HostPtr> {
    Source { mem, form: Form::Leaf, weight: Scalar(0), merges }
}

#[test]
fn the_callers_kernels_feed_the_fold() {
    // The caller's side: a context, a queue, buffers and kernels. Listing devices first: drivers
    // come up one at a time then.
    devices().unwrap();
    let platform = &get_platforms().unwrap()[0];
    let device = ClDevice::new(platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap()[0]);
    let context = Context::from_device(&device).unwrap();
    let queue = CommandQueue::create_default(&context, 0).unwrap();
    let program = Program::create_and_build_from_source(&context, THEIRS, "").unwrap();
    let ramp = Kernel::create(&program, "ramp").unwrap();
    let square = Kernel::create(&program, "square").unwrap();
    let buffer = |step: f32| {
        // SAFETY: no pointer is given; the kernel writes as many elements as there are.
        unsafe {
            let buffer =
                Buffer::<f32>::create(&context, CL_MEM_READ_WRITE, COUNT, null_mut()).unwrap();
            let mut run = ExecuteKernel::new(&ramp);
            run.set_arg(&buffer).set_arg(&step).set_global_work_size(COUNT);
            run.enqueue_nd_range(&queue).unwrap();
            buffer
        }
    };
    let (one, two, sum) = (buffer(1.0), buffer(0.5), buffer(0.0));
    queue.finish().unwrap();

    // The library's side.
    let cl = OpenCl::from_context(&context, &device, &Options::default()).unwrap();
    let memory = Memory::new(cl.clone());
    let mut gpu = Gpu::open(&memory, &unisono_gpu::Options::default()).unwrap();
    let adopt = |buffer| memory.adopt(Arc::new(cl.adopt(buffer).unwrap())).unwrap();
    let (a, b, c) = (adopt(&one), adopt(&two), adopt(&sum));
    assert!(!c.is_shared(), "the caller's buffers are the device's");
    let work = Fold {
        dtype: DType::F32,
        op: Some(ReduceOp::Sum),
        count: COUNT,
        sources: &[source(a.mem(), 0), source(b.mem(), 1)],
        dests: &[c.mem()],
        finish: Finish::Final { ranks: 2 },
    };
    // SAFETY: the buffers are as long as that, and the caller's kernels are done.
    unsafe { gpu.fold(&work, 3) }.unwrap();
    gpu.flush();
    let deadline = Instant::now() + Duration::from_secs(60);
    let done = loop {
        match gpu.poll_done() {
            Some(done) => break done,
            None => assert!(Instant::now() < deadline, "no completion for a minute"),
        }
    };
    assert_eq!(done.token, 3);
    done.result.unwrap();

    // The caller's side again.
    let mut got = vec![0f32; COUNT];
    // SAFETY: as above.
    unsafe {
        let mut run = ExecuteKernel::new(&square);
        run.set_arg(&sum).set_global_work_size(COUNT).enqueue_nd_range(&queue).unwrap();
        queue.enqueue_read_buffer(&sum, CL_BLOCKING, 0, &mut got, &[]).unwrap();
    }
    for (i, got) in got.iter().enumerate() {
        let want = i as f32 + 0.5 * i as f32;
        assert_eq!(got.to_bits(), (want * want).to_bits(), "element {i}");
    }
    // The caller may let go first.
    drop((one, two, sum, context));
    drop((a, b, c, gpu));
}
