//! Memory that peers cannot reach: what lies there is copied to a scratch slot before it is sent,
//! and results that come as bytes, or that peers write, come into a slot before they are copied
//! there.
//!
//! # How many slots that takes
//!
//! A lane's value lies in the input, later perhaps in slots (partial results), at last in the
//! output or in a slot, and never goes back. So a value in a private input is copied at most once,
//! before the first send of it; from then on the copy is the value. A result in a private output is
//! copied at most once as well; where it came as bytes it lies in a slot already and needs no copy
//! to be sent on. A peer writes its answer over the copy that it has read, as it would in a tensor
//! that it reaches. One slot each, kept to the lane's end, on top of what `grants` counts and never
//! given to anything else, is always there when it is wanted. A copy waits for nobody but the
//! device, so it adds nothing that a lane could wait for in vain.

use super::action::{Action, Place};
use super::config::Config;
use super::input::output_of;
use super::lane::{Job, Lane};
use super::poll::Room;
use crate::fold::Form;

impl Config {
    /// Can peers not reach this place?
    pub(super) const fn is_private<M: Copy>(&self, place: Place<M>) -> bool {
        match place {
            Place::Input(_) => self.input_private,
            Place::Output(_) => self.output_private,
            Place::Slot(_) | Place::Peer(_) => false,
        }
    }

    /// Slots of a lane for copies of values in private memory.
    pub(super) const fn stage_slots(&self) -> u8 {
        self.input_private as u8 + self.output_private as u8
    }

    /// Slots of a lane for everything else.
    pub(super) const fn own_slots(&self) -> u8 {
        self.slots.saturating_sub(self.stage_slots())
    }
}

impl<M: Copy, const R: usize> Lane<M, R> {
    /// Copies the value to where peers can reach it.
    pub(super) fn stage(
        &mut self,
        at: usize,
        cfg: &Config,
        room: &mut impl Room,
    ) -> Option<Action<M>> {
        let (from, form) = self.value?;
        if !room.device() {
            return None;
        }
        let to = Place::Slot(self.slot_base + u32::from(self.take_slot(cfg.slots)?));
        self.job = Job::Stage { to };
        let bytes = cfg.bytes(self.elems, form);
        Some(Action::Copy { lane: at as u16, from, to, bytes })
    }

    /// The copy is there: it is the value from now on.
    pub(super) fn staged(&mut self, to: Place<M>) {
        self.job = Job::None;
        self.value = self.value.map(|(_, form)| (to, form));
    }

    /// Where a peer may write the answer to what it is sent: into the output or, where that cannot
    /// be reached, over the copy that is sent.
    pub(super) fn answer_place(&self, cfg: &Config) -> Option<Place<M>> {
        let out = output_of(cfg, self.chunk)?;
        match self.value {
            _ if !cfg.output_private => Some(Place::Output(out)),
            Some((copy @ Place::Slot(_), Form::Leaf)) => Some(copy),
            _ => None,
        }
    }

    /// Where a link receives a result that comes as bytes: a link cannot write into a private
    /// output.
    pub(super) fn receipt_place(&mut self, cfg: &Config) -> Option<Place<M>> {
        if cfg.output_private && output_of(cfg, self.chunk).is_some() {
            return Some(Place::Slot(self.slot_base + u32::from(self.take_slot(cfg.slots)?)));
        }
        self.result_place(cfg)
    }
}
