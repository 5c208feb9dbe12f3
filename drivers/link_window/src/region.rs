//! How a region is divided, and who is on the other side.

use crate::window::Window;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Version of layout and rings.
pub const ABI: u32 = 1;
/// Where the first area lies.
pub const AREAS_AT: usize = 4096;
/// Most entries of the table.
pub const ENTRIES_MAX: usize = (AREAS_AT - TABLE_AT) / ENTRY;
/// Most payload slots of one channel and direction.
pub const SLOTS_MAX: u16 = 64;

const MAGIC: u32 = u32::from_le_bytes(*b"UNSW");
const TABLE_AT: usize = 256;
const ENTRY: usize = 32;
/// Everything starts on a cache line.
const LINE: usize = 64;
/// What a side writes into its line of a link's area.
pub(crate) const OPEN: u32 = 1;
pub(crate) const CLOSED: u32 = 2;

/// The two sides of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Lays the region out and commands the board.
    Host,
    /// A SmartNIC or DPU core.
    Board,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Host => Self::Board,
            Self::Board => Self::Host,
        }
    }

    /// Where its line is in the region.
    const fn line(self) -> usize {
        LINE * (1 + self as usize)
    }

    /// Where its line is in the area of a link.
    pub(crate) const fn state(self) -> usize {
        LINE * self as usize
    }
}

/// How large the rings of a link are; the same in both directions and all channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Calls that may be in flight, at least 1.
    pub channels: u16,
    /// Entries of a ring: a power of two, at least 4. A frame takes one or two.
    pub units: u16,
    /// Payloads that may be under way, 1 to [`SLOTS_MAX`].
    pub slots: u16,
    /// Bytes of the largest payload: a multiple of 64.
    pub slot_bytes: u32,
}

impl Shape {
    /// Bytes that the link takes in the region; `None` for a shape that cannot be.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let good = (1..=crate::CHANNELS_MAX as u16).contains(&self.channels)
            && (4..=1 << 12).contains(&self.units)
            && self.units.is_power_of_two()
            && (1..=SLOTS_MAX).contains(&self.slots)
            && self.slot_bytes > 0
            && (self.slot_bytes as usize).is_multiple_of(LINE);
        good.then(|| 2 * LINE as u64 + 2 * u64::from(self.channels) * self.channel_bytes())
    }

    /// Bytes of one channel in one direction.
    pub(crate) fn channel_bytes(&self) -> u64 {
        let units = u64::from(self.units);
        (units * 80).next_multiple_of(LINE as u64)
            + u64::from(self.slots) * u64::from(self.slot_bytes)
    }
}

/// One part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// A link between the board and one rank of the host's side.
    Link {
        /// The rank.
        peer: u16,
        /// Its rings.
        shape: Shape,
    },
    /// Control messages to the board, in a pipe of so many bytes (a power of two).
    ToBoard(u32),
    /// Control messages to the host.
    ToHost(u32),
    /// Log bytes to the host.
    Log(u32),
    /// So many bytes for tensors.
    Memory(u32),
}

impl Area {
    /// Bytes that it takes; `None` if it cannot be.
    fn bytes(self) -> Option<u64> {
        match self {
            Self::Link { shape, .. } => shape.bytes(),
            Self::ToBoard(bytes) | Self::ToHost(bytes) | Self::Log(bytes) => {
                let good = bytes.is_power_of_two() && (64..=1 << 24).contains(&bytes);
                good.then(|| 2 * LINE as u64 + u64::from(bytes))
            }
            Self::Memory(bytes) => Some(u64::from(bytes)),
        }
    }

    fn encode(self, at: u32, taken: u32) -> [u32; ENTRY / 4] {
        let (kind, peer, shape) = match self {
            Self::Link { peer, shape } => (1, u32::from(peer), shape),
            Self::ToBoard(_) => (2, 0, NO_RINGS),
            Self::ToHost(_) => (3, 0, NO_RINGS),
            Self::Log(_) => (4, 0, NO_RINGS),
            Self::Memory(_) => (5, 0, NO_RINGS),
        };
        let Shape { channels, units, slots, slot_bytes } = shape;
        [kind, peer, at, taken, channels.into(), units.into(), slots.into(), slot_bytes]
    }

    /// The area of a table entry, where it lies and what it takes; `None` for nonsense.
    fn decode(entry: [u32; ENTRY / 4]) -> Option<(Self, usize, u64)> {
        let [kind, peer, at, taken, channels, units, slots, slot_bytes] = entry;
        let short = |n: u32| u16::try_from(n).ok();
        let data = || taken.checked_sub(2 * LINE as u32);
        let area = match kind {
            1 => Self::Link {
                peer: short(peer)?,
                shape: Shape {
                    channels: short(channels)?,
                    units: short(units)?,
                    slots: short(slots)?,
                    slot_bytes,
                },
            },
            2 => Self::ToBoard(data()?),
            3 => Self::ToHost(data()?),
            4 => Self::Log(data()?),
            5 => Self::Memory(taken),
            _ => return None,
        };
        let bytes = area.bytes()?;
        let at = at as usize;
        (bytes == u64::from(taken) && at.is_multiple_of(LINE) && at >= AREAS_AT)
            .then_some((area, at, bytes))
    }
}

const NO_RINGS: Shape = Shape { channels: 0, units: 0, slots: 0, slot_bytes: 0 };

/// What is wrong with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// The host has not laid it out (yet).
    #[error("the window holds no region (yet)")]
    NoRegion,
    /// The two sides have different versions.
    #[error("the other side speaks window ABI {theirs}, this side {ABI}")]
    Abi {
        /// The other side's version.
        theirs: u32,
    },
    /// The table says what cannot be.
    #[error("entry {entry} of the region's table is no area of it")]
    Table {
        /// Which entry.
        entry: usize,
    },
    /// The areas do not fit.
    #[error("the areas need {needed} bytes, the window has {bytes}")]
    Room {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that there are.
        bytes: usize,
    },
    /// An area that was asked for is not in the table.
    #[error("the region has no such area")]
    Missing,
}

/// A window that has been laid out.
#[derive(Clone, Debug)]
pub struct Region {
    window: Window,
    entries: usize,
    side: Side,
}

impl Region {
    /// Lays the window out, everything zeroed, and opens it for the board. The host does this.
    ///
    /// # Errors
    /// [`RegionError::Room`], or [`RegionError::Table`] with the area that cannot be.
    pub fn format(window: Window, areas: &[Area]) -> Result<Self, RegionError> {
        let needed = Self::needed(areas)?;
        let bytes = window.bytes();
        let room = RegionError::Room { needed, bytes };
        if needed > bytes as u64 || u32::try_from(bytes).is_err() {
            return Err(room);
        }
        set(&window, 0, 0);
        for at in (4..needed as usize).step_by(4).filter(|at| !BOARD_LINE.contains(at)) {
            set(&window, at, 0);
        }
        let mut at = AREAS_AT;
        for (i, area) in areas.iter().enumerate() {
            let taken = area.bytes().ok_or(RegionError::Table { entry: i })?;
            for (word, value) in area.encode(at as u32, taken as u32).into_iter().enumerate() {
                set(&window, TABLE_AT + i * ENTRY + 4 * word, value);
            }
            at += (taken as usize).next_multiple_of(LINE);
        }
        for (word, value) in [ABI, bytes as u32, areas.len() as u32].into_iter().enumerate() {
            set(&window, 4 + 4 * word, value);
        }
        let region = Self { window, entries: areas.len(), side: Side::Host };
        region.announce();
        region.window.word(0).ok_or(room)?.store(MAGIC, Release);
        Ok(region)
    }

    /// Bytes that a window needs for these areas.
    ///
    /// # Errors
    /// [`RegionError::Table`] with the area that cannot be.
    pub fn needed(areas: &[Area]) -> Result<u64, RegionError> {
        let mut needed = AREAS_AT as u64;
        for (entry, area) in areas.iter().enumerate() {
            let bytes = area.bytes().filter(|_| entry < ENTRIES_MAX);
            needed += bytes.ok_or(RegionError::Table { entry })?.next_multiple_of(LINE as u64);
        }
        Ok(needed)
    }

    /// Opens a region that the host has laid out; says in the board's line who is there.
    ///
    /// # Errors
    /// [`RegionError::NoRegion`] (try again), or what is wrong with it.
    pub fn open(window: Window) -> Result<Self, RegionError> {
        let get = |at| window.word(at).map_or(0, |word| word.load(Acquire));
        let region = Self { window: window.clone(), entries: 0, side: Side::Board };
        // Also a host of another version is to learn this side's.
        region.announce();
        if get(0) != MAGIC {
            return Err(RegionError::NoRegion);
        }
        if get(4) != ABI {
            return Err(RegionError::Abi { theirs: get(4) });
        }
        let (bytes, entries) = (get(8) as usize, get(12) as usize);
        if bytes > window.bytes() {
            return Err(RegionError::Room { needed: bytes as u64, bytes: window.bytes() });
        }
        if entries > ENTRIES_MAX {
            return Err(RegionError::Table { entry: entries });
        }
        Ok(Self { entries, ..region })
    }

    /// This side.
    #[must_use]
    pub const fn side(&self) -> Side {
        self.side
    }

    /// The window.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// The areas that fulfil a condition, with their offsets.
    ///
    /// # Errors
    /// [`RegionError::Missing`] if there is none, [`RegionError::Table`] if the table is nonsense.
    pub fn find(&self, wanted: impl Fn(Area) -> bool) -> Result<(Area, usize), RegionError> {
        for entry in 0..self.entries {
            let (area, at) = self.entry(entry)?;
            if wanted(area) {
                return Ok((area, at));
            }
        }
        Err(RegionError::Missing)
    }

    fn entry(&self, entry: usize) -> Result<(Area, usize), RegionError> {
        let wrong = RegionError::Table { entry };
        let mut words = [0; ENTRY / 4];
        for (i, word) in words.iter_mut().enumerate() {
            let at = TABLE_AT + entry * ENTRY + 4 * i;
            *word = self.window.word(at).ok_or(wrong)?.load(Relaxed);
        }
        let (area, at, bytes) = Area::decode(words).ok_or(wrong)?;
        let bytes = usize::try_from(bytes).map_err(|_| wrong)?;
        self.window.span(at, bytes).ok_or(wrong).map(|_| (area, at))
    }

    /// Zeroes the area of a link, so that both ends can be made anew. The host does this, while
    /// neither end exists.
    ///
    /// # Errors
    /// As [`Region::find`].
    pub fn clear_link(&self, peer: u16) -> Result<(), RegionError> {
        let (area, at) = self.find(|a| matches!(a, Area::Link { peer: p, .. } if p == peer))?;
        let bytes = area.bytes().unwrap_or(0) as usize;
        (at..at + bytes).step_by(4).for_each(|at| set(&self.window, at, 0));
        Ok(())
    }

    /// Closes every link in the name of the other side, which has died without doing so.
    ///
    /// # Errors
    /// If the table is nonsense.
    pub fn close_for_other(&self) -> Result<(), RegionError> {
        for entry in 0..self.entries {
            if let (Area::Link { .. }, at) = self.entry(entry)? {
                set(&self.window, at + self.side.other().state(), CLOSED);
            }
        }
        Ok(())
    }

    /// Says in this side's line who is there.
    fn announce(&self) {
        let line = self.side.line();
        set(&self.window, line + 4, ABI);
        if let Some(magic) = self.window.word(line) {
            magic.store(MAGIC, Release);
        }
    }

    /// The ABI version of the other side; `None` while nobody has opened it.
    #[must_use]
    pub fn other_abi(&self) -> Option<u32> {
        let line = self.side.other().line();
        let there = self.window.word(line)?.load(Acquire) == MAGIC;
        there.then(|| self.window.word(line + 4).map_or(0, |abi| abi.load(Relaxed)))
    }

    /// Shows that this side is alive.
    pub fn beat(&self) {
        if let Some(beats) = self.window.word(self.side.line() + 8) {
            beats.store(beats.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }

    /// A number that changes as long as the other side is alive.
    #[must_use]
    pub fn other_beats(&self) -> u32 {
        self.window.word(self.side.other().line() + 8).map_or(0, |beats| beats.load(Relaxed))
    }
}

/// The board may have announced itself before the host lays the region out.
const BOARD_LINE: core::ops::Range<usize> = 2 * LINE..3 * LINE;

fn set(window: &Window, at: usize, value: u32) {
    if let Some(word) = window.word(at) {
        word.store(value, Relaxed);
    }
}
