//! The command-line tool, from outside: what it prints, writes and returns.

mod bench;
mod errors;
mod flash;
#[cfg(unix)]
mod interrupt;
#[cfg(target_os = "linux")]
mod launch;
mod misc;
mod mixed;
mod plan;
mod reduce;
mod tool;
