//! What every board runs: an engine, commanded by a host.
//!
//! A board crate brings what only it knows ([`Board`]): a clock, links, a line to the host, memory.
//! [`Member`] is the rest: it answers the host, joins groups, runs calls. A board's main function
//! builds one and calls [`Member::step`] for ever.
//!
//! * [`Member`]: the super-loop's body;
//! * [`duo`]: a device whose work is done by another core;
//! * [`log`]: the defmt logger, a ring that the super-loop empties;
//! * `window` (feature): a board behind a memory window;
//! * `udp` and `virtio` (feature `udp`): such a board whose links go over a network card;
//! * [`probe`]: what a counter of instructions looks at;
//! * [`Backoff`]: how a loop waits that has nothing to do;
//! * [`Signals`]: pins for status and attention;
//! * [`panicked`]: the last words.
//!
//! Nothing here allocates, and no input makes it panic.
#![cfg_attr(not(test), no_std)]

mod backoff;
mod board;
mod call;
pub mod duo;
#[cfg(feature = "window")]
pub mod ivshmem;
mod line;
pub mod log;
mod member;
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
mod memory;
pub mod probe;
mod rate;
mod signals;
#[cfg(feature = "udp")]
pub mod udp;
#[cfg(feature = "udp")]
pub mod virtio;
#[cfg(feature = "window")]
pub mod window;

pub use backoff::{Backoff, LONGEST_US};
pub use board::{Board, Descr, build_id};
pub use line::{Line, Room};
pub use log::panicked;
pub use member::Member;
pub use rate::Rates;
pub use signals::{Doorbell, Signals};
pub use unisono_core::wire::board::ABI;
