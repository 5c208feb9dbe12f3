//! A device is of no use to a child of the process that opened it, and the child is told so.
//! A test program of its own, so that no other test runs while it forks.

mod mock;

use mock::{Kind, Rig, Task, generous};
use unisono_core::{DType, ReduceOp};
use unisono_driver::Device;
use unisono_gpu::{GpuError, Options, Place, Process};
use unisono_testkit::device::{Bits, DeviceHarness};

const SUM: (DType, ReduceOp) = (DType::F32, ReduceOp::Sum);

/// What the child sees; the number of the first thing that is wrong.
fn child(mut rig: Rig, task: &Task, opened: Process) -> i32 {
    let forked = GpuError::Forked("mock".to_owned());
    if opened.is_this() {
        return 1;
    }
    if task.start(&mut rig, 2) != Err(forked.clone()) {
        return 2;
    }
    // The job that was under way when the process forked.
    match rig.gpu.poll_done() {
        Some(done) if done.token == 1 && done.result == Err(forked.clone()) => {}
        _ => return 3,
    }
    if rig.gpu.poll_done().is_some() {
        return 4;
    }
    if rig.memory.alloc(10, Place::Device).map(drop) != Err(forked.clone()) {
        return 5;
    }
    if unisono_gpu::Gpu::open(&rig.memory, &Options::default()).map(drop) != Err(forked) {
        return 6;
    }
    // The driver must not be called any more, not even to free what it gave.
    let live = std::sync::Arc::clone(&rig.context);
    let before = live.live.load(std::sync::atomic::Ordering::Relaxed);
    drop(rig);
    if live.live.load(std::sync::atomic::Ordering::Relaxed) != before {
        return 7;
    }
    0
}

#[test]
fn a_child_of_the_process_is_refused() {
    let mut config = generous();
    config.delay = 1000;
    let mut rig = Rig::new(config, &Options::default()).unwrap();
    let opened = Process::this();
    let kinds = [Kind::Device, Kind::Host, Kind::Registered];
    let task = Task::new(&mut rig, &mut Bits::new(1), SUM, 10_000, (2, &kinds), 0);
    task.start(&mut rig, 1).unwrap();
    rig.gpu.flush();
    // SAFETY: the child calls nothing that another thread may have locked but the allocator,
    // which the C library makes safe, and ends without the parent's clean-up.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: ends the child if it hangs, and without the test harness if it does not.
        unsafe {
            libc::alarm(20);
            libc::_exit(child(rig, &task, opened));
        }
    }
    let mut status = 0;
    // SAFETY: waits for the child above.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status), "the child hangs: {status}");
    assert_eq!(libc::WEXITSTATUS(status), 0);
    // The parent goes on.
    rig.wait().1.unwrap();
    task.check(&rig);
}
