//! Hub: a hierarchy whose nodes meet at an aggregator that has no data (SmartNIC, DPU).
//!
//! The hub is member `N`. Nodes, and the leader that each has for a chunk, are those of
//! [`mod@super::hierarchical`]; the chunk's owner leads its own node. The members send their leaves
//! to the leader, the leaders send the node's sum to the hub, which folds all of them at once, in
//! the order of the nodes, finishes the value and sends it back the same way: to all leaders
//! (all-reduce) or to the owner alone (reduce, reduce-scatter). For all-gather and broadcast the
//! owner sends its value to the hub and to the members of its node; the hub sends it to the other
//! leaders. With G nodes, per element of a chunk:
//!
//! | rank | reduction: receives | sends | distribution: receives | sends |
//! |---|---|---|---|---|
//! | hub | G leaves or sums | 0 | 0 | `G` |
//! | leader (node of s) | `s-1` leaves | 1 | 1 | `s-1` |
//! | member | 0 | 1 leaf | 1 | 0 |
//!
//! A node of one rank sends a leaf instead of a sum. Of M elements (blocks for the scattering
//! kinds, so N M there), with nodes of `s = N/G`, in turns where the collective leaves the owner
//! open:
//!
//! | collective | steps, s > 1 | s = 1 | sent by the hub | by a rank |
//! |---|---|---|---|---|
//! | all-reduce | 4 | 2 | `G M` | `(2 - 1/s) M` |
//! | reduce-scatter | 3 | 2 | `N M` (receives `G N M`) | `N M` |
//! | all-gather | 3 | 2 | `(G-1) N M` | `(N + 1 - G) M` |
//! | reduce | 3 | 2 | `M` (receives `G M`) | `M` |
//! | broadcast | 3 | 2 | `(G-1) M` | the root `s M`, other leaders `(s-1) M` |
//!
//! Through the hub a chunk goes G times each way, N times with [`mod@super::star`]: the hub is
//! spared what the nodes fold by themselves, and a hub on a NIC is where nodes meet anyway. The
//! order is canonical exactly where that of the hierarchy is ([`Nodes::is_canonical`]).
//!
//! Source: Graham et al., "Scalable hierarchical aggregation protocol (SHArP)", COM-HPC 2016: hosts
//! fold what they share, the switch folds what they send.

use super::hierarchical::{Nodes, leader, leaves, members};
use super::{Flow, log2_ceil, owner, spreads};
use crate::layout::Layout;
use crate::route::{Rank, Route};

/// The moves; at most twice the largest node or the nodes, and two. Needs N ≥ 2 and a rank up to N.
pub(super) fn route(nodes: &Nodes, layout: &Layout, chunk: u64, rank: Rank, route: &mut Route<'_>) {
    let (owner, hub) = (owner(layout, chunk), layout.ranks);
    if rank == hub {
        return hub_route(nodes, layout, owner, route);
    }
    let (reduces, spreads) = (layout.kind.reduces(), spreads(layout.kind));
    let group = nodes.group_of(rank);
    let leader = leader(group, owner, nodes.place(owner));
    let leads = rank == leader;
    let up = if leads { hub } else { leader };
    let has = rank == owner && !reduces;
    if reduces && leads && group.len() > 1 {
        leaves(group, rank, route);
        route.fold();
    }
    if reduces || has {
        route.send(up);
    }
    if !has && (spreads || rank == owner) {
        route.store(up);
    }
    if spreads && leads {
        members(group, rank).for_each(|to| route.send(to));
    }
    if has {
        route.own(0);
        route.finish();
    }
}

fn hub_route(nodes: &Nodes, layout: &Layout, owner: Rank, route: &mut Route<'_>) {
    let place = nodes.place(owner);
    let (reduces, spreads) = (layout.kind.reduces(), spreads(layout.kind));
    if reduces {
        for group in nodes.groups() {
            route.recv(leader(group, owner, place), log2_ceil(group.len() as u16) as u8);
        }
        route.finish();
    } else {
        route.store(owner);
    }
    for group in nodes.groups() {
        let to = leader(group, owner, place);
        if if to == owner { reduces } else { spreads } {
            route.send(to);
        }
    }
}

/// What the rank moves for one element of the chunk.
pub(super) fn flow(nodes: &Nodes, layout: &Layout, chunk: u64, rank: Rank) -> Flow {
    let owner = owner(layout, chunk);
    let (reduces, spreads) = (layout.kind.reduces(), spreads(layout.kind));
    let mut flow = Flow::NONE;
    if rank == layout.ranks {
        let count = u32::from(nodes.count());
        flow.received.leaf = nodes.groups().filter(|group| group.len() == 1).count() as u32;
        flow.received.partial = count - flow.received.leaf;
        flow.received.last = u32::from(!reduces);
        flow.sent.last = u32::from(reduces) + if spreads { count - 1 } else { 0 };
        return flow.only(reduces, true);
    }
    let group = nodes.group_of(rank);
    let peers = group.len() as u32 - 1;
    let leads = rank == leader(group, owner, nodes.place(owner));
    let has = rank == owner && !reduces;
    flow.received.leaf = if leads { peers } else { 0 };
    flow.sent.partial = u32::from(leads && peers > 0);
    flow.sent.leaf = 1 - flow.sent.partial;
    flow.received.last = u32::from(!has && (spreads || rank == owner));
    flow.sent.last = u32::from(has) + if spreads && leads { peers } else { 0 };
    flow.only(reduces, true)
}

/// Transfers on the longest path of the chunk.
pub(super) fn steps(nodes: &Nodes, layout: &Layout, chunk: u64) -> u32 {
    let owner = owner(layout, chunk);
    let deep = |group: &[u8]| u32::from(group.len() > 1);
    let deepest = nodes.groups().map(deep).max().unwrap_or(0);
    if layout.kind.reduces() {
        // Up to the hub, and down from it: to the owner, or through the leaders.
        return 2 + deepest + if spreads(layout.kind) { deepest } else { 0 };
    }
    // To the hub; the owner's own node needs nothing of it.
    let home = nodes.group_of(owner);
    nodes.groups().filter(|&group| group != home).map(|group| 2 + deep(group)).max().unwrap_or(1)
}
