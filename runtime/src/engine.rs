//! The engine itself.

use crate::slot::{Call, Slot, State};
use core::time::Duration;
use heapless::Vec;
use unisono_core::machine::{Config, ConfigError, Status};
use unisono_core::route::Rank;
use unisono_core::time::Instant;
use unisono_core::wire::frame::{Abort, Body, Header};
use unisono_driver::{Device, Link, Outgoing};

/// Most sources and destinations of one fold, whatever the device could do.
pub(crate) const WIDTH: usize = 32;

/// How long peers that have no room are still told about an abort.
const ABORT_GRACE: Duration = Duration::from_millis(200);

/// Why a call could not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// The result of the call so many calls ago has not been taken: the two share a channel.
    #[error("the call that was begun {0} calls before this one has to be waited for first")]
    Busy(usize),
    /// The configuration cannot run.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Who uses the memory of a call that has been given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The member's own device.
    Device,
    /// A peer, or its device.
    Peer(Rank),
}

/// Joins one member's machines, device and links.
///
/// * `OPS`: most calls in flight. Links with fewer channels lower it ([`Engine::channels`]).
/// * `W`, `R`, `P`: as in [`unisono_core::machine::Machine`].
pub struct Engine<D: Device, L, const OPS: usize, const W: usize, const R: usize, const P: usize> {
    pub(crate) rank: Rank,
    pub(crate) epoch: u32,
    pub(crate) next_op: u64,
    pub(crate) device: D,
    pub(crate) links: Vec<Option<L>, P>,
    pub(crate) slots: [Slot<D::Mem, W, R, P>; OPS],
    pub(crate) device_error: Option<D::Error>,
    /// Channels less one; a power of two less one.
    mask: usize,
}

impl<D, L, const OPS: usize, const W: usize, const R: usize, const P: usize>
    Engine<D, L, OPS, W, R, P>
where
    D: Device,
    L: Link<Mem = D::Mem>,
{
    /// An engine for `rank`; `links` are indexed by rank, without one to itself.
    #[must_use]
    pub fn new(rank: Rank, epoch: u32, device: D, links: Vec<Option<L>, P>) -> Self {
        let slots = [const { Slot::new() }; OPS];
        let channels = links.iter().flatten().map(|link| link.caps().channels).min();
        let channels = channels.unwrap_or(OPS).clamp(1, OPS);
        // Calls take channels in turn, and finding the turn has to be cheap on small cores.
        let mask = (channels + 1).next_power_of_two() / 2 - 1;
        Self { rank, epoch, next_op: 0, device, links, slots, device_error: None, mask }
    }

    /// Calls that may be in flight: the largest power of two that `OPS` and every link allow. It
    /// has to be the same on every member, because a call's channel is its number modulo this.
    pub const fn channels(&self) -> usize {
        self.mask + 1
    }

    /// The channel of a call.
    pub const fn channel(&self, op_id: u64) -> usize {
        let index = op_id as usize & self.mask;
        // The mask is below; said again where the compiler sees it, there is no check of bounds.
        if index < OPS { index } else { OPS - 1 }
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

    /// Fills in what this member's device and links can do, and the fewest scratch slots if the
    /// caller has named none; then checks the call. Do this once for calls that are made again and
    /// again, before [`Engine::begin`]. The caller says whether peers reach the call's buffers
    /// ([`Device::is_shared`]).
    ///
    /// # Errors
    /// A configuration that cannot run.
    pub fn fit(&self, config: &mut Config) -> Result<(), ConfigError> {
        config.rank = self.rank;
        limit(&self.device, &self.links, config);
        if config.slots == 0 {
            config.slots = config.slots_min();
        }
        config.check(W, P)
    }

    /// Is there a channel for one more call now?
    pub fn has_channel(&self) -> bool {
        self.slots[self.channel(self.next_op)].state == State::Free
    }

    /// Counts a call that could not begin here, as the other members count it, and tells them, so
    /// that their calls fail at once instead of meeting this member's next one. False if there is
    /// no channel: then wait for the oldest call and say it again.
    pub fn refuse(&mut self) -> bool {
        if !self.has_channel() {
            return false;
        }
        self.tell_refused();
        true
    }

    /// Uses up the next number for a call that is refused, and tells the peers.
    fn tell_refused(&mut self) {
        let index = self.channel(self.next_op);
        let slot = &mut self.slots[index];
        // What peers send for this call must not stay in the links.
        slot.failed = true;
        let body = Body::Abort(Abort::Refused { rank: self.rank });
        let print = slot.machine.fingerprint();
        let header = Header { epoch: self.epoch, op: self.next_op, from: self.rank, print, body };
        for link in self.links.iter_mut().flatten() {
            if link.has_room(index) {
                // SAFETY: no payload. A link that is closed has nobody to tell.
                let _ = unsafe { link.send(index, &header, Outgoing::None, 0) };
            }
        }
        self.next_op += 1;
    }

    /// Begins a call and returns its number. Also a call that is refused counts, as it does on the
    /// other members. A prepared call is for buffers that peers reach, or do not, as when it was
    /// fitted.
    ///
    /// # Safety
    /// The buffers must be valid for the layout's input, output and scratch, and be used by nobody
    /// else, until [`Engine::result`] has returned the call's result.
    ///
    /// # Errors
    /// [`BeginError`]; nothing was sent then.
    pub unsafe fn begin(&mut self, call: &mut Call<D::Mem>) -> Result<u64, BeginError> {
        let op_id = self.next_op;
        let index = self.channel(op_id);
        let slot = &mut self.slots[index];
        if slot.state != State::Free {
            return Err(BeginError::Busy(self.channels()));
        }
        let config = &mut call.config;
        config.epoch = self.epoch;
        config.op_id = op_id;
        config.rank = self.rank;
        config.input_private = !self.device.is_shared(call.buffers.input);
        config.output_private = !self.device.is_shared(call.buffers.output);
        slot.slot_bytes = config.slot_bytes();
        slot.op_id = op_id;
        slot.buffers = Some(call.buffers);
        slot.jobs = 0;
        slot.refused = 0;
        if slot.failed {
            slot.receiving = [None; P];
        }
        if let Err(error) = slot.machine.start(config, call.source_ready) {
            self.tell_refused();
            return Err(error.into());
        }
        self.next_op += 1;
        slot.failed = false;
        slot.state = State::Running;
        slot.stirred = true;
        Ok(op_id)
    }

    /// Counts a call that the other members make without this one; it is over at once.
    ///
    /// # Errors
    /// [`BeginError::Busy`].
    pub fn pass(&mut self) -> Result<u64, BeginError> {
        if !self.has_channel() {
            return Err(BeginError::Busy(self.channels()));
        }
        let (op_id, index) = (self.next_op, self.channel(self.next_op));
        let slot = &mut self.slots[index];
        (slot.op_id, slot.state) = (op_id, State::Over(Ok(())));
        self.next_op += 1;
        Ok(op_id)
    }

    /// Does what can be done now; true if anything was.
    pub fn poll(&mut self) -> bool {
        let mut worked = self.complete();
        self.links.iter_mut().flatten().for_each(Link::poll);
        for index in 0..OPS.min(self.channels()) {
            match self.slots[index].state {
                State::Running | State::Failing(_) => {
                    worked |= self.listen(index);
                    if core::mem::take(&mut self.slots[index].stirred) {
                        worked |= self.act(index);
                        self.conclude(index);
                    }
                }
                State::Free | State::Over(_) if self.slots[index].failed => {
                    worked |= self.drain(index);
                }
                State::Free | State::Over(_) => {}
            }
        }
        self.device.flush();
        worked
    }

    /// When [`Engine::handle_time`] has to be called at the latest; `None` while no call waits.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let of = |slot: &Slot<D::Mem, W, R, P>| match slot.state {
            State::Running => slot.machine.poll_timeout(),
            State::Failing(since) => {
                Some(since.map_or(Instant::ZERO, |at| at.saturating_add(ABORT_GRACE)))
            }
            State::Free | State::Over(_) => None,
        };
        self.slots.iter().filter_map(of).min()
    }

    /// Deadlines; call it now and then (it is apart from [`Engine::poll`] because reading a clock
    /// costs as much as a small message).
    pub fn handle_time(&mut self, now: Instant) {
        for slot in &mut self.slots {
            slot.stirred = true;
            match slot.state {
                State::Running => slot.machine.handle_timeout(now),
                State::Failing(None) => slot.state = State::Failing(Some(now)),
                State::Failing(Some(since)) if now >= since.saturating_add(ABORT_GRACE) => {
                    slot.machine.stop_telling();
                }
                _ => {}
            }
        }
    }

    /// Sets or moves the deadline of a call.
    pub fn arm(&mut self, op_id: u64, deadline: Instant) {
        if let Some(slot) = self.slot_mut(op_id) {
            slot.machine.arm(deadline);
        }
    }

    /// The result of a call, once; `None` while it runs (or if there is no such call).
    pub fn result(&mut self, op_id: u64) -> Option<Result<(), Abort>> {
        let slot = self.slot_mut(op_id)?;
        let State::Over(result) = slot.state else { return None };
        slot.state = State::Free;
        Some(result)
    }

    /// Is there a result to be taken?
    pub fn is_over(&self, op_id: u64) -> bool {
        let slot = &self.slots[self.channel(op_id)];
        slot.op_id == op_id && matches!(slot.state, State::Over(_))
    }

    /// Since when a call that has been given up is not over, and who still uses its memory.
    pub fn holder(&mut self, op_id: u64) -> Option<(Instant, Holder)> {
        let index = self.channel(op_id);
        let slot = &self.slots[index];
        let State::Failing(Some(since)) = slot.state else { return None };
        if slot.op_id != op_id {
            return None;
        }
        if slot.jobs > 0 {
            return Some((since, Holder::Device));
        }
        let links = (0..).zip(&mut self.links);
        let mut links = links.filter_map(|(rank, link)| Some((rank, link.as_mut()?)));
        // Asking again changes nothing.
        let held = links.find_map(|(rank, link)| (!link.withdraw(index)).then_some(rank));
        held.map(|rank| (since, Holder::Peer(rank)))
    }

    /// Gives a call up on all members.
    pub fn cancel(&mut self, op_id: u64) {
        if let Some(slot) = self.slot_mut(op_id) {
            slot.machine.cancel();
            slot.stirred = true;
        }
    }

    /// More of a call's input is final.
    pub fn source_ready(&mut self, op_id: u64, upto: u64) {
        if let Some(slot) = self.slot_mut(op_id) {
            slot.machine.source_ready(upto);
            slot.stirred = true;
        }
    }

    /// Elements from the start of the output that are final.
    pub fn progress(&self, op_id: u64) -> Option<u64> {
        let slot = &self.slots[self.channel(op_id)];
        (slot.op_id == op_id && slot.state != State::Free).then(|| slot.machine.progress())
    }

    fn slot_mut(&mut self, op_id: u64) -> Option<&mut Slot<D::Mem, W, R, P>> {
        let index = self.channel(op_id);
        let slot = &mut self.slots[index];
        (slot.op_id == op_id && slot.state != State::Free).then_some(slot)
    }

    /// Notices the end of a call and takes its memory back from everybody.
    fn conclude(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        match (slot.state, slot.machine.status()) {
            (_, Status::Done) => slot.state = State::Over(Ok(())),
            (State::Running, Status::Failing(_) | Status::Failed(_)) => {
                slot.state = State::Failing(None);
            }
            (State::Failing(_), Status::Failed(why)) if slot.jobs == 0 => {
                let mut back = true;
                for link in self.links.iter_mut().flatten() {
                    // Every link is asked, also after one that is not ready.
                    back &= link.withdraw(index);
                }
                if back {
                    let links = &mut self.links;
                    slot.machine.abandon(|r| {
                        if let Some(Some(link)) = links.get_mut(usize::from(r.from)) {
                            link.release(index, r.handle);
                        }
                    });
                    slot.failed = true;
                    slot.state = State::Over(Err(why));
                }
            }
            _ => {}
        }
        // Peers are told and memory comes back without anything coming in.
        slot.stirred |= matches!(slot.state, State::Failing(_));
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
