//! A whole group in one thread and virtual time: the real engine on every member, simulated
//! memory, devices and links below it, and every fault drawn from one seed.
//!
//! [`run`] is the whole of it: a seed stands for a [`scenario`], the [`world`] plays it, and the
//! files in [`check`] say what is demanded of it. Equal seeds give equal runs, event by event, so
//! whatever goes wrong can be looked at again.

pub mod check;
pub mod device;
pub mod hub;
pub mod link;
pub mod member;
pub mod memory;
pub mod net;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod trace;
pub mod world;

pub use report::{Report, Summary};

/// Plays the scenario of a seed.
#[must_use]
pub fn run(seed: u64) -> Report {
    world::World::new(scenario::Scenario::draw(seed), false).run(seed)
}

/// The same, with a readable trace.
#[must_use]
pub fn run_traced(seed: u64) -> Report {
    world::World::new(scenario::Scenario::draw(seed), true).run(seed)
}
