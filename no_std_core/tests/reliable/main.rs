//! The reliable channel: two ends over a simulated link, in virtual time.

mod delivery;
mod goodput;
mod operations;
mod pair;
mod rules;
mod world;
