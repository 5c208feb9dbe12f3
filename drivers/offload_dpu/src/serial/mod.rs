//! Boards that are reached over serial lines only: one for commands, one for all links, one for the
//! log.

mod stream;

use crate::error::{BoardError, Problem};
use crate::folder::Folder;
use crate::image::Image;
use crate::keeper::{Keeper, Signs, Watch};
use crate::machine::Machine;
use crate::process::Process;
use crate::talk::Talk;
use std::io::Read as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use unisono_core::reliable::{Config, Side};
use unisono_core::route::Rank;
use unisono_core::wire::board::{Call, Identity, Join, Status};
use unisono_core::wire::frame::Abort;
use unisono_driver::{Clock, HostMemory};
use unisono_link_packet::{Channel, HostBytes, ReliableLink, session};
use unisono_link_serial::{Line, Port};

pub use stream::Stream;

/// What the firmware of boards with serial lines has: bytes of an encoded frame, of a packet, and
/// packets under way.
const LINE: usize = 256;
const MTU: usize = 252;
const PACKETS: usize = 4;
/// Frames of a link that wait here, and datagrams of all links that have come in.
const DEPTH: usize = 16;
const INBOX: usize = 64;

type Io = Stream<UnixStream>;
type LinkLine = Arc<Mutex<Line<Io, LINE, INBOX>>>;

/// The host's end of a link to a board.
pub type SerialLink<M> = ReliableLink<
    Port<LinkLine, Io, LINE, INBOX>,
    HostClock,
    HostBytes<M>,
    Vec<Channel<M, PACKETS, MTU, DEPTH>>,
    PACKETS,
    MTU,
    DEPTH,
>;

/// Time since it was made.
#[derive(Clone, Copy, Debug)]
pub struct HostClock(Instant);

impl HostClock {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for HostClock {
    fn now(&self) -> unisono_core::Instant {
        let nanos = self.0.elapsed().as_nanos();
        unisono_core::Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// How a board is to be started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine.
    pub machine: &'static Machine,
    /// Its image.
    pub image: PathBuf,
    /// More arguments for the machine.
    pub args: Vec<String>,
    /// How long an answer may take, the first one included.
    pub patience: Duration,
    /// How long the board may give no answer once it runs.
    pub silence: Duration,
    /// Once it is set, nothing of the board is waited for.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// Ten seconds for an answer.
    #[must_use]
    pub fn new(machine: &'static Machine, image: &Path) -> Self {
        let patience = Duration::from_secs(10);
        let (args, stop, silence) = (Vec::new(), Arc::default(), patience);
        Self { machine, image: image.to_owned(), args, patience, silence, stop }
    }
}

/// A board with serial lines that runs. Dropping it ends it.
pub struct SerialBoard {
    name: String,
    talk: Talk<Io, Keeper>,
    links: LinkLine,
    identity: Identity,
    clock: HostClock,
    silence: Duration,
    /// Holds the sockets.
    _folder: Folder,
}

/// The log line, and the line that is to be closed when the board is gone.
struct SerialSigns {
    log: UnixStream,
    links: LinkLine,
}

impl Signs for SerialSigns {
    fn log(&mut self, into: &mut [u8]) -> usize {
        self.log.read(into).unwrap_or(0)
    }

    fn beats(&self) -> Option<u32> {
        None
    }

    fn close(&self) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).close();
    }
}

impl SerialBoard {
    /// Starts a board and asks it what it is.
    ///
    /// # Errors
    /// Whatever keeps it from being used.
    pub fn start(options: &Options) -> Result<Self, BoardError> {
        let name = options.machine.name.to_owned();
        Self::try_start(options).map_err(|problem| BoardError { board: name, problem })
    }

    fn try_start(options: &Options) -> Result<Self, Problem> {
        let image = Image::read(options.machine, &options.image)?;
        let build = image.build();
        let start = |error| options.machine.unstarted(error);
        let folder = Folder::new().map_err(start)?;
        let (process, [control, links, log]) = connect(options, folder.path()).map_err(start)??;
        let links = Arc::new(Mutex::new(Line::new(Stream::new(links))));
        let keeper = Keeper::new(Watch {
            name: options.machine.name.to_owned(),
            process: Some(process),
            signs: Box::new(SerialSigns { log, links: links.clone() }),
            silence: options.silence,
        })?;
        keeper.read_log(image.into_table());
        let mut talk =
            Talk::new(Stream::new(control), keeper, options.patience).stop_at(&options.stop);
        let (_, identity) = talk.greet(Some(build))?;
        // From now on: to boot takes longer than to answer.
        talk.expect_pulse(options.silence);
        let clock = HostClock::start();
        let (name, silence) = (options.machine.name.to_owned(), options.silence);
        Ok(Self { name, talk, links, identity, clock, silence, _folder: folder })
    }

    /// What the board is and can do.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Process id of its machine.
    #[must_use]
    pub const fn pid(&self) -> Option<u32> {
        self.talk.alive().pid()
    }

    /// Makes the board a member of a group; returns this side's ends of its links to `peers`, in
    /// their order. Ends of an earlier group must be gone.
    ///
    /// # Errors
    /// If the board refuses.
    pub fn join<M: HostMemory>(
        &mut self,
        join: Join,
        peers: &[Rank],
    ) -> Result<Vec<SerialLink<M>>, BoardError> {
        self.talk.join(join).map_err(|problem| self.error(problem))?;
        peers.iter().map(|&peer| self.link(join, peer)).collect()
    }

    /// The end of `peer` of its link to the board.
    fn link<M: HostMemory>(&self, join: Join, peer: Rank) -> Result<SerialLink<M>, BoardError> {
        let mut config =
            Config::new(session(join.epoch, join.rank, peer), Side::of(peer, join.rank));
        config.rto_initial = Duration::from_millis(200);
        config.rto_min = Duration::from_millis(20);
        config.tries = 20;
        config.silence = self.silence;
        let refused = || self.error(Problem::Nonsense { to: "a link to a member below 128" });
        let number = u8::try_from(peer).map_err(|_| refused())?;
        let port = Port::open(self.links.clone(), number);
        let channels = (0..self.identity.calls).map(|_| Channel::new()).collect();
        ReliableLink::new(port, self.clock, HostBytes::new(), channels, config)
            .map_err(|_| refused())
    }

    /// Begins a call on the board. Whatever becomes of it, [`SerialBoard::finish`] tells.
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

    /// Lets the board leave its group.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn leave(&mut self) -> Result<(), BoardError> {
        self.talk.leave().map_err(|problem| self.error(problem))
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
    /// If the board refuses or does not answer.
    pub fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), BoardError> {
        self.talk.write(at, bytes).map_err(|problem| self.error(problem))
    }

    /// Reads from the board's tensor memory.
    ///
    /// # Errors
    /// If the board refuses or does not answer.
    pub fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), BoardError> {
        self.talk.read(at, bytes).map_err(|problem| self.error(problem))
    }

    fn error(&self, problem: Problem) -> BoardError {
        BoardError { board: self.name.clone(), problem }
    }
}

/// Starts the machine and waits until it has connected its UARTs. The outer error is the system's.
fn connect(
    options: &Options,
    folder: &Path,
) -> std::io::Result<Result<(Process, [UnixStream; 3]), Problem>> {
    let paths = ["control", "links", "log"].map(|name| folder.join(name));
    let listeners = paths.iter().map(UnixListener::bind).collect::<Result<Vec<_>, _>>()?;
    let mut command = options.machine.serial_command(&options.image, &paths);
    command.args(&options.args);
    let mut process = Process::start(command, folder.join("stderr"))?;
    let mut streams = Vec::new();
    let start = Instant::now();
    for listener in &listeners {
        listener.set_nonblocking(true)?;
        let stream = loop {
            if let Ok((stream, _)) = listener.accept() {
                break stream;
            }
            if let Some(status) = process.child.try_wait()? {
                let why = format!("its machine ended with {status}; {}", process.said().trim());
                return Ok(Err(Problem::Gone(why)));
            }
            let to = "being started";
            if options.stop.load(Ordering::Relaxed) {
                return Ok(Err(Problem::Interrupted { to }));
            }
            if start.elapsed() > options.patience {
                let after = options.patience;
                return Ok(Err(Problem::Mute { to, after }));
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        stream.set_nonblocking(true)?;
        streams.push(stream);
    }
    // One for each of the three paths.
    let streams = streams.try_into().map_err(|_| std::io::ErrorKind::ConnectionAborted)?;
    Ok(Ok((process, streams)))
}
