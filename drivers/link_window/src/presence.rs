//! Who is on the other side, and whether it uses the region.

use crate::region::{ABI, MAGIC, Region, RegionError, Side, set};
use crate::window::Window;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::fence;

/// Words of a side's line, after its magic.
const VERSION: usize = 4;
const BEATS: usize = 8;
/// The board's only.
const ATTACHMENT: usize = 12;

impl Region {
    /// Says in this side's line who is there; a board does not use the region yet.
    pub(crate) fn announce(&self) {
        let line = self.side.line();
        if self.side == Side::Board {
            self.detach();
        }
        set(&self.window, line + VERSION, ABI);
        if let Some(magic) = self.window.word(line) {
            magic.store(MAGIC, Release);
        }
    }

    /// The ABI version of the other side; `None` while nobody has opened it.
    #[must_use]
    pub fn other_abi(&self) -> Option<u32> {
        let line = self.side.other().line();
        let there = self.window.word(line)?.load(Acquire) == MAGIC;
        there.then(|| self.window.word(line + VERSION).map_or(0, |abi| abi.load(Relaxed)))
    }

    /// Shows that this side is alive.
    pub fn beat(&self) {
        if let Some(beats) = self.window.word(self.side.line() + BEATS) {
            beats.store(beats.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }

    /// A number that changes as long as the other side is alive.
    #[must_use]
    pub fn other_beats(&self) -> u32 {
        self.window.word(self.side.other().line() + BEATS).map_or(0, |beats| beats.load(Relaxed))
    }

    /// The board uses the region from now on.
    pub(crate) fn attach(&self) -> Result<(), RegionError> {
        if self.is_withdrawn() {
            return Err(RegionError::NoRegion);
        }
        // The count of beats has grown since any earlier attachment, also over a restart.
        let line = Side::Board.line();
        let beats = self.window.word(line + BEATS).map_or(0, |beats| beats.load(Relaxed));
        set(&self.window, line + ATTACHMENT, beats.max(1));
        // The host may be taking the region away right now. It looks at the attachment after it has
        // withdrawn the magic, and this side the other way round: one of them sees the other.
        fence(SeqCst);
        if self.is_withdrawn() {
            self.detach();
            return Err(RegionError::NoRegion);
        }
        Ok(())
    }

    /// Has the host taken the region away? Then the board lets go of it.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.window.word(0).is_none_or(|magic| magic.load(Acquire) != MAGIC)
    }

    /// The board does not use the region any more: the host may lay it out anew.
    pub fn detach(&self) {
        if let Some(word) = self.window.word(Side::Board.line() + ATTACHMENT) {
            word.store(0, Release);
        }
    }

    /// Names the board's use of the region: another number after it has been started anew, or has
    /// let go of the region and taken it up again; 0 while it does not use it.
    #[must_use]
    pub fn attachment(&self) -> u32 {
        self.window
            .word(Side::Board.line() + ATTACHMENT)
            .map_or(0, |attachment| attachment.load(Acquire))
    }

    /// Takes away what another host has laid out in a window: what is there may be anything. The
    /// region that is returned has no areas, it only tells when the board has let go:
    /// [`Region::attachment`] is 0 and [`Region::other_beats`] has changed, so that it is no
    /// leftover.
    #[must_use]
    pub fn withdraw(window: Window) -> Self {
        set(&window, 0, 0);
        // See `attach`.
        fence(SeqCst);
        Self { window, entries: 0, side: Side::Host }
    }
}
