//! All-reduces of one step or two without a machine.
//!
//! Where each member folds once and all memory is shared, a call is: send a frame to every peer,
//! wait for theirs, fold, and, unless everybody folds everything, tell the peers and wait until
//! they tell. A machine costs more than that takes for small tensors, and a part of it that can be
//! measured up to 256 KiB, so it is tried here first, with the very frames that a machine sends and
//! expects: a peer cannot tell, and may do the same or not.
//!
//! What comes is only looked at until all of a step is there; if anything is missing for too long
//! or is not exactly what it should be (another call, an abort, the end of a link), a machine takes
//! over. It is told what has been done already ([`Engine::replay`]): it is deterministic, so it
//! asks for just that, and need not be given it again.

mod direct;
mod one_shot;

use crate::engine::{BeginError, Engine, WIDTH};
use crate::slot::{Buffers, Call, Slot, State};
use heapless::Vec;
use unisono_core::fold::{Finish, Form, Source, leaf_merges};
use unisono_core::machine::{Action, Config, Payload, RankSet, Room};
use unisono_core::route::Rank;
use unisono_core::wire::frame::{Body, Data, Fingerprint, Header, Phase};
use unisono_core::{Kind, Scalar, Schedule};
use unisono_driver::{Arrived, Device, Fold, Link, Memory};

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quick {
    /// It is over, and its result is where it should be.
    Done,
    /// A machine runs it; this is its number.
    Begun(u64),
    /// Not begun: there are other calls in flight, or no room. Begin it as usual.
    No,
}

/// What has been done of a call.
#[derive(Default)]
struct Past {
    /// All of it.
    done: bool,
    /// The contributions that were sent are complete: they were copied.
    copied: bool,
    /// The fold of this chunk.
    folded: Option<u64>,
    /// Its result was sent.
    told: bool,
    /// The device has failed before everything was sent.
    failed: bool,
    /// Peers to whom something could not be sent.
    lost: RankSet,
}

/// The call and its memory, and what all its frames have in common.
struct Plan<'a, M> {
    config: &'a Config,
    buffers: Buffers<M>,
    epoch: u32,
    op: u64,
    print: &'a Fingerprint,
    channel: usize,
}

impl<'a, M: Memory> Plan<'a, M> {
    fn new(
        call: &'a Call<M>,
        op: u64,
        print: &'a Fingerprint,
        (epoch, channel): (u32, usize),
    ) -> Self {
        Self { config: &call.config, buffers: call.buffers, epoch, op, print, channel }
    }

    /// The frame from a member that carries a chunk's contribution or result.
    fn frame(&self, from: Rank, chunk: u64, phase: Phase) -> Header {
        let form = if phase == Phase::Result { Form::Final } else { Form::Leaf };
        let (weight, limit) = (self.config.frame_weight(form), self.config.layout.chunks());
        let bytes = self.bytes(chunk) as u32;
        let body = Body::Data(Data { chunk, phase, form, weight, limit, bytes });
        Header { epoch: self.epoch, op: self.op, from, print: *self.print, body }
    }

    /// Where a chunk lies in the input and in the output.
    fn at(&self, chunk: u64) -> (M, M) {
        let at = self.config.bytes(chunk * self.config.layout.chunk, Form::Leaf);
        (self.buffers.input.offset(at), self.buffers.output.offset(at))
    }

    /// Where a machine copies what a chunk's lane has to send from memory that peers do not reach.
    fn slot(&self, chunk: u64) -> M {
        let slots = chunk * u64::from(self.config.slots);
        self.buffers.scratch.offset(slots * self.config.slot_bytes())
    }

    /// Bytes of a chunk, as a leaf and as a result.
    const fn bytes(&self, chunk: u64) -> usize {
        self.config.bytes(self.config.layout.len(chunk), Form::Leaf) as usize
    }

    /// The frame of a peer, if it is the right one, at the head of its link; `None` if it has not
    /// come when `wait` says false, or is something else.
    fn look<L: Link<Mem = M>>(
        &self,
        link: &mut L,
        want: &Header,
        wait: &mut impl FnMut() -> bool,
    ) -> Option<(Scalar, Arrived<M>)> {
        loop {
            if let Some(frame) = link.poll_frame(self.channel).ok()? {
                let (Body::Data(data), Body::Data(mine)) = (frame.header.body, want.body) else {
                    return None;
                };
                // The weight is the peer's own, and its limit says nothing that matters here.
                let body = Data { weight: data.weight, limit: data.limit, ..mine };
                let right = frame.header == Header { body: Body::Data(body), ..*want };
                return right.then_some((data.weight, frame.payload));
            }
            if !wait() {
                return None;
            }
        }
    }
}

impl<D, L, const OPS: usize, const W: usize, const R: usize, const P: usize>
    Engine<D, L, OPS, W, R, P>
where
    D: Device,
    L: Link<Mem = D::Mem>,
{
    /// Can [`Engine::quick`] run this call? It has been fitted ([`Engine::fit`]).
    #[must_use]
    pub fn is_quick(&self, config: &Config) -> bool {
        let Config { layout, schedule, .. } = config;
        // Everything is granted from the start, so no frames but those with data are ever due.
        layout.kind == Kind::AllReduce
            && (2..=config.sources_max.min(WIDTH as u16)).contains(&layout.ranks)
            && layout.chunks() <= config.eager.min(config.window.into())
            && self.links.iter().flatten().all(|link| link.caps().spans)
            && match schedule {
                Schedule::OneShot => one_shot::fits(config, &self.links),
                Schedule::Direct(owners) => direct::fits(config, owners),
                _ => false,
            }
    }

    /// Runs a call that [`Engine::is_quick`] and that has this fingerprint. `wait` is called after
    /// each look in vain for a peer's frame; once it says false, a machine gets the call. Waits for
    /// the device, which should be one that folds at once.
    ///
    /// # Safety
    /// As for [`Engine::begin`], until it is over or [`Quick::No`].
    ///
    /// # Errors
    /// As for [`Engine::begin`].
    pub unsafe fn quick(
        &mut self,
        call: &mut Call<D::Mem>,
        print: &Fingerprint,
        mut wait: impl FnMut() -> bool,
    ) -> Result<Quick, BeginError> {
        let free = |slot: &Slot<_, W, R, P>| slot.state == State::Free && !slot.failed;
        if !self.slots.iter().all(free) || !self.device.has_room() {
            return Ok(Quick::No);
        }
        let (op, at) = (self.next_op, (self.epoch, self.channel(self.next_op)));
        let plan = Plan::new(call, op, print, at);
        let past = if let Schedule::Direct(owners) = &plan.config.schedule {
            // SAFETY: the caller's promise.
            unsafe { self.direct(&plan, owners, &mut wait) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.one_shot(&plan, &mut wait) }
        };
        let Some(past) = past else { return Ok(Quick::No) };
        if past.done {
            self.next_op += 1;
            return Ok(Quick::Done);
        }
        // SAFETY: the caller's promise.
        let begun = unsafe { self.begin(call)? };
        self.replay(&Plan::new(call, op, print, at), &past);
        Ok(Quick::Begun(begun))
    }

    /// Lets the machine of a call that has just begun ask for what has been done of it, before
    /// anything is listened to: a peer that has the frames may be done and gone.
    fn replay(&mut self, plan: &Plan<'_, D::Mem>, past: &Past) {
        let index = plan.channel;
        // No contribution is here, so there are no jobs but copies to where peers read them.
        while let Some(action) = self.ask(index) {
            match action {
                Action::Send { token, .. } if past.copied => {
                    self.slots[index].machine.handle_sent(token);
                }
                Action::Copy { lane, from, to, bytes } if past.copied => {
                    self.submit(index, lane, Some((from, to, bytes)));
                    while self.slots[index].jobs > 0 {
                        self.device.flush();
                        self.complete();
                    }
                }
                Action::Copy { lane, .. } => self.slots[index].machine.handle_done(lane, |_| {}),
                _ => {}
            }
        }
        if let Some(chunk) = past.folded {
            self.replay_fold(plan, chunk);
        }
        while past.told
            && let Some(action) = self.ask(index)
        {
            if let Action::Send { token, .. } = action {
                self.slots[index].machine.handle_sent(token);
            }
        }
        if past.failed {
            self.slots[index].machine.handle_device_error();
        }
        if past.lost != 0 {
            // They may have said why before they went.
            self.listen(index);
        }
        for rank in (0..plan.config.layout.ranks).filter(|rank| past.lost >> rank & 1 == 1) {
            self.slots[index].machine.handle_peer_lost(rank);
        }
    }

    /// The part of [`Engine::replay`] that is about the fold of this member's own chunk.
    fn replay_fold(&mut self, plan: &Plan<'_, D::Mem>, chunk: u64) {
        let machine = &mut self.slots[plan.channel].machine;
        // It reads nothing, so that may be anywhere.
        let (mem, window) = (plan.buffers.input, Some(plan.buffers.output));
        for (rank, _) in self.links.iter().enumerate().filter(|(_, link)| link.is_some()) {
            let frame = plan.frame(rank as Rank, chunk, Phase::Contribution);
            machine.handle_frame(&frame, Some(Payload::At { mem, window, handle: 0 }), None);
        }
        if let Some(Action::Fold { lane }) = machine.poll_action(&mut Granted) {
            machine.handle_done(lane, |_| {});
        }
    }

    /// The next thing that the machine of a channel wants, whether there is room for it or not.
    fn ask(&mut self, index: usize) -> Option<Action<D::Mem>> {
        self.slots[index].machine.poll_action(&mut Granted)
    }

    /// Waits for what every peer contributes to a chunk, and folds it into the output and, with
    /// `answer`, into the peers' windows; false if that is not to be: then nothing was taken.
    ///
    /// # Safety
    /// As for [`Engine::quick`].
    unsafe fn gather(
        &mut self,
        plan: &Plan<'_, D::Mem>,
        (chunk, answer): (u64, bool),
        wait: &mut impl FnMut() -> bool,
    ) -> bool {
        let (config, channel) = (plan.config, plan.channel);
        let ranks = config.layout.ranks;
        let (input, output) = plan.at(chunk);
        let mut sources: Vec<Source<D::Mem>, WIDTH> = Vec::new();
        // There is room for all: `is_quick` has counted the ranks.
        let mut dests: Vec<D::Mem, WIDTH> = Vec::new();
        let mut handles: Vec<u32, WIDTH> = Vec::new();
        let _ = dests.push(output);
        let links = self.links.iter_mut().enumerate();
        for ((rank, link), merges) in links.zip(leaf_merges(ranks.into())) {
            let (mem, weight) = if let Some(link) = link {
                let want = plan.frame(rank as Rank, chunk, Phase::Contribution);
                let Some((weight, arrived)) = plan.look(link, &want, wait) else { return false };
                let Arrived::Span { mem, window, handle } = arrived else { return false };
                let _ = handles.push(handle);
                if answer {
                    let Some(window) = window else { return false };
                    let _ = dests.push(window);
                }
                (mem, weight)
            } else {
                (input, config.weight)
            };
            let _ = sources.push(Source { mem, form: Form::Leaf, weight, merges });
        }
        let work = Fold {
            dtype: config.dtype,
            op: config.op,
            count: config.layout.len(chunk) as usize,
            sources: &sources,
            dests: &dests,
            finish: Finish::Final { ranks: ranks.into() },
        };
        // A peer that has lent its tensor may take it back.
        let mut locked = 0;
        for (link, handle) in self.links.iter_mut().flatten().zip(&handles) {
            if !link.enter(channel, *handle) {
                break;
            }
            locked += 1;
        }
        // SAFETY: own buffers are the call's; what peers have lent is locked.
        let done = locked == handles.len()
            && unsafe { fold_now(&mut self.device, &work) }
                .map_err(|error| self.device_error = Some(error))
                .is_ok();
        for (link, handle) in self.links.iter_mut().flatten().zip(&handles).take(locked) {
            link.exit(channel, *handle, done && answer);
        }
        if done {
            for (link, handle) in self.links.iter_mut().flatten().zip(handles) {
                link.take(channel);
                link.release(channel, handle);
            }
        }
        done
    }
}

/// Room for everything: what is asked for has been done.
struct Granted;

impl Room for Granted {
    fn send(&mut self, _: Rank) -> bool {
        true
    }

    fn device(&mut self) -> bool {
        true
    }
}

/// Folds and waits for it.
///
/// # Safety
/// As for [`Device::fold`].
unsafe fn fold_now<D: Device>(device: &mut D, work: &Fold<'_, D::Mem>) -> Result<(), D::Error> {
    // SAFETY: the caller's promise.
    unsafe { device.fold(work, 0) }?;
    until_done(device)
}

/// Waits for the only job that a device has.
fn until_done<D: Device>(device: &mut D) -> Result<(), D::Error> {
    loop {
        if let Some(done) = device.poll_done() {
            return done.result;
        }
        device.flush();
    }
}
