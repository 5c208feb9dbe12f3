//! Small all-reduces without a machine.
//!
//! A one-shot call whose payload rides in its frames is: send one frame to every peer, wait for
//! theirs, fold once. A machine takes longer to begin and end than that takes, so it is tried here
//! first, with the very frames that a machine sends and expects: a peer cannot tell, and may do the
//! same or not. What comes is only looked at; as long as anything is missing or is not exactly what
//! it should be (another call, an abort, the end of a link), nothing is taken, and a machine can
//! begin the call as if its frames had just been sent.

use crate::engine::{BeginError, Engine, WIDTH};
use crate::slot::{Call, State};
use heapless::Vec;
use unisono_core::fold::{Finish, Form, Source, leaf_merges};
use unisono_core::machine::Config;
use unisono_core::route::Rank;
use unisono_core::wire::frame::{Body, Data, Fingerprint, Header, Phase};
use unisono_core::{Kind, Schedule};
use unisono_driver::{Arrived, Device, Fold, Link, Outgoing};

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
        let bytes = config.bytes(layout.count, Form::Leaf);
        let rides = |link: &L| bytes <= link.caps().inline_max as u64 && link.caps().spans;
        *schedule == Schedule::OneShot
            && layout.kind == Kind::AllReduce
            && (2..=config.sources_max.min(WIDTH as u16)).contains(&layout.ranks)
            && layout.chunks() == 1
            && config.eager > 0
            && self.links.iter().flatten().all(rides)
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
        wait: impl FnMut() -> bool,
    ) -> Result<Quick, BeginError> {
        let index = self.channel(self.next_op);
        let free = |slot: &crate::slot::Slot<_, W, R, P>| slot.state == State::Free && !slot.failed;
        let bytes = call.config.bytes(call.config.layout.count, Form::Leaf) as u32;
        let room = |link: &mut L| link.has_room(index) && link.copies(index, bytes as usize);
        if !self.slots.iter().all(free)
            || !self.device.has_room()
            || !self.links.iter_mut().flatten().all(room)
        {
            return Ok(Quick::No);
        }
        let config = &call.config;
        let (phase, form) = (Phase::Contribution, Form::Leaf);
        let data = Data { chunk: 0, phase, form, weight: config.weight, limit: 1, bytes };
        let (epoch, op, from) = (self.epoch, self.next_op, self.rank);
        let own = Header { epoch, op, from, print: *print, body: Body::Data(data) };
        let out = Outgoing::At { mem: call.buffers.input, bytes: bytes as usize, window: None };
        for link in self.links.iter_mut().flatten() {
            // SAFETY: copied while it is sent. A link that is closed says so to whoever waits.
            if unsafe { link.send(index, &own, out, 0) }.is_ok() {
                link.poll_sent(index);
            }
        }
        // SAFETY: the caller's promise.
        if unsafe { self.gather(index, call, &own, wait) } {
            self.next_op += 1;
            return Ok(Quick::Done);
        }
        // SAFETY: the caller's promise.
        let begun = unsafe { self.begin(call)? };
        self.slots[index].sent = true;
        // Before anything is listened to: a peer that has those frames may be done and gone.
        self.act(index);
        Ok(Quick::Begun(begun))
    }

    /// Waits for the frame of every peer and folds; false if that is not to be.
    ///
    /// # Safety
    /// As for [`Engine::quick`].
    unsafe fn gather(
        &mut self,
        index: usize,
        call: &Call<D::Mem>,
        own: &Header,
        mut wait: impl FnMut() -> bool,
    ) -> bool {
        let config = &call.config;
        let ranks = config.layout.ranks;
        let mut sources: Vec<Source<D::Mem>, WIDTH> = Vec::new();
        let mut handles: Vec<u32, WIDTH> = Vec::new();
        for ((rank, link), merges) in
            self.links.iter_mut().enumerate().zip(leaf_merges(ranks.into()))
        {
            let (mem, weight) = match link {
                None => (call.buffers.input, config.weight),
                Some(link) => match await_leaf(link, index, own, rank as Rank, &mut wait) {
                    Some((mem, weight, handle)) => {
                        // There is room: `is_quick` has counted the ranks.
                        let _ = handles.push(handle);
                        (mem, weight)
                    }
                    None => return false,
                },
            };
            let _ = sources.push(Source { mem, form: Form::Leaf, weight, merges });
        }
        let work = Fold {
            dtype: config.dtype,
            op: config.op,
            count: config.layout.count as usize,
            sources: &sources,
            dests: &[call.buffers.output],
            finish: Finish::Final { ranks: ranks.into() },
        };
        // A peer whose buffers are all in use lends its tensor, and may take it back.
        let mut locked = 0;
        for (link, handle) in self.links.iter_mut().flatten().zip(&handles) {
            if !link.enter(index, *handle) {
                break;
            }
            locked += 1;
        }
        // SAFETY: own buffers are the call's; what peers sent is locked.
        let done = locked == handles.len()
            && unsafe { fold_now(&mut self.device, &work) }
                .map_err(|error| self.device_error = Some(error))
                .is_ok();
        for (link, handle) in self.links.iter_mut().flatten().zip(&handles).take(locked) {
            link.exit(index, *handle);
        }
        if !done {
            return false;
        }
        for (link, handle) in self.links.iter_mut().flatten().zip(handles) {
            link.take(index);
            link.release(index, handle);
        }
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
    loop {
        if let Some(done) = device.poll_done() {
            return done.result;
        }
        device.flush();
    }
}

/// What a peer contributes, and its weight; `None` if it has not come when `wait` says false, or
/// is something else.
fn await_leaf<L: Link>(
    link: &mut L,
    index: usize,
    own: &Header,
    from: Rank,
    wait: &mut impl FnMut() -> bool,
) -> Option<(L::Mem, unisono_core::Scalar, u32)> {
    loop {
        if let Some(frame) = link.poll_frame(index).ok()? {
            let Body::Data(data) = frame.header.body else { return None };
            let Body::Data(mine) = own.body else { return None };
            // The weight is the peer's own, and its limit says nothing that matters here.
            let want = Data { weight: data.weight, limit: data.limit, ..mine };
            let want = Header { from, body: Body::Data(want), ..*own };
            return match frame.payload {
                Arrived::Span { mem, handle, .. } if frame.header == want => {
                    Some((mem, data.weight, handle))
                }
                _ => None,
            };
        }
        if !wait() {
            return None;
        }
    }
}
