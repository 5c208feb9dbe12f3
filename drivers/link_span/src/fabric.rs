//! All links of a group of threads at once.

use crate::bell::Bell;
use crate::link::SpanLink;
use crate::ring::Ring;
use std::sync::Arc;
use unisono_driver::HostMemory;

/// One member's links, indexed by rank, none to itself, and its bell.
pub type Ends<M> = (Vec<Option<SpanLink<M>>>, Arc<Bell>);

/// Links every pair of `members` threads; element r belongs to rank r.
///
/// `channels` calls may be in flight with windows of `window` chunks: a peer has at most four
/// frames a chunk of the window under way (two phases, and as many again that are waiting to be
/// released by chunks behind), and a few control frames.
#[must_use]
pub fn fabric<M: HostMemory>(members: usize, channels: usize, window: usize) -> Vec<Ends<M>> {
    let depth = 4 * window + 8;
    let bells: Vec<Arc<Bell>> = (0..members).map(|_| Arc::default()).collect();
    let ring = || (0..channels).map(|_| Arc::new(Ring::new(depth))).collect::<Vec<_>>();
    let rings: Vec<Vec<Vec<Arc<Ring<M>>>>> =
        (0..members).map(|_| (0..members).map(|_| ring()).collect()).collect();
    let link = |me: usize, peer: usize| {
        let pairs = rings[me][peer].iter().cloned().zip(rings[peer][me].iter().cloned()).collect();
        (me != peer).then(|| SpanLink::new(pairs, bells[peer].clone()))
    };
    (0..members)
        .map(|me| ((0..members).map(|peer| link(me, peer)).collect(), bells[me].clone()))
        .collect()
}
