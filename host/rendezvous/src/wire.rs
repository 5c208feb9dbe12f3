//! What goes over a connection: a prefix once, then frames of a length and a `postcard` message.
//!
//! Every read has a limit and a deadline. Memory grows with the bytes that have come, never by a
//! length that somebody claims.

use crate::error::Failure;
use crate::secret::TAG;
use crate::socket::Socket;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

/// Most ranks that a group may have.
pub const RANKS_MAX: usize = 4096;
/// Longest blob that a rank may give to one round.
pub const BLOB_MAX: usize = 64 << 10;

/// Longest note, which is cut to this.
pub const NOTE_MAX: usize = 1 << 10;
/// Notes that all ranks together may send between two rounds: they wait in the sockets of those who
/// do not look, and must fit there.
pub const NOTES_MAX: usize = 32;

/// Says that this is a rendezvous of unisono; never changes.
const MAGIC: [u8; 8] = *b"unisono\n";
/// Changes whenever anything below does.
pub const VERSION: u16 = 2;

/// Most bytes of a frame before its sender has proved who it is.
pub const STRANGER_MAX: usize = 1 << 10;
/// Most bytes of a frame with one blob.
pub const UP_MAX: usize = BLOB_MAX + 64;
/// Most bytes of a frame with all blobs, or with a failure that names every rank.
pub const DOWN_MAX: usize = RANKS_MAX * UP_MAX;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// To wait for the group at rank 0.
    Join,
    /// To carry data to a rank.
    Link {
        /// Whom it is for; an address may lead to somebody else.
        to: u32,
        /// What that rank has published about itself in this session.
        card: [u8; TAG],
        /// Over a Unix socket?
        near: bool,
        /// Which of the pair's streams.
        stream: u16,
    },
}

/// First message of whoever connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What for.
    pub purpose: Purpose,
    /// Which job.
    pub job: String,
    /// Who.
    pub rank: u32,
    /// Of how many.
    pub size: u32,
    /// Has it got a secret?
    pub secret: bool,
    /// For how long it will wait.
    pub patience_ms: u64,
    /// Chosen for this connection.
    pub nonce: [u8; TAG],
}

/// Answer of whoever accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It proves itself first.
    Challenge {
        /// Chosen for this connection.
        nonce: [u8; TAG],
        /// Of knowing the secret.
        proof: [u8; TAG],
    },
    /// It is about another job, which may be gone soon.
    OtherJob {
        /// Which.
        job: String,
    },
    /// It does not want this rank.
    Refused {
        /// Why.
        why: String,
    },
    /// The rank has been taken in.
    Welcome,
}

/// Second message of whoever connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Its own proof.
    Proof([u8; TAG]),
    /// The challenge's proof is wrong.
    Denied,
}

/// From a rank to rank 0.
#[derive(Debug, Serialize, Deserialize)]
pub enum Up<'a> {
    /// Its part of a round.
    Blob {
        /// Which round, counted from 0.
        round: u32,
        /// What it gives to it.
        blob: &'a [u8],
    },
    /// A note, to be passed on at any time.
    Note(&'a [u8]),
}

/// From rank 0 to a rank.
#[derive(Debug, Serialize, Deserialize)]
pub enum Down<'a> {
    /// All have come.
    Complete {
        /// Of this session.
        nonce: [u8; TAG],
    },
    /// A round is over: what every rank has given.
    #[serde(borrow)]
    Gathered(Vec<&'a [u8]>),
    /// The group has failed.
    Failed(Failure),
    /// A note of a rank, to all, that rank included.
    Note {
        /// Whose.
        rank: u32,
        /// What it says.
        text: &'a [u8],
    },
}

/// Sends who we are.
pub fn send_prefix(socket: &mut Socket) -> io::Result<()> {
    let mut prefix = MAGIC.to_vec();
    prefix.extend(VERSION.to_le_bytes());
    socket.write_all(&prefix)
}

/// Reads who the other side is: its version.
pub fn read_prefix(socket: &mut Socket, until: Instant) -> io::Result<u16> {
    let prefix = read(socket, MAGIC.len() + 2, until)?;
    match prefix.strip_prefix(&MAGIC) {
        Some(&[low, high]) => Ok(u16::from_le_bytes([low, high])),
        _ => Err(bad("does not speak this protocol")),
    }
}

/// A frame in one piece, so that it leaves in one packet if it fits.
pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = postcard::to_extend(message, vec![0; 4]);
    let mut bytes = bytes.map_err(|_| bad("a message that cannot be written"))?;
    let length = u32::try_from(bytes.len() - 4).map_err(|_| bad("a message that is too long"))?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// Sends a message.
pub fn send(socket: &mut Socket, message: &impl Serialize) -> io::Result<()> {
    socket.write_all(&frame(message)?)
}

/// Receives a frame of at most `limit` bytes until a time.
pub fn receive(socket: &mut Socket, limit: usize, until: Option<Instant>) -> io::Result<Vec<u8>> {
    let length = read_some(socket, 4, until)?;
    let length = <[u8; 4]>::try_from(length.as_slice()).map_err(|_| bad("half a length"))?;
    let length = u32::from_le_bytes(length) as usize;
    if length > limit {
        return Err(bad(&format!("a message of {length} B, at most {limit} are allowed")));
    }
    read_some(socket, length, until)
}

/// Receives a message that borrows nothing.
pub fn receive_as<T: DeserializeOwned>(
    socket: &mut Socket,
    limit: usize,
    until: Instant,
) -> io::Result<T> {
    decode(&receive(socket, limit, Some(until))?)
}

/// A message of which no byte is left over.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> io::Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        _ => Err(bad("a message that makes no sense")),
    }
}

fn read(socket: &mut Socket, length: usize, until: Instant) -> io::Result<Vec<u8>> {
    read_some(socket, length, Some(until))
}

/// Exactly so many bytes. The deadline is that of all of them: a byte now and then buys no time.
fn read_some(socket: &mut Socket, length: usize, until: Option<Instant>) -> io::Result<Vec<u8>> {
    const PIECE: usize = 16 << 10;
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let left = until.map(|u| u.saturating_duration_since(Instant::now()));
        if left.is_some_and(|l| l.is_zero()) {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(left)?;
        let have = bytes.len();
        bytes.resize(length.min(have + PIECE), 0);
        let got = match socket.read(&mut bytes[have..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(got) => got,
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => 0,
            Err(e) => return Err(e),
        };
        bytes.truncate(have + got);
    }
    Ok(bytes)
}

pub(crate) fn bad(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}
