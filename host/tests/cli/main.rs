//! The command-line tool, from outside: what it prints, writes and returns.

mod bench;
mod errors;
mod flash;
mod flash_board;
#[cfg(target_os = "linux")]
mod flash_stop;
#[path = "../../../drivers/loader/tests/elf/mod.rs"]
mod image;
#[cfg(unix)]
mod interrupt;
#[cfg(target_os = "linux")]
mod launch;
mod misc;
mod mixed;
mod plan;
mod reduce;
mod tool;
