//! The machine: runs one call of a collective on one member, a window of chunks at a time.
//!
//! It is sans-IO. Methods are named by kind:
//!
//! * `handle_*` tells it what has happened;
//! * `poll_action` asks what to do next; ask until it says `None` after every `handle_*`;
//! * everything else that takes `&self` is a getter.
//!
//! # Why it cannot deadlock
//!
//! Devices and links complete what they have accepted, and the source gets ready. Let g be the
//! lowest chunk that is unfinished on any member.
//!
//! * **Lanes.** Members finish chunks in any order, but a window starts at the member's own
//!   lowest unfinished chunk. So where g is unfinished, it is the first chunk of the window and
//!   has a lane.
//! * **Limits.** Chunks below g are finished, so only lane g decides whether a peer may send g.
//!   Where the peer's payload stays in place, or is a result, it may at once; contributions that
//!   come as bytes may in the order of the moves, and a lane never waits for its own slots
//!   (`grants`). A limit above g is never kept back from a peer of which an open chunk needs
//!   something: news goes out as soon as the limit told is no higher than the window's start
//!   (`Machine::control`).
//! * **Heads of channels.** A frame is taken as it comes, unless its bytes have no place yet. A
//!   contribution has its slot since it was granted. A result waits only for the completion of
//!   this member's own sends of the same chunk, in place; they have been read, because the result
//!   was made of them. So no frame stands in the way of those behind it for ever.
//! * **Moves.** What is left is the order of the moves. Leave to send depends only on the
//!   receiver's slots, and these become free also while it waits with its own sends: partial
//!   folds do not wait for them. Otherwise a move waits for a move of another route of the same
//!   chunk, and a schedule's routes for one chunk are free of cycles (tested exhaustively).
//!
//! Hence some move of chunk g can always be made, g gets finished, and by induction every chunk
//! does. The agreement waits for no data. Calls do not wait for each other: each has its own
//! machine and its own channel on every link.

mod action;
mod agree;
mod config;
mod folding;
mod grants;
mod input;
mod jobs;
mod lane;
mod poll;
mod stage;

pub use action::{Action, Payload, Place, Released, Status};
pub use config::{Config, ConfigError, RankSet};
pub use input::Refused;
pub use jobs::FoldJob;
pub use poll::{Room, send_token};

use crate::dtype::DType;
use crate::fold::Form;
use crate::layout::Kind;
use crate::route::{Move, Rank, Route};
use crate::time::Instant;
use crate::wire::frame::{Abort, Fingerprint, Phase};
use agree::{Agree, is_connected};
use core::time::Duration;
use heapless::Vec;
use lane::Lane;

/// Flow control between this member and one peer: chunks below the limit may be sent.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    /// What the peer has granted this member.
    may_send: u64,
    /// What this member grants the peer, and what of it the peer has been told.
    granted: u64,
    told: u64,
    /// No opened chunk from here on needs a frame of the peer.
    needed: u64,
}

/// The state machine of one call.
///
/// * `M`: the driver's memory reference, opaque here.
/// * `W`: most chunks in flight.
/// * `R`: most moves of a route, at most 255; a direct schedule over n ranks has 2n.
/// * `P`: most members of the group.
#[derive(Debug)]
pub struct Machine<M, const W: usize, const R: usize, const P: usize> {
    cfg: Option<Config>,
    print: Fingerprint,
    status: Status,
    members: u16,
    chunks: u64,
    /// Lowest unfinished chunk; chunks below `opened` have had a lane.
    base: u64,
    opened: u64,
    /// Elements of the input that hold their final content.
    source: u64,
    lanes: [Lane<M, R>; W],
    peers: Vec<Peer, P>,
    agree: Agree,
    /// Peers that still have to be told of an abort.
    untold: RankSet,
    /// Peers may have to be told their limit.
    stale_limits: bool,
    /// When the first look at a clock was.
    seen: Option<Instant>,
    /// Peers that are asked whether they make the same call; `None`: nobody has been asked yet.
    unasked: Option<RankSet>,
}

/// How long a call may take before its peers are asked what they are doing.
///
/// Ranks whose calls do not match may wait for each other without a single frame: one fills its
/// window with chunks that the other one's schedule does not send yet. So whoever waits this long
/// sends every peer a frame, which carries the fingerprint; once a call, so it costs nothing.
const ASK_AFTER: Duration = Duration::from_millis(20);

impl<M: Copy, const W: usize, const R: usize, const P: usize> Default for Machine<M, W, R, P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Copy, const W: usize, const R: usize, const P: usize> Machine<M, W, R, P> {
    /// A machine without a call.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(R <= 255 && R >= 4 && W >= 1 && P >= 1) };
        Self {
            cfg: None,
            print: NO_CALL,
            status: Status::Idle,
            members: 0,
            chunks: 0,
            base: 0,
            opened: 0,
            source: 0,
            lanes: [const { Lane::new() }; W],
            peers: Vec::new(),
            agree: Agree::none(),
            untold: 0,
            stale_limits: false,
            seen: None,
            unasked: None,
        }
    }

    /// Begins a call. `source_ready` elements of the input are ready now (`u64::MAX`: all).
    ///
    /// # Errors
    /// A configuration that cannot run; the machine is then idle and nothing has been sent.
    pub fn start(&mut self, cfg: &Config, source_ready: u64) -> Result<(), ConfigError> {
        self.status = Status::Idle;
        self.cfg = None;
        cfg.check(W, P)?;
        self.members = cfg.schedule.members(cfg.layout.ranks);
        self.print = cfg.fingerprint();
        self.chunks = cfg.layout.chunks();
        self.base = 0;
        self.opened = 0;
        self.source = source_ready;
        self.untold = 0;
        self.stale_limits = false;
        self.seen = None;
        self.unasked = None;
        self.agree = Agree::new(!is_connected(cfg), self.members);
        self.peers.clear();
        let limit = cfg.eager.min(self.chunks);
        for _ in 0..self.members {
            // `check` has compared the number of members with P.
            let _ =
                self.peers.push(Peer { may_send: limit, granted: limit, told: limit, needed: 0 });
        }
        let schedule = cfg.schedule.name();
        self.cfg = Some(cfg.clone());
        if !self.open_lanes() {
            self.cfg = None;
            return Err(ConfigError::RouteTooLong { schedule, most: R });
        }
        self.status = Status::Running;
        self.raise_limits();
        self.settle();
        Ok(())
    }

    /// What has become of the call.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// The call's sequence number.
    #[must_use]
    pub fn op_id(&self) -> Option<u64> {
        self.cfg.as_ref().map(|c| c.op_id)
    }

    /// What every frame of the call carries.
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.print
    }

    /// Members of the group, aggregators included.
    #[must_use]
    pub const fn members(&self) -> u16 {
        self.members
    }

    /// The call's configuration.
    #[must_use]
    pub const fn config(&self) -> Option<&Config> {
        self.cfg.as_ref()
    }

    /// Elements from the start of the output that are final (whole-tensor collectives; others
    /// report everything at the end).
    #[must_use]
    pub fn progress(&self) -> u64 {
        let Some(cfg) = &self.cfg else { return 0 };
        let all = cfg.layout.output_len(cfg.rank);
        if self.base >= self.chunks {
            return all;
        }
        match cfg.layout.kind {
            // An aggregator takes part in every chunk and has no output.
            Kind::AllReduce | Kind::Broadcast => (self.base * cfg.layout.chunk).min(all),
            _ => 0,
        }
    }

    /// Sets or moves the call's deadline. A call that was started without one, and is over before
    /// anybody waits, never reads a clock; and who sees progress may give it more time.
    pub const fn arm(&mut self, deadline: Instant) {
        if let Some(cfg) = &mut self.cfg {
            cfg.deadline = Some(deadline);
        }
    }

    /// When [`Machine::handle_timeout`] has to be called, if at all.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let cfg = self.cfg.as_ref().filter(|_| self.status == Status::Running)?;
        let ask = match (self.unasked, self.seen) {
            (Some(_), _) => None,
            (None, Some(seen)) => Some(seen.saturating_add(ASK_AFTER)),
            // The sooner the first look, the sooner the question.
            (None, None) => Some(Instant::ZERO),
        };
        ask.into_iter().chain(cfg.deadline).min()
    }

    /// Does the call still need something from this peer, or have to send it something?
    ///
    /// A peer finishes a call only when all its routes are done, so one that is needed and gone
    /// did not finish.
    #[must_use]
    pub fn needs(&self, rank: Rank) -> bool {
        let Some(cfg) = &self.cfg else { return false };
        let mut lanes = (self.base..self.opened).filter_map(|chunk| self.lane_of(chunk));
        lanes.any(|at| self.lanes.get(at).is_some_and(|lane| lane.needs(rank)))
            || self.agree.waiting_for(cfg.rank, self.members) == Some(rank)
    }

    /// Opens lanes for every chunk that has come into the window; false if a route does not fit.
    fn open_lanes(&mut self) -> bool {
        let Some(cfg) = &self.cfg else { return true };
        let window = u64::from(cfg.window);
        while self.opened < self.chunks && self.opened < self.base + window {
            let chunk = self.opened;
            let Some(index) = chunk.checked_rem(window).map(|at| at as u32) else { return false };
            let Some(lane) = self.lanes.get_mut(index as usize) else { return false };
            let mut route = Route::new(&mut lane.moves);
            cfg.schedule.route(&cfg.layout, chunk, cfg.rank, &mut route);
            if route.overflowed() {
                return false;
            }
            for m in &lane.moves {
                if let Move::Recv { from, .. } | Move::Store { from } = m
                    && let Some(peer) = self.peers.get_mut(usize::from(*from))
                {
                    peer.needed = chunk + 1;
                }
            }
            lane.slot_base = index * u32::from(cfg.slots);
            let form = if cfg.op.is_some() { Form::Leaf } else { Form::Final };
            let input = cfg.layout.input(chunk, cfg.rank);
            let value = input.map(|at| (Place::Input(cfg.bytes(at, Form::Leaf)), form));
            lane.open(chunk, cfg.layout.len(chunk), value);
            lane.plan_grants(cfg);
            self.opened += 1;
        }
        true
    }

    fn lane_of(&self, chunk: u64) -> Option<usize> {
        let window = u64::from(self.cfg.as_ref()?.window);
        let at = chunk.checked_rem(window)? as usize;
        (chunk >= self.base && chunk < self.opened).then_some(at)
    }

    /// A lane may have come to more free slots: grants them.
    fn regrant(&mut self, at: usize) {
        let (Some(cfg), Some(lane)) = (&self.cfg, self.lanes.get_mut(at)) else { return };
        if lane.granted < lane.by_bytes {
            let granted = lane.grantable(cfg);
            if granted > lane.granted {
                lane.granted = granted;
                self.raise_limits();
            }
        }
    }

    /// Raises what the peers may send, as far as lanes and slots allow.
    fn raise_limits(&mut self) {
        let Some(cfg) = &self.cfg else { return };
        let window = u64::from(cfg.window);
        for (p, peer) in self.peers.iter_mut().enumerate() {
            if cfg.by_bytes >> p & 1 == 0 {
                peer.granted = peer.granted.max(self.opened);
                continue;
            }
            peer.granted = peer.granted.max(self.base);
            while peer.granted < self.opened
                && let Some(at) = peer.granted.checked_rem(window)
                && self.lanes.get(at as usize).is_some_and(|lane| lane.admits(p as Rank, cfg))
            {
                peer.granted += 1;
            }
        }
        self.stale_limits = true;
    }

    /// Retires finished lanes, moves the window on and notices the end of the call.
    fn settle(&mut self) {
        if self.status != Status::Running {
            return;
        }
        let before = self.base;
        while self.lane_of(self.base).and_then(|i| self.lanes.get(i)).is_some_and(Lane::is_done) {
            self.base += 1;
            // Every route of the call is at most as long as those that `start` has opened or the
            // schedule is broken; then the call fails instead of the program.
            if !self.open_lanes() {
                let rank = self.cfg.as_ref().map_or(0, |c| c.rank);
                return self.fail(Abort::Protocol { rank });
            }
        }
        if self.base != before {
            self.raise_limits();
        }
        if self.base >= self.chunks && self.agree.done() {
            self.status = Status::Done;
        }
    }

    /// Gives the call up: all peers will be told.
    fn fail(&mut self, why: Abort) {
        if self.status == Status::Running {
            self.untold = self.others();
            self.status = Status::Failing(why);
            self.abort_settle();
        }
    }

    /// All members but this one.
    fn others(&self) -> RankSet {
        let rank = self.cfg.as_ref().map_or(0, |c| c.rank);
        let all = RankSet::MAX >> (RankSet::BITS - u32::from(self.members.max(1)));
        all & !(1 << rank)
    }

    fn abort_settle(&mut self) {
        if let (Status::Failing(why), 0) = (self.status, self.untold) {
            self.status = Status::Failed(why);
        }
    }

    /// What the call waits for: rank, chunk and phase, for error messages.
    #[must_use]
    pub fn waiting_for(&self) -> Option<(Rank, u64, Phase)> {
        let cfg = self.cfg.as_ref()?;
        for chunk in self.base..self.opened {
            let lane = self.lanes.get(self.lane_of(chunk)?)?;
            if let Some((from, phase)) = lane.missing(cfg.op.is_none()) {
                return Some((from, chunk, phase));
            }
        }
        let rank = self.agree.waiting_for(cfg.rank, self.members)?;
        Some((rank, 0, Phase::Contribution))
    }
}

/// What a machine without a call carries.
const NO_CALL: Fingerprint =
    Fingerprint { kind: Kind::Barrier, dtype: DType::U8, op: None, root: 0, count: 0, plan: 0 };
