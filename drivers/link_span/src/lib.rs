//! The link between members that share memory: payload is never copied, only named. Threads of
//! one process share all of it ([`fabric`]); how processes name theirs is said by a [`Reach`].
//!
//! Each ordered pair of members has one ring of frames a channel. A frame names the sender's memory
//! (a *span*); the receiver folds or copies straight from it, may write its answer into the
//! sender's *window*, and then releases the frame, which is the sender's completion. Payloads of up
//! to [`INLINE`] bytes ride in the frame itself, those of up to [`SMALL`] in a buffer of the ring.
//!
//! Memory that only the sender's process has can be named, too, where the system lets the receiver
//! read it ([`Reach::fetch`]): then the span is a copy, fetched when it is locked, and an answer is
//! carried to the window when it is unlocked.
//!
//! # Taking memory back
//!
//! A span is only touched between [`Link::enter`](unisono_driver::Link::enter) and `exit`, which
//! move the frame's state from `SENT` to `BUSY` and back. A sender that gives a call up moves it
//! from `SENT` to `REVOKED`; whoever comes first wins, so a member may free its tensors as soon as
//! `withdraw` has returned true, whatever the others do.

mod ahead;
mod away;
mod bell;
mod fabric;
mod link;
mod packed;
mod reach;
mod ring;
mod sync;

pub use bell::Bell;
pub use fabric::{Ends, depth, fabric, fabric_with};
pub use link::{Pair, SpanLink};
pub use packed::INLINE;
pub use reach::{Direct, Named, Reach};
pub use ring::{Ring, SMALL};
