//! A link over datagrams that may get lost, doubled, overtaken or damaged.
//!
//! [`ReliableLink`] joins a [`PacketLink`](unisono_driver::PacketLink), a
//! [`Clock`](unisono_driver::Clock) and the core's reliable machine ([`unisono_core::reliable`]) to
//! a [`Link`](unisono_driver::Link). It allocates nothing; what it stores is fixed by its
//! constants:
//!
//! | constant | what it bounds |
//! |---|---|
//! | `CHANNELS` | calls in flight; each has a reliable machine of its own |
//! | `WINDOW` | packets of a channel under way, each way; a power of two up to 64 |
//! | `MTU` | bytes of a packet |
//! | `DEPTH` | frames of a channel that wait to be sent, or to be reported as sent |
//!
//! Memory is about `2 * WINDOW * (MTU + 40) + DEPTH * 160` bytes a channel.
//!
//! # Format
//!
//! Channel `c` is the session `session + c` of the reliable machine, so channels never wait for
//! each other: each has its own window and its own credit. On a channel a frame is a run of
//! messages, each of one packet: the first begins with the frame's header
//! ([`unisono_core::wire::frame`]), the payload follows. The header says where the frame ends, and
//! the next message begins the next frame. An empty message in the middle of a frame says that the
//! sender has withdrawn the rest: the receiver forgets the frame. Frames have no checksum of their
//! own, every packet has one.
//!
//! # Polling
//!
//! Both ends are to be polled all the time, not only while a call is under way: the last packets of
//! a call may get lost, and only a link that is polled sends them again or answers them.
//! [`ReliableLink::is_idle`] says when this side has nothing more to send.
//!
//! # Who may be trusted
//!
//! Packets of other sessions, damaged packets and packets of the own side change nothing. A peer in
//! the session that breaks the rules (no frame where one begins, more bytes than its header says)
//! closes the channel with [`LinkError::Garbage`](unisono_driver::LinkError::Garbage). There is no
//! defence against somebody who can see the session and forge packets.
#![no_std]

mod bytes;
mod channel;
mod link;

pub use bytes::{Bytes, HostBytes};
pub use channel::Channel;
pub use link::{MtuError, ReliableLink, session};
