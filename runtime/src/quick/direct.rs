//! Two steps: everybody sends a chunk to its owner, who folds it and puts the result into all
//! windows.
//!
//! Of tensors that peers do not reach, chunks are copied to scratch slots before they are sent, as
//! a machine does it; the owner writes over the copy.

use super::{Past, Plan, until_done};
use crate::engine::Engine;
use unisono_core::machine::{Config, RankSet, send_token};
use unisono_core::schedule::Owners;
use unisono_core::wire::frame::Phase;
use unisono_driver::{Arrived, Copy, Device, Link, Outgoing};

/// Has each rank one chunk, and does everybody read and write the others' memory?
pub(super) fn fits(config: &Config, owners: &Owners) -> bool {
    let ranks = config.layout.ranks;
    let chunks = config.layout.chunks();
    let peers = (RankSet::MAX >> (RankSet::BITS - u32::from(ranks))) & !(1 << config.rank);
    let owned = |rank| (0..chunks).filter(|chunk| owners.owner(*chunk) == rank).count();
    chunks == ranks.into()
        && (0..ranks).all(|rank| owned(rank) == 1)
        && config.puts & peers == peers
        && config.dests_max >= ranks
        && config.input_private == config.output_private
}

impl<D, L, const OPS: usize, const W: usize, const R: usize, const P: usize>
    Engine<D, L, OPS, W, R, P>
where
    D: Device,
    L: Link<Mem = D::Mem>,
{
    /// The whole call; `None` if there is no room for its frames.
    ///
    /// # Safety
    /// As for [`Engine::quick`].
    pub(super) unsafe fn direct(
        &mut self,
        plan: &Plan<'_, D::Mem>,
        owners: &Owners,
        wait: &mut impl FnMut() -> bool,
    ) -> Option<Past> {
        let channel = plan.channel;
        if !self.links.iter_mut().flatten().all(|link| link.has_room(channel)) {
            return None;
        }
        let mut past = Past::default();
        // SAFETY: the caller's promise.
        let own = unsafe { self.lend(plan, owners, &mut past) };
        // SAFETY: the caller's promise.
        if past.failed || past.lost != 0 || !unsafe { self.gather(plan, (own, true), wait) } {
            return Some(past);
        }
        past.folded = Some(own);
        if !self.links.iter_mut().flatten().all(|link| link.has_room(channel)) {
            return Some(past);
        }
        past.told = true;
        let result = plan.frame(self.rank, own, Phase::Result);
        for link in self.links.iter_mut().flatten() {
            // SAFETY: no payload. A link that is closed says so to whoever waits.
            let _ = unsafe { link.send(channel, &result, Outgoing::Put, 0) };
        }
        for chunk in 0..plan.config.layout.chunks() {
            let owner = owners.owner(chunk);
            let want = plan.frame(owner, chunk, Phase::Result);
            if let Some(Some(link)) = self.links.get_mut(usize::from(owner))
                && !matches!(plan.look(link, &want, wait), Some((_, Arrived::Put)))
            {
                return Some(past);
            }
        }
        // SAFETY: the caller's promise; the results are there.
        past.done = !plan.config.output_private || unsafe { self.fetch(plan, own) };
        if past.done {
            for link in self.links.iter_mut().flatten() {
                link.take(channel);
                // It was made of what this member has lent, so that has come back.
                while link.poll_sent(channel).is_some() {}
            }
        }
        Some(past)
    }

    /// Lends every chunk to its owner; returns the one that is this member's own.
    ///
    /// # Safety
    /// As for [`Engine::quick`].
    unsafe fn lend(&mut self, plan: &Plan<'_, D::Mem>, owners: &Owners, past: &mut Past) -> u64 {
        let mut own = 0;
        for chunk in 0..plan.config.layout.chunks() {
            let owner = owners.owner(chunk);
            if owner == self.rank {
                own = chunk;
                continue;
            }
            let (input, output) = plan.at(chunk);
            let (slot, bytes) = (plan.slot(chunk), plan.bytes(chunk));
            let private = plan.config.input_private;
            let (mem, window) = if private { (slot, slot) } else { (input, output) };
            // SAFETY: the caller's promise.
            if private && !unsafe { self.copy_now(&Copy { from: input, to: slot, bytes }) } {
                past.failed = true;
                return own;
            }
            let Some(Some(link)) = self.links.get_mut(usize::from(owner)) else { continue };
            let out = Outgoing::At { mem, bytes, window: Some(window) };
            let frame = plan.frame(self.rank, chunk, Phase::Contribution);
            let token = send_token(chunk as usize, owner, !private);
            // SAFETY: lent until the call is over, by its machine if need be.
            if unsafe { link.send(plan.channel, &frame, out, token) }.is_err() {
                past.lost |= 1 << owner;
            }
        }
        own
    }
    /// Copies the results of all chunks but this member's own from their slots to the output; false
    /// if the device fails.
    ///
    /// # Safety
    /// As for [`Engine::quick`]; the results are in the slots.
    unsafe fn fetch(&mut self, plan: &Plan<'_, D::Mem>, own: u64) -> bool {
        (0..plan.config.layout.chunks()).filter(|chunk| *chunk != own).all(|chunk| {
            let (from, (_, to)) = (plan.slot(chunk), plan.at(chunk));
            let bytes = plan.bytes(chunk);
            // SAFETY: the caller's promise.
            unsafe { self.copy_now(&Copy { from, to, bytes }) }
        })
    }

    /// Copies and waits for it; false if the device fails.
    ///
    /// # Safety
    /// As for [`Device::copy`].
    unsafe fn copy_now(&mut self, copy: &Copy<D::Mem>) -> bool {
        let device = &mut self.device;
        // SAFETY: the caller's promise.
        let done = unsafe { device.copy(copy, 0) }.and_then(|()| until_done(device));
        done.map_err(|error| self.device_error = Some(error)).is_ok()
    }
}
