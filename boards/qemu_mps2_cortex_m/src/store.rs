//! The board's memory: how much of everything there is.

use core::borrow::{Borrow, BorrowMut};
use heapless::box_pool;
use heapless::pool::boxed::{Box, BoxBlock};
use unisono_driver::HostPtr;
use unisono_link_packet::Channel;

/// Calls in flight.
pub const CALLS: usize = 1;
/// Chunks of a call in flight.
pub const WINDOW: usize = 2;
/// Moves of a route, and members of a group.
pub const MOVES: usize = 16;
/// Members of a group.
pub const MEMBERS: usize = 4;

/// Bytes of an encoded frame on the line, and of the packet that fits it.
pub(crate) const LINE: usize = 256;
pub(crate) const MTU: usize = 252;
/// Packets of a link under way each way, and frames that wait.
pub(crate) const PACKETS: usize = 4;
pub(crate) const DEPTH: usize = 2;

type Channels = [Channel<HostPtr, PACKETS, MTU, DEPTH>; CALLS];

// Links come and go with their group; their storage stays.
box_pool!(LINKS: Channels);

/// Storage of one link, which goes back when the link is dropped.
pub struct Store(Box<LINKS>);

impl Store {
    /// Storage for one more link; `None` if all of it is in use.
    pub(crate) fn new() -> Option<Self> {
        LINKS.alloc([const { Channel::new() }; CALLS]).ok().map(Self)
    }
}

impl Borrow<[Channel<HostPtr, PACKETS, MTU, DEPTH>]> for Store {
    fn borrow(&self) -> &[Channel<HostPtr, PACKETS, MTU, DEPTH>] {
        &*self.0
    }
}

impl BorrowMut<[Channel<HostPtr, PACKETS, MTU, DEPTH>]> for Store {
    fn borrow_mut(&mut self) -> &mut [Channel<HostPtr, PACKETS, MTU, DEPTH>] {
        &mut *self.0
    }
}

/// Bytes of scratch for a call, and of tensor memory.
const SCRATCH: usize = 12 * 1024;
const TENSORS: usize = 12 * 1024;

/// The slots: what the size budget does not count.
#[repr(C, align(64))]
pub struct Memory {
    pub(crate) scratch: [u8; SCRATCH],
    pub(crate) tensors: [u8; TENSORS],
}

impl Memory {
    /// Zeroed memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { scratch: [0; SCRATCH], tensors: [0; TENSORS] }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory of all links.
pub type Blocks = [BoxBlock<Channels>; MEMBERS - 1];

/// Empty memory for all links.
#[must_use]
pub const fn blocks() -> Blocks {
    [const { BoxBlock::new() }; MEMBERS - 1]
}

/// Hands the memory of all links to the pool.
pub(crate) fn manage(blocks: &'static mut Blocks) {
    for block in blocks {
        LINKS.manage(block);
    }
}
