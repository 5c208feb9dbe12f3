//! The engine: asks machines what to do, hands it to a device or a link, feeds completions back.
//!
//! The same engine runs in a host thread, in a firmware super-loop and in the simulator. It is
//! `no_std`, allocates nothing and never blocks: [`Engine::poll`] does what can be done now and
//! says whether anything was done, so that the caller decides how to wait.
#![no_std]

mod engine;
mod frames;
mod jobs;
mod quick;
mod slot;

pub use engine::{BeginError, Engine, Holder};
pub use quick::Quick;
pub use slot::{Buffers, Call};
