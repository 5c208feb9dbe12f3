//! The core of unisono: everything that decides, nothing that touches the world.
//!
//! Four words carry the system, and two of them live here:
//!
//! * a **schedule** ([`schedule`]) says, for a chunk and a rank, which moves to make: pure
//!   arithmetic;
//! * a **machine** ([`machine`]) runs those moves, a window of chunks at a time: the only stateful
//!   collective code. It does no I/O, reads no clock and never touches payload.
//!
//! What the bits of a result are is defined by [`numeric`], the scalar reference.
//!
//! The other two, **device** and **link**, are driver contracts (crate `unisono-driver`).
//!
//! This crate is `no_std`, allocates nothing and forbids `unsafe`.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod bytes;
pub mod dtype;
pub mod fold;
pub mod layout;
pub mod machine;
pub mod numeric;
pub mod plan;
pub mod reliable;
pub mod route;
pub mod schedule;
pub mod time;
pub mod wire;

pub use dtype::{DType, ReduceOp, Scalar};
pub use fold::{Finish, Form, Source};
pub use layout::{Kind, Layout};
pub use route::{Move, Rank, Route};
pub use schedule::{Order, Schedule};
pub use time::Instant;
