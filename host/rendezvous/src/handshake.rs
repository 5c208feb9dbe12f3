//! Who is at the other end: both sides prove that they know the secret, and mean the same job.
//!
//! ```text
//! connects                         accepts
//!   prefix, Hello        ───►
//!                        ◄───      prefix, Challenge { proof }     or OtherJob, Refused
//!   Proof, or Denied     ───►
//!                        ◄───      Welcome, or Refused             (by whoever takes it in)
//! ```
//!
//! A proof covers the whole greeting and both nonces, so none is worth anything elsewhere.

use crate::error::tame;
use crate::secret::{Key, TAG, random};
use crate::socket::Socket;
use crate::wire::{self, Answer, Hello, Purpose, Reply, STRANGER_MAX};
use std::io;
use std::time::{Duration, Instant};

/// Who a process is, and what it can prove.
#[derive(Clone)]
pub struct Identity {
    pub key: Key,
    /// Is there a secret behind the key?
    pub secret: bool,
    pub job: String,
    pub rank: u32,
    pub size: u32,
}

/// Why a connection came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Turned {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it speaks version {theirs} of the protocol, this process {}", wire::VERSION)]
    Version { theirs: u16 },
    #[error("it is about another job, {job}")]
    OtherJob { job: String },
    #[error("{why}")]
    Refused { why: String },
    #[error("its shared secret is another one")]
    Secret,
}

const CONNECTS: &[u8] = b"connects";
const ACCEPTS: &[u8] = b"accepts";

fn nonce() -> io::Result<[u8; TAG]> {
    random().map_err(io::Error::other)
}

/// Connects as `me`. [`Turned::Refused`], [`Turned::Secret`] and [`Turned::Version`] are final.
pub fn connect(
    socket: &mut Socket,
    me: &Identity,
    purpose: Purpose,
    patience: Duration,
    until: Instant,
) -> Result<(), Turned> {
    let hello = Hello {
        purpose,
        job: me.job.clone(),
        rank: me.rank,
        size: me.size,
        secret: me.secret,
        patience_ms: patience.as_millis() as u64,
        nonce: nonce()?,
    };
    let hello = wire::frame(&hello)?;
    wire::send_prefix(socket)?;
    io::Write::write_all(socket, &hello)?;
    let theirs = wire::read_prefix(socket, until)?;
    if theirs != wire::VERSION {
        return Err(Turned::Version { theirs });
    }
    let Answer::Challenge { nonce, proof } = answer(socket, until)? else {
        return Err(Turned::Io(wire::bad("welcomes without a proof")));
    };
    if !me.key.accepts(&[ACCEPTS, &hello[4..], &nonce], &proof) {
        wire::send(socket, &Reply::Denied)?;
        return Err(Turned::Secret);
    }
    wire::send(socket, &Reply::Proof(me.key.proof(&[CONNECTS, &hello[4..], &nonce])))?;
    match answer(socket, until)? {
        Answer::Welcome => Ok(()),
        _ => Err(Turned::Io(wire::bad("asks twice"))),
    }
}

fn answer(socket: &mut Socket, until: Instant) -> Result<Answer, Turned> {
    match wire::receive_as(socket, STRANGER_MAX, until)? {
        Answer::OtherJob { job } => Err(Turned::OtherJob { job: tame(&job) }),
        Answer::Refused { why } => Err(Turned::Refused { why: tame(&why) }),
        answer => Ok(answer),
    }
}

/// Accepts whoever proves to be of the same job. It still waits for [`welcome`] or [`refuse`].
pub fn accept(socket: &mut Socket, me: &Identity, until: Instant) -> Result<Hello, Turned> {
    wire::send_prefix(socket)?;
    let theirs = wire::read_prefix(socket, until)?;
    if theirs != wire::VERSION {
        return Err(Turned::Version { theirs });
    }
    let bytes = wire::receive(socket, STRANGER_MAX, Some(until))?;
    let hello: Hello = wire::decode(&bytes)?;
    if hello.job != me.job {
        wire::send(socket, &Answer::OtherJob { job: me.job.clone() })?;
        return Err(Turned::OtherJob { job: tame(&hello.job) });
    }
    if hello.secret != me.secret {
        let (mine, theirs) = if me.secret { ("a", "none") } else { ("no", "one") };
        let why = format!(
            "rank {} has {mine} shared secret, rank {} {theirs}; UNISONO_SECRET must be the same \
             on all ranks",
            me.rank, hello.rank
        );
        refuse(socket, &why)?;
        return Err(Turned::Refused { why });
    }
    let nonce = nonce()?;
    let proof = me.key.proof(&[ACCEPTS, &bytes, &nonce]);
    wire::send(socket, &Answer::Challenge { nonce, proof })?;
    match wire::receive_as(socket, STRANGER_MAX, until)? {
        Reply::Proof(proof) if me.key.accepts(&[CONNECTS, &bytes, &nonce], &proof) => Ok(hello),
        Reply::Proof(_) => {
            refuse(socket, "its shared secret is another one")?;
            Err(Turned::Secret)
        }
        Reply::Denied => Err(Turned::Secret),
    }
}

/// Takes the rank in.
pub fn welcome(socket: &mut Socket) -> io::Result<()> {
    wire::send(socket, &Answer::Welcome)
}

/// Sends the rank away.
pub fn refuse(socket: &mut Socket, why: &str) -> io::Result<()> {
    wire::send(socket, &Answer::Refused { why: tame(why) })
}
