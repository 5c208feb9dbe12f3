//! The engine itself.

use crate::slot::{Buffers, Call, Slot, State};
use core::time::Duration;
use heapless::Vec;
use unisono_core::fold::Source;
use unisono_core::machine::{Action, Config, ConfigError, Payload, Place, Refused, Room, Status};
use unisono_core::route::Rank;
use unisono_core::time::Instant;
use unisono_core::wire::frame::{Abort, Body, Header};
use unisono_driver::{Arrived, Copy, Device, Fold, Incoming, Link, Memory, Outgoing};

/// Most sources and destinations of one fold, whatever the device could do.
const WIDTH: usize = 32;

/// How long peers that have no room are still told about an abort.
const ABORT_GRACE: Duration = Duration::from_millis(200);

/// Why a call could not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// As many calls are in flight as there are channels.
    #[error("{0} calls are in flight already: wait for the oldest one")]
    Busy(usize),
    /// The configuration cannot run.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Joins one member's machines, device and links.
///
/// * `OPS`: calls in flight, the same on every member (a call's channel is its number mod `OPS`).
/// * `W`, `R`, `P`: as in [`unisono_core::machine::Machine`].
pub struct Engine<D: Device, L, const OPS: usize, const W: usize, const R: usize, const P: usize> {
    rank: Rank,
    epoch: u32,
    next_op: u64,
    device: D,
    links: Vec<Option<L>, P>,
    slots: [Slot<D::Mem, W, R, P>; OPS],
    device_error: Option<D::Error>,
}

impl<D, L, const OPS: usize, const W: usize, const R: usize, const P: usize>
    Engine<D, L, OPS, W, R, P>
where
    D: Device,
    L: Link<Mem = D::Mem>,
{
    /// An engine for `rank`; `links` are indexed by rank, without one to itself.
    #[must_use]
    pub const fn new(rank: Rank, epoch: u32, device: D, links: Vec<Option<L>, P>) -> Self {
        let slots = [const { Slot::new() }; OPS];
        Self { rank, epoch, next_op: 0, device, links, slots, device_error: None }
    }

    /// The device.
    pub const fn device(&self) -> &D {
        &self.device
    }

    /// Number that the next call will get; the same on every member.
    pub const fn next_op(&self) -> u64 {
        self.next_op
    }

    /// Skips call numbers, so that members that have made a different number of calls meet again.
    /// Nothing may be in flight.
    pub const fn skip_to(&mut self, op_id: u64) {
        if op_id > self.next_op {
            self.next_op = op_id;
        }
    }

    /// The links, indexed by rank.
    pub fn links(&self) -> &[Option<L>] {
        &self.links
    }

    /// What the device said when it last failed.
    pub const fn device_error(&self) -> Option<&D::Error> {
        self.device_error.as_ref()
    }

    /// Fills in what this member's device and links can do, as [`Engine::begin`] will, so that the
    /// caller can ask [`Config::slots_min`] before.
    pub fn limit(&self, config: &mut Config) {
        limit(&self.device, &self.links, config);
    }

    /// Begins a call and returns its number. Also a call that is refused counts, as it does on the
    /// other members.
    ///
    /// # Safety
    /// The buffers must be valid for the layout's input, output and scratch, and be used by nobody
    /// else, until [`Engine::result`] has returned the call's result.
    ///
    /// # Errors
    /// [`BeginError`]; nothing was sent then.
    pub unsafe fn begin(&mut self, call: Call<D::Mem>) -> Result<u64, BeginError> {
        let op_id = self.next_op;
        let slot = &mut self.slots[(op_id % OPS as u64) as usize];
        if slot.state != State::Free {
            return Err(BeginError::Busy(OPS));
        }
        self.next_op += 1;
        let mut config = call.config;
        config.epoch = self.epoch;
        config.op_id = op_id;
        config.rank = self.rank;
        limit(&self.device, &self.links, &mut config);
        slot.slot_bytes = config.slot_bytes();
        slot.op_id = op_id;
        slot.buffers = Some(call.buffers);
        slot.jobs = 0;
        slot.receiving = [None; P];
        slot.machine.start(config, call.source_ready)?;
        slot.state = State::Running;
        Ok(op_id)
    }

    /// Does what can be done now; true if anything was.
    pub fn poll(&mut self, now: Instant) -> bool {
        let mut worked = false;
        for index in 0..OPS {
            if matches!(self.slots[index].state, State::Running | State::Failing(_)) {
                worked |= self.act(index);
                worked |= self.listen(index);
                worked |= self.act(index);
                worked |= self.complete();
                self.conclude(index, now);
            }
        }
        worked
    }

    /// Deadlines; call it now and then (it is apart from [`Engine::poll`] because reading a clock
    /// costs as much as a small message).
    pub fn handle_time(&mut self, now: Instant) {
        for slot in &mut self.slots {
            match slot.state {
                State::Running => slot.machine.handle_timeout(now),
                State::Failing(since) if now >= since.saturating_add(ABORT_GRACE) => {
                    slot.machine.stop_telling();
                }
                _ => {}
            }
        }
    }

    /// The result of a call, once; `None` while it runs (or if there is no such call).
    pub fn result(&mut self, op_id: u64) -> Option<Result<(), Abort>> {
        let slot = self.slot_mut(op_id)?;
        let State::Over(result) = slot.state else { return None };
        slot.state = State::Free;
        Some(result)
    }

    /// Gives a call up on all members.
    pub fn cancel(&mut self, op_id: u64) {
        if let Some(slot) = self.slot_mut(op_id) {
            slot.machine.cancel();
        }
    }

    /// More of a call's input is final.
    pub fn source_ready(&mut self, op_id: u64, upto: u64) {
        if let Some(slot) = self.slot_mut(op_id) {
            slot.machine.source_ready(upto);
        }
    }

    /// Elements from the start of the output that are final.
    pub fn progress(&self, op_id: u64) -> Option<u64> {
        let slot = &self.slots[(op_id % OPS as u64) as usize];
        (slot.op_id == op_id && slot.state != State::Free).then(|| slot.machine.progress())
    }

    fn slot_mut(&mut self, op_id: u64) -> Option<&mut Slot<D::Mem, W, R, P>> {
        let slot = &mut self.slots[(op_id % OPS as u64) as usize];
        (slot.op_id == op_id && slot.state != State::Free).then_some(slot)
    }

    /// Takes in frames and completed sends of one channel.
    fn listen(&mut self, index: usize) -> bool {
        let mut worked = false;
        for from in 0..self.links.len() {
            let Some(link) = &mut self.links[from] else { continue };
            let slot = &mut self.slots[index];
            while let Some(token) = link.poll_sent(index) {
                slot.machine.handle_sent(token);
                worked = true;
            }
            loop {
                match link.poll_frame(index) {
                    Ok(None) => break,
                    Ok(Some(frame)) => {
                        if !take_frame(link, slot, index, from as Rank, self.epoch, &frame) {
                            break;
                        }
                        worked = true;
                    }
                    Err(_) => {
                        // A peer that has finished the call may have left already.
                        if slot.machine.needs(from as Rank) {
                            slot.machine.handle_peer_lost(from as Rank);
                        }
                        break;
                    }
                }
            }
        }
        worked
    }

    /// Carries out what the machine of one channel wants.
    fn act(&mut self, index: usize) -> bool {
        let mut worked = false;
        loop {
            let mut room = Now { device: &self.device, links: &mut self.links, channel: index };
            let Some(action) = self.slots[index].machine.poll_action(&mut room) else {
                return worked;
            };
            worked = true;
            match action {
                Action::Control { to, body } => self.send(index, to, body, Outgoing::None, 0),
                Action::Send { to, data, payload, window, token } => {
                    let slot = &self.slots[index];
                    let Some(buffers) = slot.buffers else { continue };
                    let at = |place| buffers.at(place, slot.slot_bytes);
                    let out = match payload {
                        None => Outgoing::Put,
                        Some(place) => Outgoing::At {
                            mem: at(place),
                            bytes: data.bytes as usize,
                            window: window.map(at),
                        },
                    };
                    let put = payload.is_none();
                    self.send(index, to, Body::Data(data), out, token);
                    if put {
                        self.slots[index].machine.handle_sent(token);
                    }
                }
                Action::Fold { lane } => {
                    if !self.submit(index, lane, None) {
                        return worked;
                    }
                }
                Action::Copy { lane, from, to, bytes } => {
                    if !self.submit(index, lane, Some((from, to, bytes))) {
                        return worked;
                    }
                }
            }
        }
    }

    fn send(&mut self, index: usize, to: Rank, body: Body, payload: Outgoing<D::Mem>, token: u32) {
        let slot = &mut self.slots[index];
        let header = Header {
            epoch: self.epoch,
            op: slot.op_id,
            from: self.rank,
            print: slot.machine.fingerprint(),
            body,
        };
        let sent = match self.links.get_mut(usize::from(to)) {
            // SAFETY: the machine keeps a payload unchanged until its completion, and `begin`'s
            // caller keeps the buffers until `result`, which waits for `withdraw`.
            Some(Some(link)) => unsafe { link.send(index, &header, payload, token).is_ok() },
            _ => false,
        };
        if !sent {
            slot.machine.handle_peer_lost(to);
        }
    }

    /// Gives a lane's job to the device; false if it could not be started now.
    fn submit(
        &mut self,
        index: usize,
        lane: u16,
        copy: Option<(Place<D::Mem>, Place<D::Mem>, u64)>,
    ) -> bool {
        if !self.lock(index, lane) {
            self.slots[index].machine.handle_refused(lane);
            return false;
        }
        let slot = &self.slots[index];
        let Some(buffers) = slot.buffers else { return false };
        let token = (index as u32) << 16 | u32::from(lane);
        let started = match copy {
            Some((from, to, bytes)) => {
                let from = buffers.at(from, slot.slot_bytes);
                let to = buffers.at(to, slot.slot_bytes);
                let work = Copy { from, to, bytes: bytes as usize };
                // SAFETY: own buffers are the call's; a peer's span has just been locked.
                unsafe { self.device.copy(&work, token) }
            }
            None => fold(&mut self.device, slot, &buffers, lane, token),
        };
        match started {
            Ok(()) => self.slots[index].jobs += 1,
            Err(error) => {
                self.device_error = Some(error);
                self.unlock(index, lane);
                self.slots[index].machine.handle_device_error();
            }
        }
        true
    }

    fn lock(&mut self, index: usize, lane: u16) -> bool {
        let machine = &self.slots[index].machine;
        let mut locked = 0;
        let mut all = true;
        for held in machine.holds(lane) {
            let link = self.links.get_mut(usize::from(held.from)).and_then(Option::as_mut);
            all = link.is_some_and(|l| l.enter(index, held.handle));
            if !all {
                break;
            }
            locked += 1;
        }
        if !all {
            for held in machine.holds(lane).take(locked) {
                if let Some(Some(link)) = self.links.get_mut(usize::from(held.from)) {
                    link.exit(index, held.handle);
                }
            }
        }
        all
    }

    fn unlock(&mut self, index: usize, lane: u16) {
        for held in self.slots[index].machine.holds(lane) {
            if let Some(Some(link)) = self.links.get_mut(usize::from(held.from)) {
                link.exit(index, held.handle);
            }
        }
    }

    /// Takes in what the device has completed, for whichever call.
    fn complete(&mut self) -> bool {
        let mut worked = false;
        while let Some(done) = self.device.poll_done() {
            worked = true;
            let (index, lane) = ((done.token >> 16) as usize, done.token as u16);
            if index >= OPS {
                continue;
            }
            self.unlock(index, lane);
            let slot = &mut self.slots[index];
            slot.jobs = slot.jobs.saturating_sub(1);
            if let Err(error) = done.result {
                self.device_error = Some(error);
                slot.machine.handle_device_error();
                continue;
            }
            let links = &mut self.links;
            slot.machine.handle_done(lane, |r| {
                if let Some(Some(link)) = links.get_mut(usize::from(r.from)) {
                    link.release(index, r.handle);
                }
            });
        }
        worked
    }

    /// Notices the end of a call and takes its memory back from everybody.
    fn conclude(&mut self, index: usize, now: Instant) {
        let slot = &mut self.slots[index];
        match (slot.state, slot.machine.status()) {
            (_, Status::Done) => slot.state = State::Over(Ok(())),
            (State::Running, Status::Failing(_) | Status::Failed(_)) => {
                slot.state = State::Failing(now);
            }
            (State::Failing(_), Status::Failed(why)) if slot.jobs == 0 => {
                let back = self.links.iter_mut().flatten().fold(true, |all, l| {
                    // Every link is asked, also after one that is not ready.
                    l.withdraw(index) && all
                });
                if back {
                    let links = &mut self.links;
                    slot.machine.abandon(|r| {
                        if let Some(Some(link)) = links.get_mut(usize::from(r.from)) {
                            link.release(index, r.handle);
                        }
                    });
                    slot.state = State::Over(Err(why));
                }
            }
            _ => {}
        }
    }
}

/// What device and links can do for a call.
fn limit<D: Device, L: Link>(device: &D, links: &[Option<L>], config: &mut Config) {
    let caps = device.caps();
    config.sources_max = caps.sources_max.min(WIDTH) as u16;
    config.dests_max = caps.dests_max.min(WIDTH) as u16;
    config.by_bytes = 0;
    config.puts = 0;
    for (p, link) in links.iter().enumerate() {
        let Some(caps) = link.as_ref().map(Link::caps) else { continue };
        config.by_bytes |= u128::from(!caps.spans) << p;
        config.puts |= u128::from(caps.puts) << p;
    }
}

/// Hands one frame to the machine; false if it has to stay in the link for now.
fn take_frame<L, M, const W: usize, const R: usize, const P: usize>(
    link: &mut L,
    slot: &mut Slot<M, W, R, P>,
    channel: usize,
    from: Rank,
    epoch: u32,
    frame: &Incoming<M>,
) -> bool
where
    L: Link<Mem = M>,
    M: Memory,
{
    let header = &frame.header;
    if header.epoch == epoch && header.op > slot.op_id {
        // A call that this member has not begun yet: its frames wait in their own channel.
        return false;
    }
    let ours = header.epoch == epoch && header.op == slot.op_id && header.from == from;
    match frame.payload {
        Arrived::Stream => return receive(link, slot, channel, usize::from(from), header, ours),
        Arrived::Span { mem, window, handle } => {
            link.take(channel);
            let at = Payload::At { mem, window, handle };
            if !ours || !slot.machine.handle_frame(header, Some(at), None) {
                link.release(channel, handle);
            }
        }
        Arrived::Put | Arrived::None => {
            link.take(channel);
            let payload = matches!(frame.payload, Arrived::Put).then_some(Payload::Put);
            if ours {
                slot.machine.handle_frame(header, payload, None);
            }
        }
    }
    true
}

/// Receives a payload that comes as bytes; false if it is not all there yet.
fn receive<L, M, const W: usize, const R: usize, const P: usize>(
    link: &mut L,
    slot: &mut Slot<M, W, R, P>,
    channel: usize,
    from: usize,
    header: &Header,
    ours: bool,
) -> bool
where
    L: Link<Mem = M>,
    M: Memory,
{
    if ours && slot.receiving[from].is_none() {
        match slot.machine.placement(header) {
            Ok(place) => slot.receiving[from] = Some(place),
            Err(Refused::Later) => return false,
            Err(Refused::Discard) => {}
        }
    }
    let place = if ours { slot.receiving[from] } else { None };
    let into = match (place, &slot.buffers) {
        (Some(place), Some(buffers)) => Some(buffers.at(place, slot.slot_bytes)),
        _ => None,
    };
    // SAFETY: the machine named a place of this call that is free for exactly this payload.
    match unsafe { link.receive(channel, into) } {
        Ok(true) => {
            slot.receiving[from] = None;
            if place.is_some() {
                slot.machine.handle_frame(header, Some(Payload::Placed), place);
            }
            true
        }
        Ok(false) => false,
        Err(_) => {
            slot.machine.handle_peer_lost(from as Rank);
            false
        }
    }
}

/// Gives a lane's fold to the device.
fn fold<D: Device, const W: usize, const R: usize, const P: usize>(
    device: &mut D,
    slot: &Slot<D::Mem, W, R, P>,
    buffers: &Buffers<D::Mem>,
    lane: u16,
    token: u32,
) -> Result<(), D::Error> {
    let mut places: Vec<Source<Place<D::Mem>>, WIDTH> = Vec::new();
    let mut targets: Vec<Place<D::Mem>, WIDTH> = Vec::new();
    let (Some(job), Some(cfg)) =
        (slot.machine.fold_job(lane, &mut places, &mut targets), slot.machine.config())
    else {
        // `sources_max` and `dests_max` are at most WIDTH, and the machine has just made the job.
        unreachable!("a fold action always has a job that fits");
    };
    let at = |place| buffers.at(place, slot.slot_bytes);
    let sources: Vec<Source<D::Mem>, WIDTH> = places
        .iter()
        .map(|s| Source { mem: at(s.mem), form: s.form, weight: s.weight, merges: s.merges })
        .collect();
    let dests: Vec<D::Mem, WIDTH> = targets.iter().map(|p| at(*p)).collect();
    let work = Fold {
        dtype: cfg.dtype,
        op: cfg.op,
        count: job.elems as usize,
        sources: &sources,
        dests: &dests,
        finish: job.finish,
    };
    // SAFETY: own buffers are the call's, peers' spans and windows have just been locked, and the
    // machine never lets two jobs write the same place.
    unsafe { device.fold(&work, token) }
}

/// What device and links can take right now.
struct Now<'a, D, L, const P: usize> {
    device: &'a D,
    links: &'a mut Vec<Option<L>, P>,
    channel: usize,
}

impl<D: Device, L: Link, const P: usize> Room for Now<'_, D, L, P> {
    fn send(&mut self, to: Rank) -> bool {
        // Without a link the send itself reports the loss.
        match self.links.get_mut(usize::from(to)) {
            Some(Some(link)) => link.has_room(self.channel),
            _ => true,
        }
    }

    fn device(&mut self) -> bool {
        self.device.has_room()
    }
}
