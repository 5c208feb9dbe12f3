//! Links over TCP, IPv4 or IPv6, for processes on one host or on several.
//!
//! [`TcpLink::new`] takes streams that are connected already: one for each channel, in the same
//! order at both ends. Who connects to whom, and by which address, is the caller's business.
//!
//! # A stream for each channel
//!
//! Channels must never wait for each other, and a receiver need not begin a call for as long as it
//! likes. In one stream that takes a window for each channel, frames that grant it, a buffer that
//! holds a whole window of each channel, and a copy out of there, since a receiver cannot leave
//! bytes in the system's buffer without holding up what is behind them. The system has all of this
//! already: a stream has a window and a buffer of its own. With a stream a channel
//!
//! * frames of a call that has not begun wait in that stream; the buffer is bounded by the system;
//! * payloads are received where the engine wants them, in whatever order it wants them;
//! * calls in flight use several streams by themselves, which is worth something where a network
//!   card spreads streams over queues, and costs nothing on loopback;
//! * a channel that no call uses costs no system call.
//!
//! The price is descriptors: 16 members with 4 channels have 60 each (a process may have 1024
//! unless told otherwise), and the memory of the system's buffers, which is taken when used. A call
//! alone has one stream; striping it would put frames back together in user space, and where one
//! stream is too slow because of its rate per connection, calls in flight are the remedy.
//!
//! # Two streams for the two directions
//!
//! What one end of a link sends on a channel and what the other one sends on it are in different
//! streams: the [`End`]s count them from different ones. Members of a collective send at the same
//! time, and the system delivers into a stream under the lock that sending from it takes; in one
//! stream each would wait for the other. 8 B over two processes on loopback took 4.9 us with two
//! streams where it had taken 5 to 7.
//!
//! # Format
//!
//! A frame is prefix and header ([`unisono_core::wire::frame::encode_head`]), then the payload in
//! segments of 256 KiB, the last one shorter. A byte after each segment says that the next one
//! follows, that the payload is whole, or that its sender has withdrawn it: then what has been
//! received counts for nothing, and the next frame begins. So a sender that takes its memory back
//! owes the stream one segment of zeros at most.
//!
//! # No checksum
//!
//! TCP and the network below it have their own, which find what cables and cards damage. What they
//! miss is damage inside of a host or a switch, and CRC32C at the rate of memory would take about
//! as long as the fold itself. Where that is worth its price, or where somebody may forge bytes,
//! the remedy is a stream that is authenticated (IPsec, WireGuard), not one more sum.
//!
//! # System calls
//!
//! A frame is one `sendmsg`, header and payload from where they lie. Small payloads are copied
//! behind their header and are complete at once. A receiver reads up to 8 KiB ahead while it looks
//! for headers, and what follows a segment together with it, so a stream of frames takes one call a
//! segment. [`Link::poll`](unisono_driver::Link::poll) begins a round; in a round, a channel that
//! gave less than it was asked for is not asked again.
//!
//! # Waiting
//!
//! A caller need not spin: [`TcpLink::waits`] names descriptors to sleep on, together with others.
mod inbox;
mod link;
mod options;
mod outbox;
mod segment;

pub use link::{End, TcpLink, Wait};
pub use options::{Options, TcpError};
