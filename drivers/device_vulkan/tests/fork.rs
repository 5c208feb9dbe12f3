//! A child of the process gets an error from what its parent opened, and can open devices itself.

mod common;

use common::{finish, pinned, span};
use std::time::{Duration, Instant};
use unisono_device_vulkan::{Context, Options, VulkanContext};
use unisono_driver::{Copy, Device};
use unisono_gpu::{Gpu, GpuError, Memory, Place, Queue};

/// What the child does; its exit status says which step went wrong.
fn child(mut gpu: Gpu<VulkanContext>, copy: &Copy<unisono_driver::HostPtr>, index: usize) -> i32 {
    // SAFETY: it is refused.
    let refused = unsafe { gpu.copy(copy, 2) };
    if !matches!(refused, Err(GpuError::Forked(_))) {
        return 1;
    }
    let refused = gpu.memory().alloc(64, Place::Device);
    if !matches!(refused, Err(GpuError::Forked(_))) {
        return 2;
    }
    drop(gpu);
    let Ok(context) = VulkanContext::open(index, &Options::default()) else { return 3 };
    let mut queue = context.clone().queue().unwrap();
    let (a, from) = pinned(&context, 64);
    let (b, to) = pinned(&context, 64);
    from.fill(5);
    // SAFETY: both outlive the batch.
    unsafe { queue.copy(span(&a, 0, 64), span(&b, 0, 64)) }.unwrap();
    finish(&mut queue);
    if from == to { 0 } else { 4 }
}

#[test]
fn a_child_is_told() {
    // Without the validation layer, which forks no better than drivers do.
    let index = std::env::var("UNISONO_VULKAN").map_or(0, |n| n.parse().unwrap());
    let context = match VulkanContext::open(index, &Options::default()) {
        Ok(context) => context,
        Err(error) => {
            assert!(matches!(error, GpuError::Missing { .. }), "{error}");
            eprintln!("SKIPPED, Vulkan is NOT tested: {error}");
            return;
        }
    };
    let memory = Memory::new(context);
    let mut gpu = Gpu::open(&memory, &unisono_gpu::Options::default()).unwrap();
    let from = memory.alloc(1 << 20, Place::Device).unwrap();
    let to = memory.alloc(1 << 20, Place::Device).unwrap();
    let copy = Copy { from: from.mem(), to: to.mem(), bytes: 1 << 20 };
    // SAFETY: nobody else uses the memory.
    unsafe { gpu.copy(&copy, 1) }.unwrap();
    // SAFETY: the child calls nothing that another thread may have locked, but the allocator,
    // which is made for that.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let status = child(gpu, &copy, index);
        // SAFETY: ends the child without running the test harness in it.
        unsafe { libc::_exit(status) };
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut status = -1;
    // SAFETY: a child of this process, and room for its status.
    while unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == 0 {
        if Instant::now() > deadline {
            // SAFETY: as above.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(status, 0, "the child fails step {}", status >> 8);
    gpu.flush();
    while gpu.poll_done().is_none() {
        std::thread::yield_now();
    }
}
