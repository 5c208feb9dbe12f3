//! A whole member with the CPU device's kernels.
#![no_std]
#![no_main]

use core::cell::RefCell;
use size_probe::{End, Global, Node};
use unisono_device_cpu::CpuDevice;

static END: Global<RefCell<End>> = Global::new();
static NODE: Global<Node<'static, CpuDevice>> = Global::new();

/// Entry point that the linker looks for; everything else in the image is reached from here.
#[unsafe(no_mangle)]
pub extern "C" fn _start() -> ! {
    size_probe::run(&END, &NODE, CpuDevice::new())
}
