//! UDP as a [`PacketLink`](unisono_driver::PacketLink), to one peer each.
//!
//! A link is such a port with the reliable machine on top of it (the crate `unisono-link-packet`).
//!
//! * [`UdpPort`] is a socket of the operating system (feature `std`);
//! * [`stack`] is for firmware (feature `smoltcp`): one network card, many ports.
//!
//! A port talks to one address only, and what comes from others is dropped, but an address can be
//! forged: outside of a closed network, packets have to be authenticated below this.
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "std")]
mod socket;
#[cfg(feature = "smoltcp")]
pub mod stack;

#[cfg(feature = "std")]
pub use socket::UdpPort;

/// Most bytes of a datagram that Ethernet carries in one piece: 1500 without the headers of IPv4
/// and UDP.
pub const ETHERNET: usize = 1472;

/// A board listens for the other members of its group at this port and those after it, one a
/// member, in the order of their ranks.
pub const BOARD_PORT: u16 = 7400;
