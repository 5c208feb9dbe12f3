//! The span link between processes of one host: tensors in shared memory are reduced where they
//! are, as between threads.
//!
//! Every process has one [`Arena`]: a `memfd` that is as large as the machine's memory, of which
//! only what is used exists. All processes of the group map it once and for all, so a piece of
//! memory is named by its offset, whatever is allocated and freed later. Bells, rings of frames
//! (those of [`unisono_link_span`]) and tensors lie in it. It has no name in any file system:
//! when the last process is gone, however that happened, so is the memory.
//!
//! Two processes meet over a connected Unix socket, which carries the descriptor of each one's
//! arena and then nothing more: it is open as long as the process lives. A thread that sleeps until
//! a socket closes marks the peer as dead; from then on its links are closed and memory that was
//! lent to it is free again, since nobody reads it any more.
//!
//! On machines with several memory nodes a piece lies near the core that has asked for it.
//!
//! Memory outside the arena is lent where the system lets the other process reach it: the receiver
//! has it copied (cross-memory attach), once to fold it and once with the answer. Both processes
//! try that when they meet ([`Fabric::attached`]). Elsewhere it cannot be lent
//! ([`LinkError::Unreachable`]): devices say so (`is_shared`), and what lies there is copied to
//! scratch slots in the arena first.
//!
//! Processes of a group trust each other as threads do, with two exceptions: whatever lies in a
//! frame decodes to a frame or to an error, and no offset leads out of an arena. An arena is sealed
//! against shrinking, so touching it never faults.
//!
//! [`LinkError::Unreachable`]: unisono_driver::LinkError::Unreachable

mod arena;
mod attach;
mod fabric;
mod greet;
mod layout;
mod numa;
mod peer;
mod watch;
mod word;

pub use arena::{Arena, Piece};
pub use fabric::{Ends, Fabric, Guard, ShmLink};
pub use layout::Layout;
pub use peer::Peer;
pub use word::Word;

/// What can go wrong when processes join their memory.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The other end of a socket does not belong to this group.
    #[error("process {process} cannot be joined by shared memory: {why}")]
    Stranger {
        /// Index of the process in the group.
        process: usize,
        /// What is wrong with it.
        why: String,
    },
}

/// Says what was tried when the system refused.
trait Tried<T> {
    fn tried(self, what: &'static str) -> Result<T, ShmError>;
}

impl<T, E: Into<std::io::Error>> Tried<T> for Result<T, E> {
    fn tried(self, what: &'static str) -> Result<T, ShmError> {
        self.map_err(|source| ShmError::System { what, source: source.into() })
    }
}
