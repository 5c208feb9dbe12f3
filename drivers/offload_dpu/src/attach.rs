//! A board that runs already: a card behind a BAR, or a program behind a shared file.
//!
//! The window stays when the host goes, and so may hold what another host has left. The new one
//! takes that away, waits until the board has let go of it, and lays out its own.

use crate::board::{Board, Hold, Line, areas};
use crate::error::{BoardError, Problem};
use crate::image::Image;
use crate::keeper::{Keeper, Watch, WindowSigns};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unisono_link_window::{ABI, Region, RegionError, Shape, Window};

/// Where Linux lists PCI devices.
const DEVICES: &str = "bus/pci/devices";
/// Where a card's memory is, as a rule: the first BAR often has registers.
const RESOURCES: [&str; 2] = ["resource2", "resource0"];
/// More of a window is not used: offsets in it have 32 bits.
const WINDOW_MAX: u64 = 1 << 30;
/// A board that is a rank has at least so many bytes of tensor memory.
const MEMORY_MIN: u32 = 64 << 10;
/// Between two looks at the board.
const NAP: Duration = Duration::from_micros(200);
/// Rings of a link, from those that suit most groups to the least with which chunks of a page flow:
/// slots and their bytes.
const RINGS: [(u16, u32); 5] =
    [(16, 16 << 10), (16, 8 << 10), (16, 4 << 10), (8, 4 << 10), (4, 4 << 10)];

/// Where a board's window is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The PCI device with this address (`0000:03:00.0`), as Linux lists it below `sysfs`.
    Pci {
        /// Where sysfs is mounted: `/sys`.
        sysfs: PathBuf,
        /// The address.
        address: String,
    },
    /// A file that the board has mapped, too.
    File(PathBuf),
}

/// How a board is to be attached to.
#[derive(Clone, Debug)]
pub struct Attach {
    /// Its name in errors and the log.
    pub name: String,
    /// Its window, whose size decides how large rings and tensor memory are.
    pub place: Place,
    /// The board has a link for each peer `0..peers`.
    pub peers: u16,
    /// Bytes of tensor memory that would be good to have; 0 if the board is no rank.
    pub memory: u32,
    /// How long an answer may take, the first one included.
    pub patience: Duration,
    /// How long the board may show no sign of life.
    pub silence: Duration,
    /// Once it is set, nothing of the board is waited for.
    pub stop: Arc<AtomicBool>,
    /// Where images are: with the one that the board runs its log can be read.
    pub images: Vec<PathBuf>,
}

/// A window that other hosts keep away from.
pub(crate) struct Held {
    window: Window,
    /// Locked until nobody has the file mapped, so also while there are links.
    _file: File,
}

impl Drop for Held {
    fn drop(&mut self) {
        // The board leaves its group and waits for the next host.
        let _ = Region::withdraw(self.window.clone());
    }
}

impl Board {
    /// Attaches to a board that runs, and asks it what it is.
    ///
    /// # Errors
    /// Whatever keeps it from being used.
    pub fn attach(options: &Attach) -> Result<Self, BoardError> {
        try_attach(options).map_err(|problem| BoardError { board: options.name.clone(), problem })
    }
}

fn try_attach(options: &Attach) -> Result<Board, Problem> {
    let path = options.place.path()?;
    let wrong = |why: String| Problem::Attach { path: path.clone(), why };
    let held = hold(&path)?;
    let bytes = held.window.bytes() as u64;
    let (shape, memory) = fit(bytes, options.peers, options.memory).map_err(wrong)?;
    vacate(&held.window, options)?;
    let region = Region::format(held.window.clone(), &areas(options.peers, shape, memory))?;
    let keeper = Keeper::new(Watch {
        name: options.name.clone(),
        process: None,
        signs: Box::new(WindowSigns::new(region.clone())),
        silence: options.silence,
    })?;
    let line = Line {
        name: options.name.clone(),
        region,
        keeper,
        patience: options.patience,
        stop: options.stop.clone(),
        hold: Hold::Window(held),
    };
    let (board, build) = Board::greet(line, None)?;
    let (name, kind) = (&options.name, board.identity().name.as_str());
    tracing::info!(board = name, "attached to {kind}, image {build:016x}");
    let image = Image::find(&options.images, build);
    if image.is_none() {
        tracing::warn!(
            board = name,
            "its log cannot be read: no folder of images has the image {build:016x}"
        );
    }
    board.keeper().read_log(image.and_then(Image::into_table));
    Ok(board)
}

impl Place {
    /// The window's file.
    fn path(&self) -> Result<PathBuf, Problem> {
        let (sysfs, address) = match self {
            Self::File(path) => return Ok(path.clone()),
            Self::Pci { sysfs, address } => (sysfs, address),
        };
        let device = sysfs.join(DEVICES).join(address);
        let wrong = |why: String| Problem::Attach { path: device.clone(), why };
        if !device.is_dir() {
            return Err(wrong("there is no such PCI device (`lspci -D` lists them)".into()));
        }
        // While it is 0, the device answers nothing.
        let enabled = std::fs::read_to_string(device.join("enable"));
        if enabled.is_ok_and(|text| text.trim() == "0") {
            return Err(wrong("the device is off: write 1 into its file `enable`".into()));
        }
        let found = RESOURCES.iter().map(|name| device.join(name)).find(|path| path.exists());
        found.ok_or_else(|| {
            let names = RESOURCES.join(" nor ");
            wrong(format!("it has neither {names}: name the file, as dpu:file:PATH"))
        })
    }
}

/// Opens a window for this host alone.
fn hold(path: &Path) -> Result<Held, Problem> {
    let wrong = |why: String| Problem::Attach { path: path.to_owned(), why };
    let failed = |error: io::Error| wrong(explain(&error));
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(wrong("another host has it".into())),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes == 0 {
        return Err(wrong("it is empty: a window has the size of its memory".into()));
    }
    let window = Window::part(&file, bytes.min(WINDOW_MAX) as usize).map_err(failed)?;
    Ok(Held { window, _file: file })
}

/// What a system's error means here.
fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".into(),
        io::ErrorKind::PermissionDenied => {
            format!("{error}: a device's memory belongs to root; run as root, or chown the file")
        }
        _ => error.to_string(),
    }
}

/// The largest rings that fit, and bytes of tensor memory.
fn fit(bytes: u64, peers: u16, memory: u32) -> Result<(Shape, u32), String> {
    // Links may have half of it if the board has tensors, too.
    let (room, least) = if memory > 0 { (bytes / 2, memory.min(MEMORY_MIN)) } else { (bytes, 0) };
    let mut needed = 0;
    for (slots, slot_bytes) in RINGS {
        let shape = Shape { channels: 2, units: 64, slots, slot_bytes };
        needed = Region::needed(&areas(peers, shape, 0)).map_err(|error| error.to_string())?;
        let rest = u32::try_from(bytes.saturating_sub(needed) / 64 * 64).unwrap_or(u32::MAX);
        if needed <= room && rest >= least {
            return Ok((shape, memory.min(rest)));
        }
    }
    let least = if memory > 0 { 2 * needed.max(least.into()) } else { needed };
    Err(format!("it has {bytes} bytes, and links to {peers} members take {least}"))
}

/// Takes away whatever is in the window, and waits until the board has let go of it.
fn vacate(window: &Window, options: &Attach) -> Result<(), Problem> {
    const TO: &str = "a new window";
    let patience = options.patience;
    let old = Region::withdraw(window.clone());
    let (beats, end) = (old.other_beats(), Instant::now() + patience);
    loop {
        // What an earlier board has left does not beat.
        match old.other_abi().filter(|_| old.other_beats() != beats) {
            Some(ABI) if old.attachment() == 0 => return Ok(()),
            Some(theirs) if theirs != ABI => return Err(RegionError::Abi { theirs }.into()),
            _ if options.stop.load(Ordering::Relaxed) => {
                return Err(Problem::Interrupted { to: TO });
            }
            _ if Instant::now() > end => return Err(Problem::Mute { to: TO, after: patience }),
            _ => std::thread::sleep(NAP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_as_large_as_the_window_allows() {
        let of = |bytes, peers, memory| {
            fit(bytes, peers, memory).map(|(s, memory)| (s.slots, s.slot_bytes, memory))
        };
        assert_eq!(of(64 << 20, 4, 0), Ok((16, 16 << 10, 0)));
        assert_eq!(of(64 << 20, 4, 1 << 20), Ok((16, 16 << 10, 1 << 20)));
        assert_eq!(of(2 << 20, 4, 0), Ok((16, 4 << 10, 0)));
        let (slots, slot_bytes, memory) = of(2 << 20, 2, 64 << 20).expect("room");
        assert_eq!((slots, slot_bytes), (16, 4 << 10));
        assert!((MEMORY_MIN..2 << 20).contains(&memory), "{memory}");
        let small = of(64 << 10, 2, 0).expect_err("too small");
        assert!(small.contains("65536 bytes") && small.contains("2 members take"), "{small}");
        // What it says is enough.
        for memory in [0, 64 << 20] {
            let error = fit(1, 3, memory).expect_err("too small");
            let bytes = error.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number");
            assert!(fit(bytes, 3, memory).is_ok(), "{error}");
            assert!(fit(bytes / 2, 3, memory).is_err(), "{error}");
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let error = explain(&io::ErrorKind::PermissionDenied.into());
        assert!(error.contains("run as root"), "{error}");
        assert_eq!(explain(&io::ErrorKind::NotFound.into()), "there is no such file");
    }
}
