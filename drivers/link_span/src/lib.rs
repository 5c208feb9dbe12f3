//! The link between threads of one process: payload is never copied, only named.
//!
//! Each ordered pair of members has one ring of frames a channel. A frame names the sender's memory
//! (a *span*); the receiver folds or copies straight from it, may write its answer into the
//! sender's *window*, and then releases the frame, which is the sender's completion. Payloads of up
//! to [`INLINE`] bytes ride in the frame itself.
//!
//! # Taking memory back
//!
//! A span is only touched between [`Link::enter`](unisono_driver::Link::enter) and `exit`, which
//! move the frame's state from `SENT` to `BUSY` and back. A sender that gives a call up moves it
//! from `SENT` to `REVOKED`; whoever comes first wins, so a member may free its tensors as soon as
//! `withdraw` has returned true, whatever the others do.

mod bell;
mod fabric;
mod link;
mod ring;
mod sync;

pub use bell::Bell;
pub use fabric::fabric;
pub use link::SpanLink;
pub use ring::INLINE;

/// A reference to memory of this process, as the links between its threads pass it on.
///
/// It says where bytes are, not that they may be touched: that is what the contracts of
/// [`Link`](unisono_driver::Link) and [`Device`](unisono_driver::Device) are about.
pub trait Span: unisono_driver::Memory + Send + 'static {
    /// A reference to this address.
    fn from_ptr(ptr: *mut u8) -> Self;
    /// The address.
    fn as_ptr(self) -> *mut u8;
}
