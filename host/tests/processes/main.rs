//! Groups of real processes: the same bits as threads, and errors that end all of them.
#![cfg(target_os = "linux")]

mod again;
mod aggregators;
mod bits;
mod faults;
mod job;
mod many;
mod ordinary;
mod probe;
mod replan;
mod steady;
mod world;
