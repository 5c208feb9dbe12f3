//! A whole member over serial lines.
#![no_std]
#![no_main]

use size_probe::serial::{self, SerialLine, SerialNode};
use size_probe::{Global, halt};

static LINE: Global<SerialLine> = Global::new();
static NODE: Global<SerialNode> = Global::new();

/// Entry point that the linker looks for; everything else in the image is reached from here.
#[unsafe(no_mangle)]
pub extern "C" fn _start() -> ! {
    let Some(line) = LINE.put(serial::line()) else { halt() };
    let Some(node) = NODE.put(serial::node(line)) else { halt() };
    serial::run(node)
}
