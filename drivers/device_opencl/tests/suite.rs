//! The device suite on an OpenCL device, with all that it has and with less.
//!
//! `UNISONO_PATTERNS` sets the number of random patterns for each type, operator and number of
//! sources.

mod common;

use common::Harness;
use unisono_device_opencl::Options;
use unisono_gpu::Arithmetic;
use unisono_testkit::device::{Plan, run};

fn plan(patterns: usize) -> Plan {
    let wanted = std::env::var("UNISONO_PATTERNS").ok().map(|n| n.parse().unwrap());
    Plan { patterns: wanted.unwrap_or(patterns), every_shape: false, ..Plan::default() }
}

#[test]
fn all_that_it_has() {
    let mut harness = Harness::open(&Options::default(), true);
    run(&mut harness, &plan(100_000));
}

/// No 64-bit types, no native arithmetic, small groups and buffers, nothing shared: all that a GPU
/// of the poorest kind leaves.
#[test]
fn the_least() {
    let options = Options {
        offers: Arithmetic::default(),
        import: false,
        shared: false,
        out_of_order: false,
        group_size: 32,
        buffer_max: 1 << 20,
    };
    let mut harness = Harness::open(&options, false);
    run(&mut harness, &plan(20_000));
}
