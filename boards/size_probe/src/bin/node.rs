//! A whole member with a device of scalar folds.
#![no_std]
#![no_main]

use core::cell::RefCell;
use size_probe::{End, Global, Node, ScalarDevice};

static END: Global<RefCell<End>> = Global::new();
static NODE: Global<Node<'static, ScalarDevice>> = Global::new();

/// Entry point that the linker looks for; everything else in the image is reached from here.
#[unsafe(no_mangle)]
pub extern "C" fn _start() -> ! {
    size_probe::run(&END, &NODE, ScalarDevice::default())
}
