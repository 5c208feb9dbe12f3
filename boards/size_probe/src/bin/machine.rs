//! A machine with every schedule, frames, set-up messages and COBS.
#![no_std]
#![no_main]

use size_probe::{Global, halt};
use size_probe::{MEMBERS, MOVES, WINDOW};
use unisono_core::machine::Machine;

static MACHINE: Global<Machine<u32, WINDOW, MOVES, MEMBERS>> = Global::new();

/// Entry point that the linker looks for; everything else in the image is reached from here.
#[unsafe(no_mangle)]
pub extern "C" fn _start() -> ! {
    let Some(machine) = MACHINE.put(Machine::new()) else { halt() };
    loop {
        size_probe::machine(machine);
    }
}
