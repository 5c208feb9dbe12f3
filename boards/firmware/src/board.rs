//! What a board brings.

use crate::rate::Rates;
use core::net::SocketAddrV4;
use unisono_core::route::Rank;
use unisono_core::time::Instant;
use unisono_core::wire::board::Join;
use unisono_driver::{Device, HostPtr, Link};

/// What only the board knows.
pub trait Board {
    /// Its links.
    type Link: Link<Mem = HostPtr>;
    /// What folds.
    type Device: Device<Mem = HostPtr>;
    /// Its line to the host.
    type Line: embedded_io::Read
        + embedded_io::ReadReady
        + embedded_io::Write
        + embedded_io::WriteReady;

    /// What it is.
    fn descr(&self) -> Descr;

    /// Time since its start.
    fn now(&self) -> Instant;

    /// The line to the host.
    fn line(&mut self) -> &mut Self::Line;

    /// A device for the next group. There is one at a time, and all its work is done when the next
    /// one is asked for.
    fn device(&mut self) -> Self::Device;

    /// Most sources of one fold of such a device.
    fn sources_max(&self) -> u16;

    /// Where a member of the next group is reached over UDP. A board without such links takes no
    /// notice.
    fn peer(&mut self, _rank: Rank, _at: SocketAddrV4) {}

    /// A link to a member of the group that the board is about to join; `None` if there is no way
    /// to it. The links of the group before are gone.
    fn link(&mut self, join: &Join, peer: Rank) -> Option<Self::Link>;

    /// Bytes of the largest payload that a link carries.
    fn payload_max(&self) -> u32;

    /// Scratch for a call in flight: address and bytes, on a cache line. The numbers of calls are
    /// below `calls` of the [`Member`]; each has scratch of its own, of the same size.
    fn scratch(&self, call: usize) -> (HostPtr, u32);

    /// Tensor memory for the role of a rank: address and bytes.
    fn memory(&self) -> (HostPtr, u32);

    /// Is there something on the line that the host has not taken yet, or, if the board is `busy`
    /// with calls, on a link that shares its attention pin with the line? A line of which that
    /// cannot be told has nothing.
    fn has_posted(&mut self, _busy: bool) -> bool {
        false
    }

    /// Has the host cut the line? Then the member leaves its group and asks for the next line
    /// ([`Board::renew`]). Wires are never cut.
    fn is_cut(&self) -> bool {
        false
    }

    /// Takes up the line to the next host; false while there is none.
    fn renew(&mut self) -> bool {
        true
    }

    /// Called once a round: drives what the board has beside links (a network card), shows the host
    /// that it is alive, moves log bytes on ([`crate::log::take`]). True if there was work.
    fn turn(&mut self) -> bool;
}

/// What a board is.
#[derive(Clone, Copy, Debug)]
pub struct Descr {
    /// Name of the kind of board, at most 24 bytes.
    pub name: &'static str,
    /// Names the image; see [`build_id`].
    pub build: u64,
    /// Does it compute floating-point types in hardware?
    pub fpu: bool,
    /// How fast it is.
    pub rates: Rates,
}

/// Names the board that an image is for, the name of its folder, and the version of the messages
/// that it speaks, so that a host refuses it for another board or version: in sections of the ELF
/// file that are not loaded. For the image's own crate.
#[macro_export]
macro_rules! image_for {
    ($board:literal) => {
        core::arch::global_asm!(
            ".pushsection .unisono.board,\"\",%progbits",
            concat!(".ascii \"", $board, "\""),
            ".popsection",
            ".pushsection .unisono.abi,\"\",%progbits",
            // Little-endian, whatever the CPU is.
            ".byte {low}, {high}",
            ".popsection",
            low = const $crate::ABI & 0xff,
            high = const $crate::ABI >> 8,
        );
    };
}

/// The first bytes of the build id that the linker has put into a GNU note.
///
/// A note is three words (length of the name, of the content, a type), then the name, padded to
/// words, then the content. What is no such note has the id 0.
#[must_use]
pub fn build_id(note: &[u8]) -> u64 {
    let word = |at: usize| {
        let bytes = note.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes) as usize)
    };
    let content = word(0).and_then(|name| note.get(12 + name.next_multiple_of(4)..));
    let first = content.and_then(|c| c.first_chunk());
    first.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::build_id;

    #[test]
    fn a_build_id_is_the_content_of_its_note() {
        let mut note = vec![4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0];
        note.extend(b"GNU\0");
        note.extend(1..=20);
        assert_eq!(build_id(&note), 0x0102_0304_0506_0708);
        note.truncate(20);
        assert_eq!(build_id(&note), 0);
        assert_eq!(build_id(&[]), 0);
        assert_eq!(build_id(&[0xff; 40]), 0);
    }
}
