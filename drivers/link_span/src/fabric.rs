//! All links of a group of threads at once.

use crate::bell::Bell;
use crate::link::SpanLink;
use crate::reach::Direct;
use crate::ring::Ring;
use std::sync::Arc;
use unisono_driver::HostMemory;

/// One member's links, indexed by rank, none to itself, and its bell.
pub type Ends<M> = (Vec<Option<SpanLink<M>>>, Arc<Bell>);

/// Frames that a ring needs for calls with windows of `window` chunks: a peer has at most four
/// frames a chunk of the window under way (two phases, and as many again that are waiting to be
/// released by chunks behind), and a few control frames.
#[must_use]
pub const fn depth(window: usize) -> usize {
    4 * window + 8
}

/// Links every pair of `members` threads; element r belongs to rank r.
///
/// `channels` calls may be in flight with windows of `window` chunks.
#[must_use]
pub fn fabric<M: HostMemory>(members: usize, channels: usize, window: usize) -> Vec<Ends<M>> {
    fabric_with((0..members).map(|_| Arc::default()).collect(), channels, window)
}

/// The same for members that have bells already, which others ring, too.
#[must_use]
pub fn fabric_with<M: HostMemory>(
    bells: Vec<Arc<Bell>>,
    channels: usize,
    window: usize,
) -> Vec<Ends<M>> {
    let (members, depth) = (bells.len(), depth(window));
    let ring = || (0..channels).map(|_| Ring::new(depth)).collect::<Vec<_>>();
    let rings: Vec<Vec<Vec<Ring>>> =
        (0..members).map(|_| (0..members).map(|_| ring()).collect()).collect();
    let link = |me: usize, peer: usize| {
        let pairs = rings[me][peer].iter().cloned().zip(rings[peer][me].iter().cloned()).collect();
        (me != peer).then(|| SpanLink::new(pairs, bells[peer].clone(), Direct::default()))
    };
    (0..members)
        .map(|me| ((0..members).map(|peer| link(me, peer)).collect(), bells[me].clone()))
        .collect()
}
