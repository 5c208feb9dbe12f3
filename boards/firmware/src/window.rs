//! A board whose line to the host, links, log and tensor memory are areas of one window.
//!
//! The window stays, hosts come and go: each lays out a region of its own.

use crate::board::{Board, Descr};
use crate::log;
use unisono_core::route::Rank;
use unisono_core::time::Instant;
use unisono_core::wire::board::Join;
use unisono_driver::{Device, HostPtr, Memory};
use unisono_link_window::{
    Area, Bus, PipeReader, PipeWriter, Pipes, Reading, Region, RegionError, WindowLink,
};

/// What a board with a window still has to bring.
pub trait Platform {
    /// Its fences and doorbell.
    type Bus: Bus + Default;
    /// What folds.
    type Device: Device<Mem = HostPtr>;

    /// See [`Board::descr`].
    fn descr(&self) -> Descr;
    /// See [`Board::now`].
    fn now(&self) -> Instant;
    /// See [`Board::device`].
    fn device(&mut self) -> Self::Device;
    /// See [`Board::sources_max`].
    fn sources_max(&self) -> u16;
}

/// A board behind a window.
#[derive(Debug)]
pub struct WindowBoard<P: Platform> {
    platform: P,
    region: Region,
    /// It uses the region. Otherwise it waits for the next one.
    attached: bool,
    areas: Areas<P::Bus>,
    scratch: (HostPtr, u32),
}

/// What a board uses of its region.
#[derive(Debug)]
struct Areas<B> {
    pipes: Pipes<B>,
    log: PipeWriter<B>,
    /// None of its own: zero bytes.
    memory: Option<(HostPtr, u32)>,
    payload_max: u32,
}

impl<B: Bus + Default> Areas<B> {
    fn new(region: &Region) -> Result<Self, RegionError> {
        let from = PipeReader::new(region, |a| matches!(a, Area::ToBoard(_)), B::default())?;
        let to = PipeWriter::new(region, |a| matches!(a, Area::ToHost(_)), B::default())?;
        let log = log_pipe(region)?;
        let link = region.find(|area| matches!(area, Area::Link { .. }));
        let payload_max = match link {
            Ok((Area::Link { shape, .. }, _)) => shape.slot_bytes,
            _ => 0,
        };
        let memory = match region.find(|area| matches!(area, Area::Memory(_))) {
            Ok((Area::Memory(bytes), at)) => {
                let start = region.window().span(at, bytes as usize);
                Some((HostPtr::new(start.ok_or(RegionError::Missing)?.as_ptr()), bytes))
            }
            _ => None,
        };
        Ok(Self { pipes: Pipes { from, to }, log, memory, payload_max })
    }
}

impl<P: Platform> WindowBoard<P> {
    /// A board in a region that the host has laid out. `scratch` is the start of the calls' scratch
    /// memory on a cache line, and the bytes of each call: a multiple of a line.
    ///
    /// # Safety
    /// The scratch memory must be valid, and nobody else's, for as long as the board exists, for as
    /// many calls as its member has.
    ///
    /// # Errors
    /// If an area is missing.
    pub unsafe fn new(
        platform: P,
        region: Region,
        scratch: (HostPtr, u32),
    ) -> Result<Self, RegionError> {
        let areas = Areas::new(&region)?;
        Ok(Self { platform, region, attached: true, areas, scratch })
    }
}

/// The log pipe of a region: also for the last words of a panic.
///
/// # Errors
/// If there is none.
pub fn log_pipe<B: Bus + Default>(region: &Region) -> Result<PipeWriter<B>, RegionError> {
    PipeWriter::new(region, |area| matches!(area, Area::Log(_)), B::default())
}

impl<P: Platform> Board for WindowBoard<P> {
    type Link = WindowLink<HostPtr, P::Bus>;
    type Device = P::Device;
    type Line = Pipes<P::Bus>;

    fn descr(&self) -> Descr {
        self.platform.descr()
    }

    fn now(&self) -> Instant {
        self.platform.now()
    }

    fn line(&mut self) -> &mut Self::Line {
        &mut self.areas.pipes
    }

    fn device(&mut self) -> P::Device {
        self.platform.device()
    }

    fn sources_max(&self) -> u16 {
        self.platform.sources_max()
    }

    fn link(&mut self, _: &Join, peer: Rank) -> Option<Self::Link> {
        WindowLink::new(&self.region, peer, Reading::Copied, P::Bus::default()).ok()
    }

    fn payload_max(&self) -> u32 {
        self.areas.payload_max
    }

    fn scratch(&self, call: usize) -> (HostPtr, u32) {
        let (start, bytes) = self.scratch;
        (start.offset(call as u64 * u64::from(bytes)), bytes)
    }

    fn memory(&self) -> (HostPtr, u32) {
        self.areas.memory.unwrap_or((self.scratch.0, 0))
    }

    fn has_posted(&mut self, busy: bool) -> bool {
        // Frames go to and fro as long as there are calls. A host that writes nonsense waits in
        // vain.
        busy || !self.areas.pipes.to.is_taken().unwrap_or(true)
    }

    fn is_cut(&self) -> bool {
        !self.attached || self.region.is_withdrawn()
    }

    fn renew(&mut self) -> bool {
        if self.attached {
            self.region.detach();
            self.attached = false;
        }
        // What cannot be used is not attached to: its host is told by the board's line, and another
        // one may come.
        let Ok(region) = Region::open(self.region.window().clone()) else { return false };
        match Areas::new(&region) {
            Ok(areas) => {
                self.areas = areas;
                self.attached = true;
            }
            Err(_) => region.detach(),
        }
        self.region = region;
        self.attached
    }

    fn turn(&mut self) -> bool {
        self.region.beat();
        let mut bytes = [0; 64];
        // Bytes stay in the ring until there is room for all of them.
        if self.areas.log.room().is_ok_and(|room| room < bytes.len()) {
            return false;
        }
        let n = log::take(&mut bytes);
        let taken = bytes.get(..n).unwrap_or(&[]);
        n > 0 && self.areas.log.put(taken).is_ok()
    }
}
