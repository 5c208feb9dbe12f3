//! A member that this process drives: engine, device, links.

use super::seat::Seat;
use super::wait::{Patience, Yields};
use super::ways::{Way, Ways};
use super::{CALLS_MAX, Memory, Shared};
use crate::call::Call;
use crate::datagram::UdpLink;
use crate::device::Opened;
use crate::device::any::AnyDevice;
use crate::device::located::Located;
use crate::error::Error;
use crate::memory::Slots;
use crate::planner::{Plan, WINDOW_MAX};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;
use unisono_core::machine::Config;
use unisono_core::wire::frame::Fingerprint;
use unisono_core::{Layout, Schedule};
use unisono_driver::{Device, Either, HostPtr};
use unisono_link_shm::ShmLink;
use unisono_link_span::{Bell, SpanLink};
use unisono_link_tcp::TcpLink;
use unisono_offload_dpu::BoardLink;
use unisono_runtime::{Buffers, Engine, Quick};

/// Longest route: a direct schedule over [`super::MEMBERS_MAX`] ranks.
const ROUTE: usize = 132;

/// A link to a member of this process, of another one here or elsewhere, or to a board.
pub(crate) type AnyLink = Either<SpanLink<HostPtr>, Either<ShmLink, Either<FarLink, BoardLink>>>;

/// A link to a member that shares no memory.
pub(crate) type FarLink = Either<TcpLink<HostPtr>, UdpLink>;

/// Longest sleep of a member with peers that cannot ring its bell.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000 };

/// The link, if its member shares no memory.
const fn far(link: &AnyLink) -> Option<&FarLink> {
    match link {
        Either::B(Either::B(Either::A(link))) => Some(link),
        _ => None,
    }
}

type HostEngine = Engine<Located, AnyLink, CALLS_MAX, WINDOW_MAX, ROUTE, { super::MEMBERS_MAX }>;

/// What a prepared call depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Key {
    call: Call,
    in_place: bool,
    /// Who reaches the input, and the output.
    lies: [Lies; 2],
}

/// Who reaches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lies {
    /// All peers, where it is.
    Seen,
    /// Processes of this machine, which copy it.
    Away,
    /// Nobody.
    Private,
}

/// The last call, ready to be made again: training makes the same ones over and over.
struct Prepared {
    key: Key,
    call: unisono_runtime::Call<HostPtr>,
    /// Bytes of scratch that it needs.
    scratch: usize,
    /// Its fingerprint, if it may need no machine.
    quick: Option<Fingerprint>,
}

/// A prepared call is not there, though it has just been made: cannot be.
const NOT_READY: Error = Error::Busy(0);

/// Bytes of a call's tensors.
const fn bytes_of(call: &Call) -> u64 {
    call.count.saturating_mul(call.dtype.size() as u64)
}

/// What a local member is made of.
pub(crate) struct Parts {
    pub device: AnyDevice,
    /// The GPU that it is on.
    pub on: Option<Opened>,
    pub links: Vec<Option<AnyLink>>,
    pub bell: Arc<Bell>,
    pub seat: Option<Seat>,
}

/// The engine of one member.
pub(crate) struct Local {
    pub(super) rank: u16,
    device: Option<Opened>,
    bell: Arc<Bell>,
    /// Some peers share no memory.
    far: bool,
    pub(super) patience: Patience,
    pub(super) seat: Option<Seat>,
    pub(super) engine: Box<HostEngine>,
    // Behind the engine, which waits for its device when it is dropped.
    scratch: [Slots; CALLS_MAX],
    last: Option<Prepared>,
    ways: Ways,
    /// Something has happened since the last look at the clock.
    pub(super) worked: bool,
    /// The call of which it was last said that somebody does not let go of it.
    pub(super) stuck: Option<u64>,
    /// The call that has a deadline.
    pub(super) armed: Option<u64>,
    // Last: with it a board goes back, and another group may lay out its links anew.
    pub(super) shared: Arc<Shared>,
}

impl Local {
    pub fn new(rank: u16, shared: Arc<Shared>, parts: Parts) -> Self {
        let Parts { device, on, links, bell, seat } = parts;
        // Whoever emulates a device or a board needs the cores, too.
        let busy = on.as_ref().is_some_and(Opened::is_software) || shared.boards.any();
        let patience = Patience::new(shared.near, busy);
        let far = links.iter().flatten().any(|link| far(link).is_some());
        let links = links.into_iter().collect();
        let ways = Ways::new(shared.pool.attached && on.is_none());
        let device = Located { device, arena: shared.pool.arena.clone(), attach: Cell::default() };
        Self {
            rank,
            device: on,
            bell,
            far,
            patience,
            seat,
            engine: Box::new(Engine::new(rank, shared.boards.epoch, device, links)),
            scratch: [const { Slots::empty() }; CALLS_MAX],
            last: None,
            ways,
            worked: false,
            stuck: None,
            armed: None,
            shared,
        }
    }

    pub const fn device(&self) -> Option<&Opened> {
        self.device.as_ref()
    }

    /// Comes back to the group for calls from number `next` on.
    pub fn rejoin(&mut self, next: u64) {
        self.engine.skip_to(next);
        self.spans().for_each(SpanLink::rejoin);
    }

    /// Tells the others of this process that no more calls will come for now.
    pub fn leave(&self) {
        self.spans().for_each(SpanLink::leave);
    }

    /// Sleeps until something may have happened, a fraction of a millisecond at most.
    pub fn sleep(&self) {
        if !self.far {
            return self.bell.sleep();
        }
        let flag = |on, flag| if on { flag } else { PollFlags::empty() };
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        for link in self.engine.links().iter().flatten().filter_map(far) {
            match link {
                Either::A(tcp) => fds.extend(tcp.waits().map(|wait| {
                    let (read, write) = (wait.readable, wait.writable);
                    let flags = flag(read, PollFlags::IN) | flag(write, PollFlags::OUT);
                    PollFd::from_borrowed_fd(wait.fd, flags)
                })),
                Either::B(udp) => fds.push(PollFd::new(udp, PollFlags::IN)),
            }
        }
        // Whatever ends it: the caller looks for what has happened.
        let _ = poll(&mut fds, Some(&NAP));
    }

    fn spans(&self) -> impl Iterator<Item = &SpanLink<HostPtr>> {
        self.engine.links().iter().flatten().filter_map(|link| match link {
            Either::A(span) => Some(span),
            Either::B(_) => None,
        })
    }

    /// The plans have changed.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// Begins a call.
    ///
    /// # Safety
    /// `memory` must be valid for the call's lengths on this rank, and used by nobody else, until
    /// the call is over.
    pub unsafe fn begin(&mut self, call: &Call, memory: Memory) -> Result<u64, Error> {
        if self.is_left_out(call) {
            return Ok(self.engine.pass()?);
        }
        // How long this call takes says nothing: the caller does other things meanwhile.
        self.pick(call, memory, false);
        self.ready(call, memory)?;
        let Some(Prepared { call, .. }) = &mut self.last else { return Err(NOT_READY) };
        // SAFETY: the caller's promise.
        Ok(unsafe { self.engine.begin(call) }?)
    }

    /// Runs a call to its end.
    ///
    /// # Safety
    /// As for [`Local::begin`].
    pub unsafe fn run(&mut self, call: &Call, memory: Memory) -> Result<(), Error> {
        if self.is_left_out(call) {
            let op_id = self.engine.pass()?;
            return self.finish(op_id);
        }
        let tried = self.pick(call, memory, true);
        self.ready(call, memory)?;
        let begun = tried.map(|way| (way, Instant::now()));
        // SAFETY: the caller's promise; the call is ready.
        unsafe { self.run_ready() }?;
        if let Some((way, at)) = begun {
            self.ways.took(bytes_of(call), way, at.elapsed());
        }
        Ok(())
    }

    /// Runs the call that is ready to its end.
    ///
    /// # Safety
    /// As for [`Local::begin`].
    unsafe fn run_ready(&mut self) -> Result<(), Error> {
        let interrupted = self.is_interrupted();
        let Self { last, engine, seat, patience, .. } = self;
        let Some(Prepared { call, quick, .. }) = last else { return Err(NOT_READY) };
        let mut begun = Quick::No;
        if let Some(print) = quick.as_ref().filter(|_| !interrupted) {
            let (mut looks, mut yields) = (0, Yields::default());
            let folds = call.config.schedule != Schedule::OneShot;
            let wait = || patience.look(&mut looks, folds, seat.as_mut(), &mut yields);
            // SAFETY: the caller's promise.
            begun = unsafe { engine.quick(call, print, wait) }?;
        }
        let op_id = match begun {
            Quick::Done => return Ok(()),
            Quick::Begun(op_id) => op_id,
            // SAFETY: the caller's promise.
            Quick::No => unsafe { engine.begin(call) }?,
        };
        self.finish(op_id)
    }

    /// Do the ranks make this call without this member, which has no data?
    fn is_left_out(&self, call: &Call) -> bool {
        let ranks = self.shared.ranks;
        let without = |plan: Plan| self.rank >= plan.schedule.members(ranks);
        self.rank >= ranks && self.shared.plans.now().plan_of(call).is_ok_and(without)
    }

    /// Prepares a call like the last one, or as a new one.
    fn ready(&mut self, call: &Call, memory: Memory) -> Result<(), Error> {
        let lies = [memory.input, memory.output].map(|at| self.lies(HostPtr::new(at)));
        let key = Key { call: *call, in_place: memory.in_place, lies };
        if self.last.as_ref().is_none_or(|last| last.key != key) {
            let prepared = self.prepare(key);
            self.last = Some(self.counted(prepared)?);
        }
        let Some(Prepared { call, scratch, .. }) = &mut self.last else { return Err(NOT_READY) };
        let channel = self.engine.channel(self.engine.next_op());
        // The channel is free, so nobody uses its scratch.
        let (device, pool) = (self.device.as_ref(), &self.shared.pool);
        let slots = match self.scratch[channel].at_least(*scratch, device, pool) {
            Ok(slots) => slots,
            Err(error) => return self.counted(Err(error)),
        };
        let (input, output) = (HostPtr::new(memory.input), HostPtr::new(memory.output));
        call.buffers = Buffers { input, output, scratch: slots };
        Ok(())
    }

    /// Picks the way of a call's ordinary memory; returns it if the call may try it and shall be
    /// timed.
    fn pick(&self, call: &Call, memory: Memory, timed: bool) -> Option<Way> {
        let device = self.engine.device();
        let seen = [memory.input, memory.output].iter().all(|at| device.is_seen(HostPtr::new(*at)));
        let (way, open) = if seen { (Way::Bounce, false) } else { self.ways.way(bytes_of(call)) };
        device.attach.set(way == Way::Attach && (timed || !open));
        (timed && open).then_some(way)
    }

    /// Who reaches a tensor of the call that begins next.
    fn lies(&self, at: HostPtr) -> Lies {
        let device = self.engine.device();
        match device.is_shared(at) {
            true if device.is_seen(at) => Lies::Seen,
            true => Lies::Away,
            false => Lies::Private,
        }
    }

    /// Everything about a call but its memory.
    fn prepare(&self, key: Key) -> Result<Prepared, Error> {
        let options = self.shared.plans.now();
        let plan = options.plan_of(&key.call)?;
        let Call { kind, dtype, op, weight, count, .. } = key.call;
        let ranks = self.shared.ranks;
        let [input_private, output_private] = key.lies.map(|lies| lies == Lies::Private);
        // What a device copies goes through its own memory.
        let copied = self.device.is_none() && key.lies != [Lies::Seen; 2];
        let window = if copied { options.window_of_copied(&plan, dtype) } else { plan.window };
        let mut config = Config {
            epoch: 0,
            op_id: 0,
            rank: self.rank,
            schedule: plan.schedule,
            schedule_print: plan.print,
            layout: Layout { kind, ranks, count, chunk: plan.chunk, root: key.call.agreed_root() },
            dtype,
            op,
            weight,
            window,
            eager: plan.eager,
            slots: 0,
            by_bytes: 0,
            puts: 0,
            in_place: key.in_place,
            input_private,
            output_private,
            sources_max: 0,
            dests_max: 0,
            deadline: None,
        };
        self.engine.fit(&mut config)?;
        // Checked: a slot has at most 2^32 bytes, and there are at most 31 a lane.
        let lanes = config.layout.chunks().min(u64::from(config.window));
        let scratch = (config.slot_bytes() * u64::from(config.slots) * lanes) as usize;
        let nowhere = HostPtr::new(std::ptr::null_mut());
        let buffers = Buffers { input: nowhere, output: nowhere, scratch: nowhere };
        // Only a CPU folds at once, and reads and writes what others cannot reach; boards have
        // machines, and nothing else.
        let alone = self.device.is_none() && !self.shared.boards.any();
        let quick = alone && self.engine.is_quick(&config);
        let quick = quick.then(|| config.fingerprint());
        let call = unisono_runtime::Call { config, buffers, source_ready: u64::MAX };
        Ok(Prepared { key, call, scratch, quick })
    }

    /// Counts a call that was refused before it began, as the other ranks count it, and lets them
    /// know; passes the error on.
    pub fn counted<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() && !self.engine.refuse() {
            // Not counted: the caller has to wait for a call and make this one again.
            return Err(Error::Busy(self.engine.channels()));
        }
        result
    }
}
