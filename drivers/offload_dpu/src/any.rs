//! Any board, however it is reached.

use crate::board::{self, Board};
use crate::error::BoardError;
use crate::machine::{Line, Machine};
use crate::serial::{self, SerialBoard, SerialLink};
use crate::udp::{UdpBoard, UdpLink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use unisono_core::route::Rank;
use unisono_core::wire::board::{Call, Identity, Join};
use unisono_core::wire::frame::Abort;
use unisono_driver::{Either, HostPtr};
use unisono_link_window::{Coherent, WindowLink};

/// The host's end of a link to a board of any kind.
pub type BoardLink =
    Either<WindowLink<HostPtr, Coherent>, Either<SerialLink<HostPtr>, UdpLink<HostPtr>>>;

/// A board that runs. See [`Board`] for what the calls mean and what can go wrong.
pub trait AnyBoard: Send {
    /// What the board is and can do.
    fn identity(&self) -> &Identity;

    /// Process id of its machine, if it was started here.
    fn pid(&self) -> Option<u32>;

    /// Do its links carry packets, that is, do they have to be polled between calls?
    fn has_packets(&self) -> bool;

    /// Makes the board a member of a group; returns this side's ends of its links.
    ///
    /// # Errors
    /// If the board refuses or cannot be reached.
    fn join(&mut self, join: Join, peers: &[Rank]) -> Result<Vec<BoardLink>, BoardError>;

    /// Begins a call on the board.
    ///
    /// # Errors
    /// If the board cannot be reached.
    fn begin(&mut self, call: &Call) -> Result<(), BoardError>;

    /// Gives a call up on all members.
    ///
    /// # Errors
    /// If the board cannot be reached.
    fn cancel(&mut self, op_id: u64) -> Result<(), BoardError>;

    /// The result of a call on the board, once; `None` while it runs.
    ///
    /// # Errors
    /// If the board refuses the call, or is gone.
    fn poll(&mut self, op_id: u64) -> Result<Option<Result<(), Abort>>, BoardError>;

    /// Waits for a call, at most `patience`.
    ///
    /// # Errors
    /// If the board refuses the call, is gone, or says nothing in time.
    fn finish(&mut self, op_id: u64, patience: Duration) -> Result<Result<(), Abort>, BoardError>;

    /// Writes into the board's tensor memory, which no call may be using there.
    ///
    /// # Errors
    /// If the bytes do not lie there, or the board cannot be reached.
    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), BoardError>;

    /// Reads from the board's tensor memory.
    ///
    /// # Errors
    /// As for [`AnyBoard::write`].
    fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), BoardError>;
}

/// `$calls`: what makes the calls of a board, which is not always what makes its links.
macro_rules! any_board {
    ($board:ty, $link:expr, $packets:literal, $this:ident => $calls:expr) => {
        impl AnyBoard for $board {
            fn identity(&self) -> &Identity {
                self.identity()
            }

            fn pid(&self) -> Option<u32> {
                self.pid()
            }

            fn has_packets(&self) -> bool {
                $packets
            }

            fn join(&mut self, join: Join, peers: &[Rank]) -> Result<Vec<BoardLink>, BoardError> {
                Ok(self.join(join, peers)?.into_iter().map($link).collect())
            }

            fn begin(&mut self, call: &Call) -> Result<(), BoardError> {
                let $this = self;
                $calls.begin(call)
            }

            fn cancel(&mut self, op_id: u64) -> Result<(), BoardError> {
                let $this = self;
                $calls.cancel(op_id)
            }

            fn poll(&mut self, op_id: u64) -> Result<Option<Result<(), Abort>>, BoardError> {
                let $this = self;
                $calls.poll(op_id)
            }

            fn finish(
                &mut self,
                op_id: u64,
                patience: Duration,
            ) -> Result<Result<(), Abort>, BoardError> {
                let $this = self;
                $calls.finish(op_id, patience)
            }

            fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), BoardError> {
                let $this = self;
                $calls.write(at, bytes)
            }

            fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), BoardError> {
                let $this = self;
                $calls.read(at, bytes)
            }
        }
    };
}

any_board!(Board, Either::A, false, board => board);
any_board!(SerialBoard, |link| Either::B(Either::A(link)), true, board => board);
any_board!(UdpBoard, |link| Either::B(Either::B(link)), true, board => board.board());

/// What a group needs of a board when it is started.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Members that it has links to are below this number.
    pub peers: u16,
    /// Bytes of tensor memory, for the role of a rank; boards that have memory of their own take
    /// that.
    pub memory: u32,
    /// How long an answer may take.
    pub patience: Duration,
    /// How long the board may show no sign of life.
    pub silence: Duration,
}

/// Starts a board by whatever line its machine has.
///
/// # Errors
/// Whatever keeps it from being used.
pub fn start(
    machine: &'static Machine,
    image: &Path,
    setup: Setup,
) -> Result<Box<dyn AnyBoard>, BoardError> {
    start_unless(&Arc::default(), machine, image, setup)
}

/// The same; once `stop` is set, nothing is waited for any more.
///
/// # Errors
/// As for [`start`], and [`Problem::Interrupted`](crate::Problem::Interrupted).
pub fn start_unless(
    stop: &Arc<AtomicBool>,
    machine: &'static Machine,
    image: &Path,
    setup: Setup,
) -> Result<Box<dyn AnyBoard>, BoardError> {
    let Setup { peers, memory, patience, silence } = setup;
    let stop = stop.clone();
    let of_window = board::Options::new(machine, image, peers);
    match machine.line {
        Line::Window => {
            let options = board::Options { memory, patience, silence, stop, ..of_window };
            Ok(Box::new(Board::start(&options)?))
        }
        Line::Udp => {
            let options = board::Options { memory, patience, silence, stop, ..of_window };
            Ok(Box::new(UdpBoard::start(&options)?))
        }
        Line::Serial => {
            let options = serial::Options::new(machine, image);
            let options = serial::Options { patience, silence, stop, ..options };
            Ok(Box::new(SerialBoard::start(&options)?))
        }
    }
}
