//! A board behind a window that has been started.

use crate::attach::Held;
use crate::error::{BoardError, Problem};
use crate::folder::Folder;
use crate::image::Image;
use crate::keeper::{Keeper, Watch, WindowSigns};
use crate::machine::Machine;
use crate::process::Process;
use crate::talk::Talk;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use unisono_core::route::Rank;
use unisono_core::wire::board::{Call, Identity, Join, Status};
use unisono_core::wire::frame::Abort;
use unisono_driver::HostMemory;
use unisono_link_window::{
    ABI, Area, Coherent, PipeReader, PipeWriter, Pipes, Reading, Region, RegionError, Shape,
    Window, WindowLink,
};

/// Bytes of the pipes for control and log.
const CONTROL: u32 = 4096;
const LOG: u32 = 1 << 16;
/// Smallest window that makes sense for a PCI device.
const WINDOW_MIN: u64 = 1 << 16;

/// How a board is to be started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine.
    pub machine: &'static Machine,
    /// Its image.
    pub image: PathBuf,
    /// More arguments for the machine.
    pub args: Vec<String>,
    /// The board has a link for each peer `0..peers`.
    pub peers: u16,
    /// The rings of its links.
    pub shape: Shape,
    /// Bytes of tensor memory, for the role of a rank.
    pub memory: u32,
    /// How long an answer may take, the first one included.
    pub patience: Duration,
    /// How long the board may show no sign of life.
    pub silence: Duration,
    /// Once it is set, nothing of the board is waited for.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// Rings that suit most groups, no tensor memory, ten seconds for an answer.
    #[must_use]
    pub fn new(machine: &'static Machine, image: &Path, peers: u16) -> Self {
        Self {
            machine,
            image: image.to_owned(),
            args: Vec::new(),
            peers,
            shape: Shape { channels: 2, units: 64, slots: 16, slot_bytes: 16 << 10 },
            memory: 0,
            patience: Duration::from_secs(10),
            silence: Duration::from_secs(10),
            stop: Arc::default(),
        }
    }
}

/// What a region has for so many peers, with so much tensor memory.
pub(crate) fn areas(peers: u16, shape: Shape, memory: u32) -> Vec<Area> {
    let pipes = [Area::ToBoard(CONTROL), Area::ToHost(CONTROL), Area::Log(LOG)];
    let links = (0..peers).map(|peer| Area::Link { peer, shape });
    pipes.into_iter().chain(links).chain([Area::Memory(memory)]).collect()
}

/// A board that runs. Dropping it ends one that was started, and lets go of one that was attached
/// to.
pub struct Board {
    name: String,
    region: Region,
    talk: Talk<Pipes<Coherent>, Keeper>,
    identity: Identity,
    /// Where its tensor memory is.
    memory: (usize, u32),
    member: bool,
    /// Last: the window goes when nobody uses it any more.
    _hold: Hold,
}

/// What has to be kept for as long as the board.
pub(crate) enum Hold {
    /// The window's file, which is this board's alone.
    Folder(#[expect(dead_code, reason = "its end deletes it")] Folder),
    /// The window of a board that stays.
    Window(#[expect(dead_code, reason = "its end gives it back")] Held),
}

/// A window that has been laid out, and who is behind it.
pub(crate) struct Line {
    pub name: String,
    pub region: Region,
    pub keeper: Keeper,
    pub patience: Duration,
    pub stop: Arc<AtomicBool>,
    pub hold: Hold,
}

impl Board {
    /// Starts a board and asks it what it is.
    ///
    /// # Errors
    /// Whatever keeps it from being used.
    pub fn start(options: &Options) -> Result<Self, BoardError> {
        let name = options.machine.name;
        Self::try_start(options).map_err(|problem| BoardError { board: name.to_owned(), problem })
    }

    fn try_start(options: &Options) -> Result<Self, Problem> {
        let name = options.machine.name.to_owned();
        let image = Image::read(options.machine, &options.image)?;
        let build = image.build();
        let areas = areas(options.peers, options.shape, options.memory);
        let bytes = Region::needed(&areas)?.next_power_of_two().max(WINDOW_MIN);
        let window = |why: std::io::Error| Problem::Window { bytes, why: why.to_string() };
        let folder = Folder::new().map_err(window)?;
        let file = folder.path().join("window");
        let region = Region::format(Window::create(&file, bytes).map_err(window)?, &areas)?;
        let image_file = options.machine.runnable(&options.image, folder.path())?;
        let process = spawn(options, &image_file, &file, bytes)?;
        let keeper = Keeper::new(Watch {
            name: name.clone(),
            process: Some(process),
            signs: Box::new(WindowSigns::new(region.clone())),
            silence: options.silence,
        })?;
        keeper.read_log(image.into_table());
        let hold = Hold::Folder(folder);
        let (patience, stop) = (options.patience, options.stop.clone());
        let line = Line { name, region, keeper, patience, stop, hold };
        Ok(Self::greet(line, Some(build))?.0)
    }

    /// Meets the board behind a window; which image it runs, if not this one.
    pub(crate) fn greet(line: Line, build: Option<u64>) -> Result<(Self, u64), Problem> {
        let Line { name, region, keeper, patience, stop, hold } = line;
        let from = PipeReader::new(&region, |a| matches!(a, Area::ToHost(_)), Coherent)?;
        let to = PipeWriter::new(&region, |a| matches!(a, Area::ToBoard(_)), Coherent)?;
        let memory = match region.find(|area| matches!(area, Area::Memory(_)))? {
            (Area::Memory(bytes), at) => (at, bytes),
            (_, at) => (at, 0),
        };
        let mut talk = Talk::new(Pipes { from, to }, keeper, patience).stop_at(&stop);
        let end = Instant::now() + patience;
        loop {
            match region.other_abi() {
                Some(ABI) => break,
                Some(theirs) => return Err(RegionError::Abi { theirs }.into()),
                None => talk.rest("a greeting", end, patience)?,
            }
        }
        let (build, identity) = talk.greet(build)?;
        Ok((Self { name, region, talk, identity, memory, member: false, _hold: hold }, build))
    }

    /// How the board's log is read.
    pub(crate) const fn keeper(&self) -> &Keeper {
        self.talk.alive()
    }

    /// The board's name here.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the board is and can do.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Process id of its machine, if it was started here.
    #[must_use]
    pub const fn pid(&self) -> Option<u32> {
        self.talk.alive().pid()
    }

    /// Makes the board a member of a group; returns this side's ends of its links to `peers`, in
    /// their order. Ends of an earlier group must be gone.
    ///
    /// # Errors
    /// If the board refuses, or has no such link.
    pub fn join<M: HostMemory>(
        &mut self,
        join: Join,
        peers: &[Rank],
    ) -> Result<Vec<WindowLink<M, Coherent>>, BoardError> {
        self.try_join(join, peers).map_err(|problem| self.error(problem))
    }

    fn try_join<M: HostMemory>(
        &mut self,
        join: Join,
        peers: &[Rank],
    ) -> Result<Vec<WindowLink<M, Coherent>>, Problem> {
        self.leave()?;
        let mut links = Vec::new();
        for &peer in peers {
            self.region.clear_link(peer)?;
            links.push(WindowLink::new(&self.region, peer, Reading::Copied, Coherent)?);
        }
        self.enter(join)?;
        Ok(links)
    }

    /// Leaves the group that the board is in, if it is in one.
    pub(crate) fn leave(&mut self) -> Result<(), Problem> {
        if std::mem::take(&mut self.member) {
            self.talk.leave()?;
        }
        Ok(())
    }

    /// Makes the board a member; it has left the group before.
    pub(crate) fn enter(&mut self, join: Join) -> Result<(), Problem> {
        self.talk.join(join)?;
        self.member = true;
        Ok(())
    }

    /// The conversation with it.
    pub(crate) const fn talk(&mut self) -> &mut Talk<Pipes<Coherent>, Keeper> {
        &mut self.talk
    }

    /// Begins a call on the board. Whatever becomes of it, [`Board::finish`] tells.
    ///
    /// # Errors
    /// If the board cannot be reached.
    pub fn begin(&mut self, call: &Call) -> Result<(), BoardError> {
        self.talk.begin(call).map_err(|problem| self.error(problem))
    }

    /// Gives a call up on all members.
    ///
    /// # Errors
    /// If the board cannot be reached.
    pub fn cancel(&mut self, op_id: u64) -> Result<(), BoardError> {
        self.talk.cancel(op_id).map_err(|problem| self.error(problem))
    }

    /// The result of a call on the board, once; `None` while it runs.
    ///
    /// # Errors
    /// If the board refuses the call, or is gone.
    pub fn poll(&mut self, op_id: u64) -> Result<Option<Result<(), Abort>>, BoardError> {
        self.talk.poll(op_id).map_err(|problem| self.error(problem))
    }

    /// Waits for a call, at most `patience`; its result on the board.
    ///
    /// # Errors
    /// If the board refuses the call, is gone, or says nothing in time.
    pub fn finish(
        &mut self,
        op_id: u64,
        patience: Duration,
    ) -> Result<Result<(), Abort>, BoardError> {
        self.talk.finish(op_id, patience).map_err(|problem| self.error(problem))
    }

    /// How the board is doing.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn status(&mut self) -> Result<Status, BoardError> {
        self.talk.status().map_err(|problem| self.error(problem))
    }

    /// Writes into the board's tensor memory, which no call may be using there.
    ///
    /// # Errors
    /// [`Problem::Memory`].
    pub fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), BoardError> {
        let to = self.tensor(at.into(), bytes.len())?;
        // SAFETY: within the window's memory area, which only the board writes otherwise.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Reads from the board's tensor memory.
    ///
    /// # Errors
    /// [`Problem::Memory`].
    pub fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), BoardError> {
        let from = self.tensor(at.into(), bytes.len())?;
        // SAFETY: as for `write`.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn tensor(&self, at: u64, bytes: usize) -> Result<*mut u8, BoardError> {
        let (start, size) = self.memory;
        let fits = at.checked_add(bytes as u64).is_some_and(|end| end <= u64::from(size));
        let span = || self.region.window().span(start + at as usize, bytes);
        let span = fits.then(span).flatten();
        span.map(|s| s.as_ptr()).ok_or_else(|| self.error(Problem::Memory { at, bytes, size }))
    }

    pub(crate) fn error(&self, problem: Problem) -> BoardError {
        BoardError { board: self.name.clone(), problem }
    }
}

fn spawn(options: &Options, image: &Path, window: &Path, bytes: u64) -> Result<Process, Problem> {
    let command = options.machine.command(image, window, bytes, &options.args);
    Process::start(command, window.with_file_name("stderr"))
        .map_err(|error| options.machine.unstarted(error))
}
