//! One step: everybody sends everything to everybody and folds it.

use super::{Past, Plan};
use crate::engine::Engine;
use unisono_core::fold::Form;
use unisono_core::machine::Config;
use unisono_core::wire::frame::Phase;
use unisono_driver::{Device, Link, Outgoing};

/// Does the payload ride in its frames? Then the result may take the input's place at once.
pub(super) fn fits<L: Link>(config: &Config, links: &[Option<L>]) -> bool {
    let bytes = config.bytes(config.layout.count, Form::Leaf);
    let rides = |link: &L| bytes <= link.caps().inline_max as u64;
    config.layout.chunks() == 1 && links.iter().flatten().all(rides)
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
    pub(super) unsafe fn one_shot(
        &mut self,
        plan: &Plan<'_, D::Mem>,
        wait: &mut impl FnMut() -> bool,
    ) -> Option<Past> {
        let bytes = plan.config.bytes(plan.config.layout.count, Form::Leaf) as usize;
        let channel = plan.channel;
        let room = |link: &mut L| link.has_room(channel) && link.copies(channel, bytes);
        if !self.links.iter_mut().flatten().all(room) {
            return None;
        }
        let own = plan.frame(self.rank, 0, Phase::Contribution);
        let out = Outgoing::At { mem: plan.buffers.input, bytes, window: None };
        for link in self.links.iter_mut().flatten() {
            // SAFETY: copied while it is sent. A link that is closed says so to whoever waits.
            if unsafe { link.send(channel, &own, out, 0) }.is_ok() {
                link.poll_sent(channel);
            }
        }
        // SAFETY: the caller's promise.
        let done = unsafe { self.gather(plan, (0, false), wait) };
        Some(Past { done, copied: true, ..Past::default() })
    }
}
