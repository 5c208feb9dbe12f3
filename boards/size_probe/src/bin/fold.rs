//! `reliable` and the scalar fold of every type and operator.
#![no_std]
#![no_main]

use core::hint::black_box;
use size_probe::{FRAGMENTS, Global, MTU, halt};
use size_probe::{MEMBERS, MOVES, WINDOW};
use unisono_core::machine::Machine;
use unisono_core::reliable::{Config, Reliable, Side};

static MACHINE: Global<Machine<u32, WINDOW, MOVES, MEMBERS>> = Global::new();
static CHANNEL: Global<Reliable<FRAGMENTS, MTU>> = Global::new();

/// Entry point that the linker looks for; everything else in the image is reached from here.
#[unsafe(no_mangle)]
pub extern "C" fn _start() -> ! {
    let Some(machine) = MACHINE.put(Machine::new()) else { halt() };
    let config = Config::new(black_box(1), Side::of(black_box(0), black_box(1)));
    let Some(channel) = CHANNEL.put(Reliable::new(config)) else { halt() };
    loop {
        size_probe::machine(machine);
        size_probe::reliable(channel);
        size_probe::fold();
    }
}
