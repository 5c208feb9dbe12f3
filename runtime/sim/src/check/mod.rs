//! What is demanded of every run, one file a demand.

pub mod access;
pub mod agreement;
pub mod bits;
pub mod liveness;
