//! Carries frames between a board and the members that it has no link to: those of other
//! processes, and other boards.
//!
//! The process of a board has both ends: the board's, and its own end of a link to the member's
//! process. A thread hands on what comes at either, frame by frame; what is under way is bounded by
//! what the calls grant each other, as without it. Payloads are copied once more, into
//! memory that the member's process sees.

use crate::member::AnyLink;
use crate::memory::{Block, Pool};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use unisono_core::wire::frame::Header;
use unisono_driver::{Arrived, HostPtr, Link, LinkError, Outgoing};

/// Payloads of a channel that have been handed on and are still being read.
const FLYING_MAX: usize = 64;
/// Rounds in which nothing came before the thread sleeps, for how long, and for how long once
/// nothing has come for a while: a board rings no bell.
const EAGER: u32 = 50;
const NAP: Duration = Duration::from_micros(50);
const LONG_NAP: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_millis(200);

/// Two ends between which frames are carried.
pub(crate) type Pair = (AnyLink, AnyLink);

/// Once nobody here needs it any more, what a board has sent may still be on its way: so long after
/// the last frame, none comes.
const QUIET: Duration = Duration::from_millis(300);

/// A thread that carries frames until this is dropped, and what is under way then to its end.
#[derive(Debug)]
pub(crate) struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What a relay needs beside its ends.
pub(crate) struct Setup {
    /// Most bytes of a payload.
    pub payload_max: usize,
    /// Where payloads are kept.
    pub pool: Pool,
    /// Grows with what comes.
    pub stirs: Arc<AtomicU64>,
    /// How long a member may take to read what has been sent to it.
    pub patience: Duration,
    /// Whether that is not to be waited for.
    pub interrupt: Option<Arc<AtomicBool>>,
}

impl Relay {
    /// Between these.
    pub fn start(pairs: Vec<Pair>, setup: Setup) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let carriers = pairs.into_iter().map(|pair| Carrier::new(pair, setup.payload_max));
        let (mut carriers, told) = (carriers.collect(), stop.clone());
        let work = move || carry(&mut carriers, &setup, &told);
        let thread = std::thread::Builder::new().name("unisono-relay".into()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

/// Carries frames until `told` to stop, and then until none comes.
fn carry(carriers: &mut Vec<Carrier>, setup: &Setup, told: &AtomicBool) {
    let (mut idle, mut last) = (0, Instant::now());
    loop {
        let mut moved = false;
        carriers.retain_mut(|carrier| match carrier.round(&setup.pool) {
            Ok(some) => {
                moved |= some;
                true
            }
            // Both ends go: whoever is still there learns that the other one is not.
            Err(error) => {
                tracing::debug!("between a board and a member elsewhere: {error}");
                false
            }
        });
        if moved {
            setup.stirs.fetch_add(1, Ordering::Relaxed);
            (idle, last) = (0, Instant::now());
            continue;
        }
        let quiet = last.elapsed();
        if told.load(Ordering::Relaxed) {
            let interrupted = setup.interrupt.as_ref().is_some_and(|f| f.load(Ordering::Relaxed));
            let done = carriers.iter().all(Carrier::is_idle) && quiet >= QUIET;
            if carriers.is_empty() || done || interrupted || quiet >= setup.patience {
                return;
            }
        }
        idle += 1;
        match idle {
            ..EAGER => std::thread::yield_now(),
            _ if quiet < LONG => std::thread::sleep(NAP),
            _ => std::thread::sleep(LONG_NAP),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panic there has been printed, and the links are gone.
        self.thread.take().map(JoinHandle::join);
    }
}

/// Two ends and what is between them, each way.
struct Carrier {
    ends: Pair,
    ways: [Vec<Way>; 2],
    payload_max: usize,
}

impl Carrier {
    fn new(ends: Pair, payload_max: usize) -> Self {
        let channels = ends.0.caps().channels.min(ends.1.caps().channels);
        let ways = || (0..channels).map(|_| Way::default()).collect();
        Self { ways: [ways(), ways()], ends, payload_max }
    }

    /// Is nothing held, and nothing being read?
    fn is_idle(&self) -> bool {
        self.ways.iter().flatten().all(|way| way.held.is_none() && way.flying.is_empty())
    }

    /// Carries what there is; true if there was anything.
    fn round(&mut self, pool: &Pool) -> Result<bool, LinkError> {
        let (a, b) = &mut self.ends;
        a.poll();
        b.poll();
        let mut moved = false;
        let [there, back] = &mut self.ways;
        for (channel, (there, back)) in there.iter_mut().zip(back).enumerate() {
            let limit = (pool, self.payload_max);
            moved |= there.carry(channel, a, b, limit)?;
            moved |= back.carry(channel, b, a, limit)?;
        }
        // What an end has sent before it was closed is carried first, on every channel.
        if self.ways.iter().any(|way| way.iter().all(Way::is_over)) {
            return Err(LinkError::Closed);
        }
        Ok(moved)
    }
}

/// One channel, one way.
#[derive(Default)]
struct Way {
    /// A frame that waits for room, and its payload.
    held: Option<(Header, Option<Block>)>,
    /// Where the head frame's bytes are being received.
    coming: Option<Block>,
    /// Payloads that are being read, by token.
    flying: VecDeque<(u32, Block)>,
    free: Vec<Block>,
    token: u32,
    /// Nothing more comes.
    closed: bool,
}

impl Way {
    const fn is_over(&self) -> bool {
        self.closed && self.held.is_none()
    }

    fn carry(
        &mut self,
        channel: usize,
        from: &mut AnyLink,
        to: &mut AnyLink,
        (pool, payload_max): (&Pool, usize),
    ) -> Result<bool, LinkError> {
        let mut moved = false;
        loop {
            while let Some(token) = to.poll_sent(channel) {
                if let Some(at) = self.flying.iter().position(|(flying, _)| *flying == token) {
                    self.free.extend(self.flying.remove(at).map(|(_, block)| block));
                }
            }
            if self.held.is_some() {
                if self.flying.len() >= FLYING_MAX || !to.has_room(channel) {
                    return Ok(moved);
                }
                self.hand_on(channel, to);
            } else if !self.take(channel, from, (pool, payload_max))? {
                return Ok(moved);
            }
            moved = true;
        }
    }

    /// Sends the frame that waits; nobody waits for it if the other end is closed.
    fn hand_on(&mut self, channel: usize, to: &mut AnyLink) {
        let Some((header, block)) = self.held.take() else { return };
        let payload = block.as_ref().map_or(Outgoing::None, |block| Outgoing::At {
            mem: block.start,
            bytes: header.payload_len() as usize,
            window: None,
        });
        self.token = self.token.wrapping_add(1);
        // SAFETY: the block stays as it is until its completion, or until the link is gone: a
        // carrier drops its ends first.
        let sent = unsafe { to.send(channel, &header, payload, self.token) };
        match block {
            Some(block) if sent.is_ok() => self.flying.push_back((self.token, block)),
            block => self.free.extend(block),
        }
    }

    /// Takes the next frame in; false if there is none, or not all of it.
    fn take(
        &mut self,
        channel: usize,
        from: &mut AnyLink,
        (pool, payload_max): (&Pool, usize),
    ) -> Result<bool, LinkError> {
        let frame = match from.poll_frame(channel) {
            Err(LinkError::Closed) => {
                self.closed = true;
                return Ok(false);
            }
            frame => frame?,
        };
        let Some(frame) = frame else { return Ok(false) };
        let header = frame.header;
        let bytes = header.payload_len() as usize;
        match frame.payload {
            Arrived::None => {
                from.take(channel);
                self.held = Some((header, None));
            }
            // No window is ever offered here.
            Arrived::Put => return Err(LinkError::Garbage),
            _ if bytes > payload_max => return Err(LinkError::Garbage),
            Arrived::Stream => {
                let block = self.block(payload_max, pool)?;
                // SAFETY: the block has room for any payload, and nobody else uses it.
                let whole = unsafe { from.receive(channel, Some(block.start)) }?;
                if !whole {
                    self.coming = Some(block);
                    return Ok(false);
                }
                self.held = Some((header, Some(block)));
            }
            Arrived::Span { mem, handle, .. } => {
                let block = self.block(payload_max, pool)?;
                // Whoever has taken it back has given the call up, and says so next.
                if from.enter(channel, handle) {
                    copy(mem, block.start, bytes);
                    from.exit(channel, handle, false);
                    self.held = Some((header, Some(block)));
                } else {
                    self.free.push(block);
                }
                from.take(channel);
                from.release(channel, handle);
            }
        }
        Ok(true)
    }

    /// Memory for a payload.
    fn block(&mut self, bytes: usize, pool: &Pool) -> Result<Block, LinkError> {
        if let Some(block) = self.coming.take().or_else(|| self.free.pop()) {
            return Ok(block);
        }
        pool.block(bytes).map_err(|error| {
            tracing::error!(
                "no memory for what a board and another process tell each other: {error}"
            );
            LinkError::Closed
        })
    }
}

/// Copies a payload that is locked.
fn copy(from: HostPtr, to: HostPtr, bytes: usize) {
    use unisono_driver::HostMemory;
    // SAFETY: the payload has so many bytes and is locked, the block has at least as many.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), bytes) };
}
