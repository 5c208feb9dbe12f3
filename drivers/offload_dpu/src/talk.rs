//! The conversation with a board: requests and answers, and the calls that are over.

use crate::error::Problem;
use crate::keeper::no_sign_for;
use embedded_io::{Read, ReadReady, Write, WriteReady};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unisono_core::route::Rank;
use unisono_core::wire::board::{
    self, ABI, CONTENT_MAX, Call, FromBoard, Identity, Join, MESSAGE_MAX, Refusal, Status, ToBoard,
};
use unisono_core::wire::cobs::{CobsReader, cobs_encode, cobs_max};
use unisono_core::wire::frame::Abort;

const WHOLE: usize = MESSAGE_MAX + CONTENT_MAX;
const CODED: usize = cobs_max(WHOLE);
/// Between two looks for an answer.
const NAP: Duration = Duration::from_micros(200);

/// What the conversation has to know of the board's machine.
pub trait Alive {
    /// Why the board is gone, if it is.
    fn gone(&self) -> Option<String>;

    /// The board does not answer: it is to be given up.
    fn mute(&self);
}

/// The host's end of the control line, and what was said on it.
pub struct Talk<IO, A> {
    io: IO,
    alive: A,
    patience: Duration,
    /// Bytes that have not found room yet.
    out: VecDeque<u8>,
    /// A message that has not come in whole.
    part: Vec<u8>,
    /// Results of calls that nobody has asked for yet.
    over: BTreeMap<u64, Result<Result<(), Abort>, Refusal>>,
    pulse: Option<Pulse>,
    /// Ends all waiting.
    stop: Arc<AtomicBool>,
}

/// Signs of life of a board that shows none by itself: it is asked how it is doing while calls are
/// waited for.
struct Pulse {
    /// How long an answer may take.
    silence: Duration,
    /// When the board has last said something.
    heard: Instant,
    /// When it was asked, until it has answered.
    asked: Option<Instant>,
}

/// A board is asked so many times within the time that it may be silent.
const PULSES: u32 = 4;

impl<IO: Read + ReadReady + Write + WriteReady, A: Alive> Talk<IO, A> {
    /// A conversation in which each answer may take so long.
    pub fn new(io: IO, alive: A, patience: Duration) -> Self {
        let (out, over) = (VecDeque::new(), BTreeMap::new());
        Self { io, alive, patience, out, part: Vec::new(), over, pulse: None, stop: Arc::default() }
    }

    /// Once this flag is set, nothing is waited for.
    pub fn stop_at(mut self, stop: &Arc<AtomicBool>) -> Self {
        self.stop = stop.clone();
        self
    }

    /// From now on the board is gone if it gives no answer for so long.
    pub fn expect_pulse(&mut self, silence: Duration) {
        self.patience = self.patience.min(silence);
        self.pulse = Some(Pulse { silence, heard: Instant::now(), asked: None });
    }

    /// The board's machine.
    pub const fn alive(&self) -> &A {
        &self.alive
    }

    /// Finds out who is there, and with which image; it has to be this one if one is given.
    pub fn greet(&mut self, build: Option<u64>) -> Result<(u64, Identity), Problem> {
        const TO: &str = "a greeting";
        let session = std::process::id();
        let build = match self.ask(&ToBoard::Greet { session, abi: ABI }, &[], TO)?.0 {
            FromBoard::Hello { abi, .. } if abi != ABI => {
                return Err(Problem::Abi { theirs: abi, ours: ABI });
            }
            FromBoard::Hello { build: theirs, session: s, .. } if s == session => match build {
                Some(ours) if ours != theirs => return Err(Problem::Build { theirs, ours }),
                _ => theirs,
            },
            _ => return Err(Problem::Nonsense { to: TO }),
        };
        match self.ask(&ToBoard::Describe, &[], "what it is")?.0 {
            FromBoard::Identity(identity) => Ok((build, identity)),
            _ => Err(Problem::Nonsense { to: "what it is" }),
        }
    }

    /// Tells where a member of the next group is. There is no answer: joining fails without it.
    pub fn peer(&mut self, rank: Rank, at: SocketAddrV4) -> Result<(), Problem> {
        self.say(&ToBoard::Peer { rank, at }, &[])
    }

    /// Makes the board a member of a group.
    pub fn join(&mut self, join: Join) -> Result<(), Problem> {
        const TO: &str = "joining a group";
        match self.ask(&ToBoard::Join(join), &[], TO)?.0 {
            FromBoard::Member(Some(rank)) if rank == join.rank => Ok(()),
            _ => Err(Problem::Nonsense { to: TO }),
        }
    }

    /// Lets the board leave its group.
    pub fn leave(&mut self) -> Result<(), Problem> {
        const TO: &str = "leaving a group";
        match self.ask(&ToBoard::Leave, &[], TO)?.0 {
            FromBoard::Member(None) => Ok(()),
            _ => Err(Problem::Nonsense { to: TO }),
        }
    }

    /// Begins a call.
    pub fn begin(&mut self, call: &Call) -> Result<(), Problem> {
        self.say(&ToBoard::Call(call.clone()), &[])
    }

    /// Gives a call up.
    pub fn cancel(&mut self, op_id: u64) -> Result<(), Problem> {
        self.say(&ToBoard::Cancel { op_id }, &[])
    }

    /// The result of a call if it is over.
    pub fn poll(&mut self, op_id: u64) -> Result<Option<Result<(), Abort>>, Problem> {
        self.take_in()?;
        match self.over.remove(&op_id) {
            Some(result) => result.map(Some).map_err(Problem::Refused),
            None => match self.alive.gone() {
                Some(why) => Err(Problem::Gone(why)),
                None => self.feel_pulse().map(|()| None),
            },
        }
    }

    /// Asks the board how it is doing, if it has not said anything for a while.
    fn feel_pulse(&mut self) -> Result<(), Problem> {
        let Some(Pulse { silence, heard, asked }) = &mut self.pulse else { return Ok(()) };
        match asked {
            Some(asked) if asked.elapsed() > *silence => {
                let why = no_sign_for(*silence);
                self.alive.mute();
                Err(Problem::Gone(why))
            }
            None if heard.elapsed() > *silence / PULSES => {
                *asked = Some(Instant::now());
                self.say(&ToBoard::Status, &[])
            }
            _ => Ok(()),
        }
    }

    /// Waits for a call.
    pub fn finish(&mut self, op_id: u64, patience: Duration) -> Result<Result<(), Abort>, Problem> {
        let end = Instant::now() + patience;
        loop {
            if let Some(result) = self.poll(op_id)? {
                return Ok(result);
            }
            self.rest("a call", end, patience)?;
        }
    }

    /// How the board is doing.
    pub fn status(&mut self) -> Result<Status, Problem> {
        match self.ask(&ToBoard::Status, &[], "its status")?.0 {
            FromBoard::Status(status) => Ok(status),
            _ => Err(Problem::Nonsense { to: "its status" }),
        }
    }

    /// Writes into the board's tensor memory, over the line.
    pub fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), Problem> {
        const TO: &str = "a write";
        let mut at = at;
        for part in bytes.chunks(CONTENT_MAX) {
            let want = at + part.len() as u32;
            match self.ask(&ToBoard::Write { at }, part, TO)?.0 {
                FromBoard::Written { upto } if upto == want => at = want,
                _ => return Err(Problem::Nonsense { to: TO }),
            }
        }
        Ok(())
    }

    /// Reads from the board's tensor memory, over the line.
    pub fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), Problem> {
        const TO: &str = "a read";
        let mut at = at;
        for part in bytes.chunks_mut(CONTENT_MAX) {
            let bytes = part.len() as u16;
            match self.ask(&ToBoard::Read { at, bytes }, &[], TO)? {
                (FromBoard::Content { at: from }, content)
                    if from == at && content.len() == part.len() =>
                {
                    part.copy_from_slice(&content);
                }
                _ => return Err(Problem::Nonsense { to: TO }),
            }
            at += u32::from(bytes);
        }
        Ok(())
    }

    /// Sends a message.
    fn say(&mut self, message: &ToBoard, content: &[u8]) -> Result<(), Problem> {
        let mut whole = [0; WHOLE];
        let mut coded = [0; CODED];
        // Room for the largest message and its encoding.
        let len = board::encode(message, content, &mut whole).unwrap_or(0);
        let len = cobs_encode(&whole[..len], &mut coded).unwrap_or(0);
        self.out.extend(&coded[..len]);
        self.push()
    }

    /// Moves what goes out.
    fn push(&mut self) -> Result<(), Problem> {
        let broken = |_| Problem::Line;
        while !self.out.is_empty() && self.io.write_ready().map_err(broken)? {
            let put = self.io.write(self.out.make_contiguous()).map_err(broken)?;
            self.out.drain(..put);
        }
        Ok(())
    }

    /// Sends a message and waits for its answer.
    fn ask(
        &mut self,
        message: &ToBoard,
        content: &[u8],
        to: &'static str,
    ) -> Result<(FromBoard, Vec<u8>), Problem> {
        self.say(message, content)?;
        let end = Instant::now() + self.patience;
        loop {
            match self.take_in()? {
                Some((FromBoard::Refused { why, .. }, _)) => return Err(Problem::Refused(why)),
                Some(answer) => return Ok(answer),
                None => self.rest(to, end, self.patience).inspect_err(|problem| {
                    // Without this the ranks would wait for it, too.
                    if self.pulse.is_some() && matches!(problem, Problem::Mute { .. }) {
                        self.alive.mute();
                    }
                })?,
            }
        }
    }

    /// Takes in what the board has said; the next message that is an answer.
    fn take_in(&mut self) -> Result<Option<(FromBoard, Vec<u8>)>, Problem> {
        self.push()?;
        while let Some((message, content)) = self.pull()? {
            let pulse = self.pulse.as_mut();
            let felt = pulse.and_then(|pulse| {
                pulse.heard = Instant::now();
                pulse.asked.take_if(|_| matches!(message, FromBoard::Status(_)))
            });
            match message {
                // Answers come in the order of their questions, and this was asked first.
                FromBoard::Status(_) if felt.is_some() => {}
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

    /// The next message that has come in whole. Bytes that are none are skipped: a board that has
    /// just been started may have an old line.
    fn pull(&mut self) -> Result<Option<(FromBoard, Vec<u8>)>, Problem> {
        while self.io.read_ready().map_err(|_| Problem::Line)? {
            let mut byte = [0];
            if self.io.read(&mut byte).map_err(|_| Problem::Line)? == 0 {
                return Ok(None);
            }
            self.part.push(byte[0]);
            if byte[0] != 0 {
                // Longer than any message is noise; its end will be found all the same.
                self.part.truncate(CODED);
                continue;
            }
            let mut room = [0; CODED];
            let mut reader = CobsReader::new(&mut room);
            let message = reader.next(&mut &self.part[..]).and_then(|bytes| {
                let (message, content) = board::decode(bytes).ok()?;
                Some((message, content.to_vec()))
            });
            self.part.clear();
            if message.is_some() {
                return Ok(message);
            }
        }
        Ok(None)
    }

    /// Waits a little for an answer, unless the time is over or nobody is left to give it.
    pub fn rest(&self, to: &'static str, end: Instant, after: Duration) -> Result<(), Problem> {
        if let Some(why) = self.alive.gone() {
            return Err(Problem::Gone(why));
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(Problem::Interrupted { to });
        }
        if Instant::now() > end {
            return Err(Problem::Mute { to, after });
        }
        std::thread::sleep(NAP);
        Ok(())
    }
}
