//! The device suite, on devices that differ in what they can do.

mod mock;

use mock::{Config, Kind, Rig, awkward, generous};
use unisono_gpu::Options;
use unisono_testkit::device::{Plan, run};

/// Runs the suite. `UNISONO_PATTERNS` sets the number of random patterns: few by default, since
/// the mock computes what the suite compares with, and only where bytes go is tested here.
fn suite(config: Config, options: &Options, kinds: Option<&[Kind]>) {
    let patterns = std::env::var("UNISONO_PATTERNS").ok().map(|n| n.parse().unwrap());
    let plan = Plan { patterns: patterns.unwrap_or(800), lengths: 40, ..Plan::default() };
    let mut rig = Rig::new(config, options).unwrap();
    if let Some(kinds) = kinds {
        rig.kinds = kinds.to_vec();
    }
    run(&mut rig, &plan);
}

fn small_slots(slots: usize) -> Options {
    Options { slots, slot_bytes: 8 << 10, ..Options::default() }
}

#[test]
fn shares_the_hosts_memory() {
    suite(generous(), &Options::default(), None);
}

#[test]
fn imports_everything() {
    let options = Options { import_min: 0, ..Options::default() };
    suite(generous(), &options, Some(&[Kind::Host]));
}

#[test]
fn has_memory_of_its_own() {
    let mut config = generous();
    config.mapped = false;
    config.limits.unified = false;
    suite(config, &Options::default(), None);
}

#[test]
fn is_small_in_every_way() {
    suite(awkward(), &small_slots(3), None);
}

#[test]
fn is_small_and_shares_memory() {
    let mut config = awkward();
    (config.mapped, config.limits.unified) = (true, true);
    config.limits.import_align = Some(4096);
    suite(config, &Options { import_min: 0, ..small_slots(1) }, None);
}

#[test]
fn reaches_no_memory_but_its_own() {
    suite(awkward(), &small_slots(1), Some(&[Kind::Device]));
}

#[test]
fn keeps_kernels_off_pinned_memory() {
    let mut config = awkward();
    config.limits.pinned_kernels = false;
    suite(config, &small_slots(2), None);
}
