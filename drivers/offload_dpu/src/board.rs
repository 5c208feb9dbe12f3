//! A board that has been started.

use crate::error::{BoardError, Problem};
use crate::image::Image;
use crate::keeper::{Keeper, Watch};
use crate::line::Line;
use crate::machine::Machine;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use unisono_core::route::Rank;
use unisono_core::wire::board::{ABI, Call, FromBoard, Identity, Join, Refusal, Status, ToBoard};
use unisono_core::wire::frame::Abort;
use unisono_driver::HostMemory;
use unisono_link_window::{Area, Coherent, Reading, Region, Shape, Window, WindowLink};

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
}

impl Options {
    /// Rings that suit most groups, no tensor memory, ten seconds for an answer.
    #[must_use]
    pub fn new(machine: &'static Machine, image: &Path, peers: u16) -> Self {
        Self {
            machine,
            image: image.to_owned(),
            peers,
            shape: Shape { channels: 2, units: 64, slots: 16, slot_bytes: 16 << 10 },
            memory: 0,
            patience: Duration::from_secs(10),
            silence: Duration::from_secs(10),
        }
    }

    fn areas(&self) -> Vec<Area> {
        let pipes = [Area::ToBoard(CONTROL), Area::ToHost(CONTROL), Area::Log(LOG)];
        let links = (0..self.peers).map(|peer| Area::Link { peer, shape: self.shape });
        pipes.into_iter().chain(links).chain([Area::Memory(self.memory)]).collect()
    }
}

/// A board that runs. Dropping it ends it.
pub struct Board {
    name: String,
    patience: Duration,
    region: Region,
    line: Line,
    identity: Identity,
    /// Where its tensor memory is.
    memory: (usize, u32),
    member: bool,
    /// Results of calls that nobody has asked for yet.
    over: BTreeMap<u64, Result<Result<(), Abort>, Refusal>>,
    keeper: Keeper,
    /// Holds the window's file.
    _folder: TempDir,
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
        let image = Image::read(options.machine, &options.image)?;
        let build = image.build();
        let areas = options.areas();
        let bytes = Region::needed(&areas)?.next_power_of_two().max(WINDOW_MIN);
        let window = |why: std::io::Error| Problem::Window { bytes, why: why.to_string() };
        let folder = folder().map_err(window)?;
        let file = folder.path().join("window");
        let region = Region::format(Window::create(&file, bytes).map_err(window)?, &areas)?;
        let line = Line::new(&region)?;
        let memory = region.find(|area| matches!(area, Area::Memory(_)))?.1;
        let stderr = folder.path().join("stderr");
        let child = spawn(options, &file, &stderr, bytes)?;
        let keeper = Keeper::new(Watch {
            name: options.machine.name.to_owned(),
            child,
            region: region.clone(),
            table: image.into_table(),
            stderr,
            silence: options.silence,
        });
        let mut board = Self {
            name: options.machine.name.to_owned(),
            patience: options.patience,
            region,
            line,
            identity: Identity::default(),
            memory: (memory, options.memory),
            member: false,
            over: BTreeMap::new(),
            keeper,
            _folder: folder,
        };
        board.greet(build)?;
        Ok(board)
    }

    /// Waits until somebody is there, and finds out who.
    fn greet(&mut self, build: u64) -> Result<(), Problem> {
        const TO: &str = "a greeting";
        let start = Instant::now();
        loop {
            match self.region.other_abi() {
                Some(unisono_link_window::ABI) => break,
                Some(theirs) => return Err(unisono_link_window::RegionError::Abi { theirs }.into()),
                None => self.rest(TO, start)?,
            }
        }
        let session = std::process::id();
        let (answer, _) = self.ask(&ToBoard::Greet { session, abi: ABI }, TO)?;
        match answer {
            FromBoard::Hello { abi, .. } if abi != ABI => {
                return Err(Problem::Abi { theirs: abi, ours: ABI });
            }
            FromBoard::Hello { build: theirs, .. } if theirs != build => {
                return Err(Problem::Build { theirs, ours: build });
            }
            FromBoard::Hello { session: s, .. } if s == session => {}
            _ => return Err(Problem::Nonsense { to: TO }),
        }
        match self.ask(&ToBoard::Describe, "what it is")?.0 {
            FromBoard::Identity(identity) => self.identity = identity,
            _ => return Err(Problem::Nonsense { to: "what it is" }),
        }
        Ok(())
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

    /// Process id of its machine.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.keeper.pid()
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
        const TO: &str = "joining a group";
        if std::mem::take(&mut self.member) {
            self.ask(&ToBoard::Leave, "leaving a group")?;
        }
        let mut links = Vec::new();
        for &peer in peers {
            self.region.clear_link(peer)?;
            links.push(WindowLink::new(&self.region, peer, Reading::Copied, Coherent)?);
        }
        match self.ask(&ToBoard::Join(join), TO)?.0 {
            FromBoard::Member(Some(rank)) if rank == join.rank => {
                self.member = true;
                Ok(links)
            }
            _ => Err(Problem::Nonsense { to: TO }),
        }
    }

    /// Begins a call on the board. Whatever becomes of it, [`Board::finish`] tells.
    ///
    /// # Errors
    /// If the board cannot be reached.
    pub fn begin(&mut self, call: &Call) -> Result<(), BoardError> {
        self.say(&ToBoard::Call(call.clone()), &[]).map_err(|problem| self.error(problem))
    }

    /// Gives a call up on all members.
    ///
    /// # Errors
    /// If the board cannot be reached.
    pub fn cancel(&mut self, op_id: u64) -> Result<(), BoardError> {
        self.say(&ToBoard::Cancel { op_id }, &[]).map_err(|problem| self.error(problem))
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
        const TO: &str = "a call";
        let end = Instant::now() + patience;
        loop {
            if let Err(problem) = self.take_in() {
                return Err(self.error(problem));
            }
            if let Some(result) = self.over.remove(&op_id) {
                return result.map_err(|why| self.error(Problem::Refused(why)));
            }
            if let Some(why) = self.keeper.gone() {
                return Err(self.error(Problem::Gone(why)));
            }
            if Instant::now() > end {
                return Err(self.error(Problem::Mute { to: TO, after: patience }));
            }
            std::thread::sleep(NAP);
        }
    }

    /// How the board is doing.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn status(&mut self) -> Result<Status, BoardError> {
        match self.ask(&ToBoard::Status, "its status") {
            Ok((FromBoard::Status(status), _)) => Ok(status),
            Ok(_) => Err(self.error(Problem::Nonsense { to: "its status" })),
            Err(problem) => Err(self.error(problem)),
        }
    }

    /// Writes into the board's tensor memory, which no call may be using there.
    ///
    /// # Errors
    /// [`Problem::Memory`].
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), BoardError> {
        let to = self.tensor(at, bytes.len())?;
        // SAFETY: within the window's memory area, which only the board writes otherwise.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Reads from the board's tensor memory.
    ///
    /// # Errors
    /// [`Problem::Memory`].
    pub fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), BoardError> {
        let from = self.tensor(at, bytes.len())?;
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

    fn error(&self, problem: Problem) -> BoardError {
        BoardError { board: self.name.clone(), problem }
    }

    /// Sends a message.
    fn say(&mut self, message: &ToBoard, content: &[u8]) -> Result<(), Problem> {
        self.line.send(message, content).map_err(|_| Problem::Nonsense { to: "anything" })
    }

    /// Sends a message and waits for its answer.
    fn ask(
        &mut self,
        message: &ToBoard,
        to: &'static str,
    ) -> Result<(FromBoard, Vec<u8>), Problem> {
        self.say(message, &[])?;
        let start = Instant::now();
        loop {
            if let Some(answer) = self.take_in()? {
                return match answer {
                    (FromBoard::Refused { why, .. }, _) => Err(Problem::Refused(why)),
                    answer => Ok(answer),
                };
            }
            self.rest(to, start)?;
        }
    }

    /// Takes in what the board has said; the next message that is an answer.
    fn take_in(&mut self) -> Result<Option<(FromBoard, Vec<u8>)>, Problem> {
        let nonsense = |_| Problem::Nonsense { to: "anything" };
        self.line.push().map_err(nonsense)?;
        while let Some((message, content)) = self.line.pull().map_err(nonsense)? {
            match message {
                FromBoard::Done { op_id, result } => {
                    self.over.insert(op_id, Ok(result));
                }
                FromBoard::Refused { op_id: Some(op_id), why } => {
                    self.over.insert(op_id, Err(why));
                }
                answer => return Ok(Some((answer, content))),
            }
        }
        Ok(None)
    }

    /// Waits a little for an answer, unless the time is over or nobody is left to give it.
    fn rest(&self, to: &'static str, start: Instant) -> Result<(), Problem> {
        if let Some(why) = self.keeper.gone() {
            return Err(Problem::Gone(why));
        }
        if start.elapsed() > self.patience {
            return Err(Problem::Mute { to, after: self.patience });
        }
        std::thread::sleep(NAP);
        Ok(())
    }
}

/// Between two looks for an answer.
const NAP: Duration = Duration::from_micros(200);

/// A folder for the window: in memory if there is such a place.
fn folder() -> std::io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let builder = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("unisono-board-");
        builder
    };
    if memory.is_dir() { builder().tempdir_in(memory) } else { builder().tempdir() }
}

fn spawn(options: &Options, window: &Path, stderr: &Path, bytes: u64) -> Result<Child, Problem> {
    let program = options.machine.program().to_owned();
    let start = |error| Problem::Start { program: program.clone(), error };
    let mut command = options.machine.command(&options.image, window, bytes);
    let stderr = File::create(stderr).map_err(start)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    command.spawn().map_err(start)
}
