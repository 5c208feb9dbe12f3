//! A member on a Cortex-M4 with tens of KiB of RAM and no network: everything comes over serial
//! lines. The board is QEMU's `mps2-an386`.
//!
//! | UART | what goes over it |
//! |---|---|
//! | 0 | commands of the host, and answers |
//! | 1 | the links to all other members, a port each |
//! | 2 | log bytes (defmt), from the board only |
#![no_std]

mod board;
pub mod clock;
mod store;
pub mod uart;

pub use board::{LinkLine, Mps2, Parts};
pub use store::{Blocks, CALLS, MEMBERS, MOVES, Memory, Store, WINDOW, blocks};

use unisono_firmware::Member;

/// The member as it is on this board.
pub type BoardMember = Member<'static, Mps2, CALLS, WINDOW, MOVES, MEMBERS>;
