//! A child of the process gets an error, and does not hang: PoCL does if it is called there.

mod common;

use common::Harness;
use std::time::{Duration, Instant};
use unisono_device_opencl::Options;
use unisono_driver::{Copy, Device};
use unisono_gpu::GpuError;
use unisono_testkit::device::DeviceHarness;

/// What the child does; its exit status says which step went wrong.
fn child(mut harness: Harness, copy: Copy<unisono_driver::HostPtr>) -> i32 {
    let forked = |error: &GpuError| matches!(error, GpuError::Forked(_));
    // SAFETY: it is refused.
    match unsafe { harness.device().copy(&copy, 2) } {
        Err(error) if forked(&error) => {}
        _ => return 1,
    }
    // What the parent had under way is no business of the child's.
    match harness.device().poll_done() {
        None => {}
        // It was complete before the fork, or it will never be.
        Some(done) if done.result.as_ref().map_or_else(forked, |()| done.token == 1) => {}
        Some(_) => return 2,
    }
    harness.device().flush();
    match harness.device().memory().alloc(64, unisono_gpu::Place::Device) {
        Err(error) if forked(&error) => {}
        _ => return 3,
    }
    drop(harness);
    0
}

#[test]
fn a_child_is_told() {
    let mut harness = Harness::open(&Options::default(), true);
    let (from, to) = (harness.alloc(4 << 20), harness.alloc(4 << 20));
    let copy = Copy { from, to, bytes: 4 << 20 };
    // SAFETY: nobody else uses the memory.
    unsafe { harness.device().copy(&copy, 1) }.unwrap();

    // SAFETY: the child calls nothing that another thread may have locked, but the allocator,
    // which is made for that.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let status = child(harness, copy);
        // SAFETY: ends the child without running the test harness in it.
        unsafe { libc::_exit(status) };
    }
    let deadline = Instant::now() + Duration::from_secs(30);
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
    // The parent goes on.
    assert_eq!(harness.wait().0, 1);
}
