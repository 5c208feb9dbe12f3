//! Suites that every driver of a kind passes.
//!
//! * [`device`]: a device gives the bits of the reference, writes nothing else, and keeps the
//!   completion rules.
//!
//! * [`link`]: frames and payloads arrive, in order, once, and memory comes back.
//!
//! [`packet`] and [`mod@line`] are what such links are tried on: cables of every quality.
//!
//! A suite panics at the first thing that is wrong and says what it was; it is meant to be called
//! from a driver's own tests.

pub mod device;
pub mod line;
pub mod link;
pub mod packet;
