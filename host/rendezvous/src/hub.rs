//! What rank 0 keeps for the others: it takes ranks in, and passes their blobs around.
//!
//! One thread decides everything, by events; each member has a thread that reads from it.

use crate::door::Door;
use crate::error::{Error, Failure};
use crate::handshake::{self, Identity};
use crate::secret::{TAG, random};
use crate::socket::{Listener, Socket};
use crate::wire::{self, Down, Hello, NOTE_MAX, NOTES_MAX, Purpose, UP_MAX, Up};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Refused strangers that are remembered: an error names them, and must stay readable.
const REFUSED_MAX: usize = 8;

/// How long a hub that has failed stays for those who have not heard why.
const FAREWELL: Duration = Duration::from_secs(1);

/// What the threads tell the one that decides.
enum Event {
    /// A rank has proved itself.
    Came { hello: Hello, socket: Socket, news: SyncSender<Event> },
    /// Somebody has not.
    Turned(String),
    /// A rank gives a blob.
    Blob { connection: u64, rank: u32, round: u32, blob: Vec<u8> },
    /// A rank says something that belongs to no round.
    Note { connection: u64, rank: u32, text: Vec<u8> },
    /// A connection has ended.
    Gone { connection: u64, rank: u32 },
    /// A rank's lease has ended, where ranks have such.
    Lapsed { rank: u32, early: bool },
    /// Rank 0 needs it no more.
    Stop,
}

/// Called when a rank's lease has ended; with whether that was given before rank 0's own.
pub type Lapsed = Box<dyn Fn(u32, bool) + Send + Sync>;

/// The hub's threads; they end when it is dropped.
pub struct Hub {
    door: Option<Door>,
    thread: Option<JoinHandle<()>>,
    news: SyncSender<Event>,
}

impl Hub {
    /// Starts it. `at` is where others are told that it is; ranks have until `patience` is over.
    pub fn start(
        listener: Listener,
        me: Arc<Identity>,
        at: String,
        patience: Duration,
    ) -> Result<Self, Error> {
        let (news, events) = sync_channel(64);
        let desk = Desk::new(&me, at, patience)?;
        let thread = thread::Builder::new()
            .name("unisono hub".into())
            .spawn(move || desk.run(&events))
            .map_err(Error::io("starting the rendezvous at rank 0"))?;
        let sender = news.clone();
        let guest = move |result: Result<(Hello, Socket), String>| {
            let news = sender.clone();
            let event = match result {
                Ok((hello, socket)) => Event::Came { hello, socket, news },
                Err(why) => Event::Turned(why),
            };
            // Whoever comes when the hub has ended finds the connection closed.
            let _ = sender.send(event);
        };
        let door = Door::open(listener, me, Arc::new(guest));
        // A door that does not open ends the thread by this drop.
        let mut hub = Self { door: None, thread: Some(thread), news };
        hub.door = Some(door?);
        Ok(hub)
    }

    /// What tells it of leases.
    pub fn lapsed(&self) -> Lapsed {
        let news = self.news.clone();
        Box::new(move |rank, early| {
            // A hub that has ended awaits nobody.
            let _ = news.send(Event::Lapsed { rank, early });
        })
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        drop(self.door.take());
        let _ = self.news.send(Event::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A rank that has come.
struct Member {
    connection: u64,
    socket: Socket,
}

/// How far the group is.
enum Phase {
    /// Not all have come.
    Joining,
    /// All have.
    Complete,
    /// Nothing works any more.
    Failed(Failure),
}

/// The state of the hub.
struct Desk {
    at: String,
    nonce: [u8; TAG],
    started: Instant,
    patience: Duration,
    deadline: Option<Instant>,
    phase: Phase,
    members: Vec<Option<Member>>,
    connections: u64,
    refused: Vec<String>,
    round: u32,
    blobs: Vec<Option<Vec<u8>>>,
    /// Notes that have been passed on since the last round.
    notes: usize,
}

impl Desk {
    fn new(me: &Identity, at: String, patience: Duration) -> Result<Self, Error> {
        let started = Instant::now();
        Ok(Self {
            at,
            nonce: random()?,
            started,
            patience,
            deadline: Some(started + patience),
            phase: Phase::Joining,
            members: (0..me.size).map(|_| None).collect(),
            connections: 0,
            refused: Vec::new(),
            round: 0,
            blobs: vec![None; me.size as usize],
            notes: 0,
        })
    }

    fn run(mut self, events: &Receiver<Event>) {
        loop {
            let event = match self.deadline {
                Some(at) => events.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::Came { hello, socket, news }) => self.came(&hello, socket, news),
                Ok(Event::Turned(who)) => self.remember(who),
                Ok(Event::Blob { connection, rank, round, blob }) => {
                    if self.is_member(connection, rank) {
                        self.blob(rank, round, blob);
                    }
                }
                Ok(Event::Note { connection, rank, text }) => {
                    if self.is_member(connection, rank) {
                        self.note(rank, &text);
                    }
                }
                Ok(Event::Gone { connection, rank }) => {
                    if self.is_member(connection, rank) {
                        self.gone(rank);
                    }
                }
                Ok(Event::Lapsed { rank, early }) => self.lapsed(rank, early),
                Err(RecvTimeoutError::Timeout) => self.too_late(),
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if matches!(self.phase, Phase::Failed(_)) {
            self.let_go(events);
        }
        // Those who read from them end too.
        self.members.iter().flatten().for_each(|m| m.socket.shutdown());
    }

    /// Waits a moment until all have heard of the failure, and are gone: a connection that is
    /// closed with something unread in it takes with it what the other side has not read yet.
    fn let_go(&mut self, events: &Receiver<Event>) {
        let until = Instant::now() + FAREWELL;
        while self.members.iter().skip(1).any(Option::is_some) {
            match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Gone { connection, rank }) if self.is_member(connection, rank) => {
                    self.members[rank as usize] = None;
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }

    fn is_member(&self, connection: u64, rank: u32) -> bool {
        let member = self.members.get(rank as usize).and_then(Option::as_ref);
        member.is_some_and(|m| m.connection == connection)
    }

    fn remember(&mut self, who: String) {
        if self.refused.contains(&who) {
            return;
        }
        // The last ones say most about who is missing now.
        if self.refused.len() == REFUSED_MAX {
            self.refused.remove(0);
        }
        self.refused.push(who);
    }

    fn came(&mut self, hello: &Hello, mut socket: Socket, news: SyncSender<Event>) {
        let size = self.members.len();
        let (rank, their_size) = (hello.rank, hello.size);
        let mut failed = None;
        let why = if hello.purpose != Purpose::Join {
            "this is rank 0's rendezvous, not a peer's address".to_owned()
        } else if let Phase::Failed(failure) = &self.phase {
            failure.to_string()
        } else if their_size as usize != size || rank as usize >= size {
            let what = format!("rank {rank} says the group has {their_size} ranks, rank 0 {size}");
            failed.insert(what).clone()
        } else if let Some(member) = &self.members[rank as usize] {
            let places = (member.socket.peer(), socket.peer());
            let what = format!("rank {rank} is there twice: {} and {}", places.0, places.1);
            // A complete group is not disturbed.
            if matches!(self.phase, Phase::Joining) { failed.insert(what).clone() } else { what }
        } else {
            self.take_in(hello, socket, news);
            return;
        };
        let _ = handshake::refuse(&mut socket, &why);
        self.remember(format!("{}: {why}", socket.peer()));
        if let Some(what) = failed {
            self.fail(Failure::Disagree { what });
        }
    }

    fn take_in(&mut self, hello: &Hello, mut socket: Socket, news: SyncSender<Event>) {
        let (rank, connection) = (hello.rank, self.connections);
        self.connections += 1;
        // Whoever is gone by now will come again, or be missed.
        let Ok(reader) = socket.try_clone() else { return };
        let name = format!("unisono rank {rank}");
        let read = move || read(reader, connection, rank, &news);
        if handshake::welcome(&mut socket).is_err()
            || thread::Builder::new().name(name).spawn(read).is_err()
        {
            return;
        }
        self.members[rank as usize] = Some(Member { connection, socket });
        // A group is over once one of its ranks gives up: then all hear why.
        let patience = Instant::now().checked_add(Duration::from_millis(hello.patience_ms));
        self.deadline = self.deadline.into_iter().chain(patience).min();
        if self.members.iter().all(Option::is_some) {
            self.phase = Phase::Complete;
            self.deadline = None;
            self.tell(&Down::Complete { nonce: self.nonce });
        }
    }

    fn blob(&mut self, rank: u32, round: u32, blob: Vec<u8>) {
        let slot = &mut self.blobs[rank as usize];
        if !matches!(self.phase, Phase::Complete) || round != self.round || slot.is_some() {
            let what = format!("rank {rank} is at round {round}, others at {}", self.round);
            return self.fail(Failure::Disagree { what });
        }
        *slot = Some(blob);
        if let Some(gone) = self.members.iter().position(Option::is_none) {
            return self.fail(Failure::Gone { rank: gone as u32 });
        }
        self.deadline.get_or_insert_with(|| Instant::now() + self.patience);
        if self.blobs.iter().all(Option::is_some) {
            let blobs = std::mem::replace(&mut self.blobs, vec![None; self.members.len()]);
            self.deadline = None;
            self.round += 1;
            self.notes = 0;
            self.tell(&Down::Gathered(blobs.iter().flatten().map(Vec::as_slice).collect()));
        }
    }

    /// Passes a note on. What is too much is dropped: nobody depends on a note.
    fn note(&mut self, rank: u32, text: &[u8]) {
        if matches!(self.phase, Phase::Complete) && self.notes < NOTES_MAX {
            self.notes += 1;
            let text = text.get(..NOTE_MAX).unwrap_or(text);
            self.tell(&Down::Note { rank, text });
        }
    }

    fn gone(&mut self, rank: u32) {
        self.members[rank as usize] = None;
        // Between rounds it may just have done its part.
        let between = self.blobs.iter().all(Option::is_none);
        if !(matches!(self.phase, Phase::Complete) && between) {
            self.fail(Failure::Gone { rank });
        }
    }

    /// Once the group is complete it goes on without leases. An early one may be left of an earlier
    /// job: it only counts if its rank is here.
    fn lapsed(&mut self, rank: u32, early: bool) {
        let here = self.members.get(rank as usize).is_some_and(Option::is_some);
        if matches!(self.phase, Phase::Joining) && (here || !early) {
            self.fail(Failure::Lapsed { rank, refused: self.refused.clone() });
        }
    }

    fn too_late(&mut self) {
        // In tenths of a second: what was asked for, not what a busy machine made of it.
        let waited_ms = |waited: Duration| waited.as_millis().div_ceil(100) as u64 * 100;
        let failure = match self.phase {
            Phase::Joining => Failure::Missing {
                ranks: absent(&self.members),
                size: self.members.len() as u32,
                waited_ms: waited_ms(self.deadline.map_or(self.patience, |d| d - self.started)),
                at: self.at.clone(),
                refused: self.refused.clone(),
            },
            _ => Failure::Late {
                ranks: absent(&self.blobs),
                round: self.round,
                waited_ms: waited_ms(self.patience),
            },
        };
        self.fail(failure);
    }

    fn fail(&mut self, failure: Failure) {
        if matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        self.deadline = None;
        self.tell(&Down::Failed(failure.clone()));
        self.phase = Phase::Failed(failure);
    }

    /// To all, rank 0 last: once it knows, it may end the hub.
    fn tell(&mut self, message: &Down<'_>) {
        let Ok(frame) = wire::frame(message) else { return };
        for member in self.members.iter_mut().rev().flatten() {
            // A member that cannot be told is gone, as its reader will say.
            if std::io::Write::write_all(&mut member.socket, &frame).is_err() {
                member.socket.shutdown();
            }
        }
    }
}

fn absent<T>(slots: &[Option<T>]) -> Vec<u32> {
    (0..).zip(slots).filter(|(_, slot)| slot.is_none()).map(|(rank, _)| rank).collect()
}

/// Reads what a member sends until its connection ends.
fn read(mut socket: Socket, connection: u64, rank: u32, news: &SyncSender<Event>) {
    while let Ok(bytes) = wire::receive(&mut socket, UP_MAX, None) {
        let event = match wire::decode(&bytes) {
            Ok(Up::Blob { round, blob }) => {
                Event::Blob { connection, rank, round, blob: blob.to_vec() }
            }
            Ok(Up::Note(text)) => Event::Note { connection, rank, text: text.to_vec() },
            Err(_) => break,
        };
        if news.send(event).is_err() {
            return;
        }
    }
    let _ = news.send(Event::Gone { connection, rank });
}
