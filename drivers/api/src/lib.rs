//! The driver contract of unisono: what a [`Device`] and a [`Link`] promise to the engine, and what
//! a [`PacketLink`] and a [`Clock`] promise to links that are made of them.
//!
//! Rules that every driver keeps (after Tock's TRD3):
//!
//! 1. never call back: completions are polled for;
//! 2. a call that returned `Ok` gets exactly one completion, a call that returned `Err` none;
//! 3. nothing blocks and nothing allocates on the data path;
//! 4. control (set-up, memory registration) is apart from the data path.
#![no_std]

pub mod device;
mod either;
pub mod link;
pub mod packet;

pub use device::{Copy, Device, DeviceCaps, Done, Fold, HostMemory, HostPtr, Memory, Token};
pub use either::Either;
pub use link::{Arrived, Incoming, Link, LinkCaps, LinkError, Outgoing};
pub use packet::{Clock, PacketLink};
