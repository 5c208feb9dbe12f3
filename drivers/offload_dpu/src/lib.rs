//! The host's side of a board: a SmartNIC or DPU core that runs unisono's firmware and is a member
//! of a group.
//!
//! [`Board::start`] starts one (an image under QEMU, behind a memory window), [`Board::attach`]
//! finds one that runs already, behind the BAR of a card or a shared file. Either finds out what
//! it can do ([`Board::identity`]), and refuses what does not fit: another version, another image
//! than the one that was asked for, no answer in time. [`Board::join`] makes it a member and hands
//! out the host's ends of its links; [`Board::begin`] and [`Board::finish`] make calls. Boards that
//! have serial lines instead of a window are in [`serial`], those with a network card beside it in
//! [`udp`]; [`start`] starts any, and [`AnyBoard`] commands it.
//!
//! A thread watches the board: it decodes what the board logs (defmt) into this program's log
//! (`tracing`, with the board's name and time), and if the board dies or falls silent it closes the
//! board's links, so that no rank waits for it. Every error names the board.

mod any;
mod attach;
mod board;
mod error;
mod folder;
mod image;
mod keeper;
mod machine;
mod process;
pub mod serial;
mod talk;
pub mod udp;

pub use any::{AnyBoard, BoardLink, Setup, start, start_unless};
pub use attach::{Attach, Place};
pub use board::{Board, Options};
pub use error::{BoardError, Problem};
pub use folder::Folder;
pub use image::Image;
pub use machine::Machine;
pub use process::end_with_parent;
