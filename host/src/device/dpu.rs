//! Boards: SmartNIC and DPU cores that run unisono's firmware; started here, or attached to.

use super::spec::pci;
use crate::error::Error;
use crate::member::CALLS_MAX;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use unisono_core::wire::board::Identity;
use unisono_gpu::Pci;
use unisono_offload_dpu::{
    AnyBoard, Attach, Board, BoardError, Machine, Place, Setup, start_unless,
};

/// The folder of images that is looked into first.
const IMAGES: &str = "UNISONO_BOARDS";
/// Where sysfs is, if not at `/sys`: a container may have it elsewhere.
const SYSFS: &str = "UNISONO_SYSFS";
/// Tensor memory of a board that is a rank and has none of its own.
const MEMORY: u32 = 64 << 20;

/// A board that shows no sign of life is gone before its calls' time limit, but not because its
/// emulator has to wait for a core.
const SILENCE: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// The part of a board in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DpuRole {
    /// It folds what the ranks have: `dpu:NAME`.
    Aggregator,
    /// It is a rank, whose tensor lies in its own memory: `dpu:NAME:rank`.
    Rank,
}

/// Where a board is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DpuPlace {
    /// It is started here: the name of its machine, as `unisono devices` lists it.
    Machine(String),
    /// A card that runs: `pci:0000:03:00.0`.
    Pci(Pci),
    /// Whoever has mapped this file: `file:PATH`.
    File(PathBuf),
}

/// A board and its part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DpuSpec {
    /// Where it is.
    pub place: DpuPlace,
    /// Its part.
    pub role: DpuRole,
}

impl DpuSpec {
    /// `PLACE` or `PLACE:rank`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (place, role) = match text.rsplit_once(':') {
            Some((place, "rank")) => (place, DpuRole::Rank),
            Some((place, "aggregator")) => (place, DpuRole::Aggregator),
            _ => (text, DpuRole::Aggregator),
        };
        let place = match place.split_once(':') {
            Some(("pci", address)) => pci(address).map(DpuPlace::Pci).ok_or_else(|| {
                format!("dpu:{text}: {address} is no PCI address; one is 0000:03:00.0")
            })?,
            Some(("file", path)) if !path.is_empty() => DpuPlace::File(path.into()),
            Some(("file", _)) => return Err(format!("dpu:{text}: which file?")),
            Some((_, role)) => {
                return Err(format!(
                    "dpu:{text}: a board is a rank or an aggregator, not '{role}'"
                ));
            }
            None => {
                if let Some(machine) = Machine::named(place) {
                    return Ok(Self { place: DpuPlace::Machine(machine.name.to_owned()), role });
                }
                let known: Vec<_> =
                    Machine::ALL.iter().map(|m| format!("dpu:{}", m.name)).collect();
                let known = known.join(", ");
                return Err(format!(
                    "dpu:{text}: no such board; there are {known}, and those that run already: \
                     dpu:pci:ADDRESS and dpu:file:PATH"
                ));
            }
        };
        Ok(Self { place, role })
    }
}

impl fmt::Display for DpuPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(name) => f.write_str(name),
            Self::Pci(address) => write!(f, "pci:{address}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl fmt::Display for DpuSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.role == DpuRole::Rank { ":rank" } else { "" };
        write!(f, "dpu:{}{role}", self.place)
    }
}

/// A board while no group has it.
struct Idle {
    board: Option<Box<dyn AnyBoard>>,
    /// Groups that it has been in.
    groups: u32,
}

struct Started {
    spec: DpuSpec,
    about: &'static str,
    identity: Identity,
    pid: Option<u32>,
    idle: Mutex<Idle>,
}

/// A board that has been started, and runs as long as this is kept, or has been attached to. One
/// group at a time has it.
#[derive(Clone)]
pub struct Dpu(Arc<Started>);

impl fmt::Debug for Dpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dpu").field(&self.0.spec).finish()
    }
}

/// Calls in flight for which a board that says so many has room here: as the engines count them,
/// the largest power of two.
pub(crate) fn calls_of(calls: u8) -> usize {
    1 << usize::from(calls).clamp(1, CALLS_MAX).ilog2()
}

/// A call's part of a board's tensor memory.
pub(crate) const fn memory_per_call(memory: u32, calls: usize) -> usize {
    memory as usize / calls / 64 * 64
}

impl Dpu {
    /// Starts a board, or attaches to one that runs, for groups of at most `members` members whose
    /// calls have this time limit; each answer of the board has it, too, the first one included.
    ///
    /// # Errors
    /// [`Error::Board`]: there is no image, no emulator, no such window, or the board does not
    /// answer.
    pub fn start(spec: &DpuSpec, members: u16, timeout: Duration) -> Result<Self, Error> {
        Self::start_unless(&Arc::default(), spec, members, timeout)
    }

    /// The same; once `stop` is set, nothing is waited for any more.
    ///
    /// # Errors
    /// As for [`Dpu::start`], and [`Error::Board`] if it was stopped.
    pub fn start_unless(
        stop: &Arc<AtomicBool>,
        spec: &DpuSpec,
        members: u16,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let memory = if spec.role == DpuRole::Rank { MEMORY } else { 0 };
        let silence = (timeout / 2).clamp(SILENCE[0], SILENCE[1]);
        let setup = Setup { peers: members, memory, patience: timeout, silence };
        let attached =
            |place, about| attach(stop, &spec.place, place, setup).map(|board| (board, about));
        let (board, about) = match &spec.place {
            DpuPlace::Machine(name) => {
                let machine = Machine::named(name);
                let machine =
                    machine.ok_or_else(|| Error::Board(format!("there is no board {name}")))?;
                let image = image(machine).map_err(Error::Board)?;
                (start_unless(stop, machine, &image, setup)?, machine.about)
            }
            DpuPlace::Pci(pci) => {
                let sysfs = std::env::var_os(SYSFS).unwrap_or_else(|| "/sys".into()).into();
                attached(Place::Pci { sysfs, address: pci.to_string() }, CARD)?
            }
            DpuPlace::File(path) => attached(Place::File(path.clone()), SHARED)?,
        };
        let (identity, pid) = (board.identity().clone(), board.pid());
        let idle = Mutex::new(Idle { board: Some(board), groups: 0 });
        Ok(Self(Arc::new(Started { spec: spec.clone(), about, identity, pid, idle })))
    }

    /// How it was asked for.
    #[must_use]
    pub fn spec(&self) -> &DpuSpec {
        &self.0.spec
    }

    /// What it is, in a few words.
    #[must_use]
    pub fn about(&self) -> &'static str {
        self.0.about
    }

    /// What it can do.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Bytes of a tensor that it has room for in each call, in place, if it is a rank.
    #[must_use]
    pub fn room(&self) -> usize {
        let Identity { memory, calls, .. } = &self.0.identity;
        memory_per_call(*memory, calls_of(*calls))
    }

    /// Process id of its emulator, if it was started here.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.0.pid
    }

    /// Takes it for a group; it comes back when that is gone.
    pub(crate) fn take(&self) -> Result<Taken, Error> {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(board) = idle.board.take() else {
            return Err(Error::Board(format!("{} is in another group already", self.0.spec)));
        };
        idle.groups += 1;
        Ok(Taken { home: self.clone(), group: idle.groups, board: Some(board) })
    }
}

/// A board that a group has.
pub(crate) struct Taken {
    pub home: Dpu,
    /// The how manieth group of this board it is.
    pub group: u32,
    /// There until it is dropped.
    board: Option<Box<dyn AnyBoard>>,
}

impl Taken {
    /// Its group has this epoch, which no later one of the board may have.
    pub fn raise(&mut self, epoch: u32) {
        let mut idle = self.home.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.groups = idle.groups.max(epoch);
        self.group = self.group.max(epoch);
    }
}

impl Deref for Taken {
    type Target = dyn AnyBoard;

    fn deref(&self) -> &Self::Target {
        match &self.board {
            Some(board) => &**board,
            None => unreachable!("only a dropped value is without it"),
        }
    }
}

impl DerefMut for Taken {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match &mut self.board {
            Some(board) => &mut **board,
            None => unreachable!("only a dropped value is without it"),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut idle = self.home.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.board = self.board.take();
    }
}

/// A board that can be asked for.
#[derive(Clone, Debug)]
pub struct DpuEntry {
    /// What `--on` calls it.
    pub on: String,
    /// What it is, in a few words.
    pub about: &'static str,
    /// What is missing to start it here.
    pub missing: Option<String>,
}

/// All boards that this version knows.
#[must_use]
pub fn boards() -> Vec<DpuEntry> {
    let entry = |machine: &&'static Machine| {
        let emulator = (!machine.is_here()).then(|| {
            let (program, package) = (machine.program(), machine.package);
            format!("no {program} in PATH: install QEMU (Debian: apt install {package})")
        });
        let on = format!("dpu:{}", machine.name);
        DpuEntry { on, about: machine.about, missing: emulator.or_else(|| image(machine).err()) }
    };
    Machine::ALL.iter().map(entry).collect()
}

/// What boards are that were not started here.
const CARD: &str = "a card, behind its PCI window";
const SHARED: &str = "behind a shared file";

/// Boards that run already, and how they are named.
#[must_use]
pub const fn attachable() -> [(&'static str, &'static str); 2] {
    [("dpu:pci:ADDRESS", CARD), ("dpu:file:PATH", SHARED)]
}

fn attach(
    stop: &Arc<AtomicBool>,
    name: &DpuPlace,
    place: Place,
    setup: Setup,
) -> Result<Box<dyn AnyBoard>, BoardError> {
    let Setup { peers, memory, patience, silence } = setup;
    let name = name.to_string();
    let (stop, images) = (stop.clone(), folders());
    let attach = Attach { name, place, peers, memory, patience, silence, stop, images };
    Ok(Box::new(Board::attach(&attach)?))
}

/// Where images may be.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os(IMAGES).map(Into::into).into_iter().collect();
    if let Ok(program) = std::env::current_exe() {
        // Beside the program, where a package puts it, and where this project's own build does.
        let above = program.ancestors().skip(1).take(3);
        let places = ["boards", "share/unisono/boards", "bare-metal/images"];
        let pairs = above.flat_map(|folder| places.map(|place| folder.join(place)));
        folders.extend(pairs);
    }
    folders
}

/// Where the image of a machine is.
fn image(machine: &Machine) -> Result<PathBuf, String> {
    let mut paths = folders().into_iter().map(|folder| folder.join(machine.image));
    paths.find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "board {} has no image {}: build it with `cargo xtask boards`, or name a folder that \
             has it in {IMAGES}",
            machine.name, machine.image
        )
    })
}

impl From<BoardError> for Error {
    fn from(error: BoardError) -> Self {
        Self::Board(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_have_names_and_parts() {
        let spec = |text: &str| DpuSpec::parse(text);
        let role = |text: &str| spec(text).map(|s| s.role);
        assert_eq!(role("qemu-aarch64"), Ok(DpuRole::Aggregator));
        assert_eq!(role("qemu-aarch64:aggregator"), Ok(DpuRole::Aggregator));
        assert_eq!(role("qemu-riscv64:rank"), Ok(DpuRole::Rank));
        let card = DpuPlace::Pci(Pci { domain: 0, bus: 3, device: 0, function: 1 });
        for text in ["pci:0000:03:00.1:rank", "pci:03:00.1:rank"] {
            assert_eq!(spec(text), Ok(DpuSpec { place: card.clone(), role: DpuRole::Rank }));
        }
        let file = DpuPlace::File("/dev/shm/a:b".into());
        let file = DpuSpec { place: file, role: DpuRole::Aggregator };
        assert_eq!(spec("file:/dev/shm/a:b"), Ok(file));
        assert_eq!(spec("qemu_cortex_m:rank"), spec("qemu-cortex-m:rank"));
        let names = ["qemu-aarch64", "qemu-cortex-m:rank", "pci:0000:03:00.1", "file:/a:rank"];
        for name in names.map(|name| format!("dpu:{name}")) {
            let text = name.strip_prefix("dpu:").map(spec);
            assert_eq!(text.expect("a prefix").map(|s| s.to_string()), Ok(name));
        }
        let cards = ["pci:", "pci:3", "pci:0000:zz:00.0", "file:", "file::rank"];
        for wrong in ["", "qemu", "qemu-aarch64:hub", "qemu-aarch64:"].into_iter().chain(cards) {
            assert!(spec(wrong).is_err(), "{wrong}");
        }
    }
}
