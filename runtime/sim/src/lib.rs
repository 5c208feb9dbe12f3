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

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Plays the scenario of a seed.
#[must_use]
pub fn run(seed: u64) -> Report {
    play(seed, false)
}

/// The same, with a readable trace.
#[must_use]
pub fn run_traced(seed: u64) -> Report {
    play(seed, true)
}

fn play(seed: u64, readable: bool) -> Report {
    let world = world::World::new(scenario::Scenario::draw(seed), readable);
    let hub = world.hub();
    // Whatever panics, the trace up to there and the seed are worth more than the panic.
    catch_unwind(AssertUnwindSafe(|| world.run(seed))).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("no text");
        Report::broken(seed, &hub, format!("panicked: {text}"))
    })
}
