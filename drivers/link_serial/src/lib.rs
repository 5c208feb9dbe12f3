//! Several links over one serial line.
//!
//! A [`Line`] cuts a stream of bytes (a UART, [`SpiStream`]) into frames; each frame names a
//! **port** and carries one datagram. A [`Port`] is a
//! [`PacketLink`](unisono_driver::PacketLink), so a link over the line is a port with the reliable
//! machine on top of it (the crate `unisono-link-packet`): the line may lose, double and damage
//! bytes.
//!
//! # Format
//!
//! ```text
//! byte   what
//! 0      port: the rank of the member at the host's end of the link
//! 1..    the datagram, which brings its own CRC32C
//! ```
//!
//! encoded by COBS: no byte is 0, and a 0 ends the frame. After any damage the reader is in step
//! again at the next 0; zeros in a row mean nothing, so an idle line may give as many as it likes.
//! The port is under no checksum: a datagram that comes to the wrong port belongs to another
//! session there and changes nothing.
//!
//! # Waiting
//!
//! Nothing here blocks, except a [`SpiStream`] whose bus fails: it backs off with the board's
//! [`DelayNs`](embedded_hal::delay::DelayNs).
#![cfg_attr(not(feature = "std"), no_std)]

mod line;
mod port;
mod spi;

pub use line::{Line, PORTS};
pub use port::{Port, Share};
pub use spi::SpiStream;
