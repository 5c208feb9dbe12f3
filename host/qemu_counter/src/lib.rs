//! A QEMU plugin that counts what a board executes.
//!
//! ```text
//! qemu-system-… -plugin libqemu_counter.so,out=FILE,begin=…,end=…,worked=…,rested=… …
//! ```
//!
//! Instructions are counted by the address of the block that they are in, for each core, in two
//! ways: all of them, and those of rounds with work. A core ends each round at one of two places,
//! `worked` or `rested` (`firmware::probe`); what it has executed since the last one then belongs
//! to the round.
//!
//! The counts are in a file ([`counts`]), which others may read meanwhile: a machine that is killed
//! leaves them there.
//!
//! Made for version 1 of QEMU's plugin interface, as Debian 12's QEMU 7.2 has it.

mod counter;
pub mod counts;
// Only QEMU has what this calls.
#[cfg(not(test))]
mod plugin;
