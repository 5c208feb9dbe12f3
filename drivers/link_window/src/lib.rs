//! The window link: rings in memory that two processors share, as a PCIe BAR gives it.
//!
//! One side is the *host*, the other the *board* (a SmartNIC or DPU core). The memory is a *region*
//! that the host lays out ([`Region::format`]) and the board finds its way in ([`Region::open`]):
//! a link for each rank that the board talks to ([`WindowLink`]), pipes for control messages and
//! log bytes ([`PipeReader`], [`PipeWriter`]), and memory for tensors.
//!
//! # Layout
//!
//! Words have 32 bits and are little-endian. Offsets count from the region's start, which both
//! sides map at a multiple of 4 KiB.
//!
//! ```text
//! 0     magic "UNSW", ABI version, bytes of the region, entries of the table
//! 64    the host's line: [magic, ABI version, heartbeat]
//! 128   the board's line: the same
//! 256   the table: entries of 32 bytes
//!         kind (1 link, 2 control to the board, 3 control to the host, 4 log, 5 memory),
//!         peer, offset, bytes, then for a link: channels, units of a ring, slots, bytes of a slot
//! 4096  the areas, each on a cache line of 64 bytes
//! ```
//!
//! The lines stay where they are in every version, so that two sides of different versions can
//! still tell each other so.
//!
//! A link's area has a line for each side (word 0: 1 open, 2 closed), then for each direction and
//! channel, written by the sender unless said otherwise:
//!
//! ```text
//! units × 64 B  submissions: 56 bytes of the frame's header (module `wire::frame` of the core,
//!               without payload and checksum), the slot of the payload (0xffff: none), the tail
//! units × 16 B  completions, by the receiver: slot | units << 16, two words of 0, the tail
//! slots × n B   payloads
//! ```
//!
//! A header of more than 56 bytes goes on in the next unit, whose tail is written first. The
//! *tail* is the last word of an entry: `position << 1 | phase`. Positions count from 0 and go on
//! through all laps; the phase is 1 in the first lap, 0 in the second, and so on. So a reader polls
//! one word, which lies in the cache line that it needs next, and needs no index from the other
//! side. A position that does not fit its phase is garbage.
//!
//! A pipe is a ring of bytes: word 0 counts bytes written, word 16 bytes read, data from byte 128.
//!
//! # Ordering
//!
//! Only loads, stores and fences: a bus need not carry a read-modify-write. Each word has one
//! writer. The rules, with the [`Bus`] fences of each side:
//!
//! 1. a writer stores payload and entry, then [`Bus::publish`], then the tail, in one store;
//! 2. a reader loads the tail, then [`Bus::observe`], then entry and payload;
//! 3. a reader is done with entry and payload before [`Bus::publish`] and the completion's tail;
//! 4. the writer loads that tail, then [`Bus::observe`], and only then writes there again.
//!
//! 1 and 2 pair as release and acquire, so a reader that sees a tail sees all that belongs to it;
//! 3 and 4 do for the way back, so nothing is overwritten that is still being read. Units are free
//! by *count*: a receiver takes frames in order and completes them later in any order, so the first
//! n units have been taken when n units are completed. Completions need no flow control: a position
//! of their ring is used again only for a submission that the sender made after it had read the
//! completion that lay there. PCIe keeps writes of one side in order as long as relaxed ordering is
//! off for the window, and a completion is looked for in memory, never assumed after a doorbell.
//!
//! # Trust
//!
//! Offsets, shapes, headers, slots and counts from the other side are checked before they are used;
//! nonsense ends the link ([`LinkError::Garbage`](unisono_driver::LinkError)). Headers are copied
//! out before they are looked at. Payload is only data: a side that changes it while it is read
//! spoils the result and nothing else.
#![no_std]

#[cfg(any(feature = "std", test))]
extern crate std;

#[cfg(target_endian = "big")]
compile_error!("a window is little-endian, and this target is not");

mod bus;
#[cfg(feature = "std")]
mod file;
mod link;
mod pipe;
mod region;
mod ring;
mod window;

pub use bus::{Bus, Coherent, PinBell};
pub use link::{CHANNELS_MAX, Reading, WindowLink};
pub use pipe::{PipeError, PipeReader, PipeWriter, Pipes};
pub use region::{ABI, AREAS_AT, Area, ENTRIES_MAX, Region, RegionError, SLOTS_MAX, Shape, Side};
pub use window::Window;
