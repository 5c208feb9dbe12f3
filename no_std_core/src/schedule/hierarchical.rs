//! Hierarchical: fold within each node first, exchange between nodes, come back down.
//!
//! `node_of` says which node each rank lives on: any sizes, any placement. Chunk `c` has owner
//! `o = c % N` (or the rank that the collective names), the `j`-th rank of its node. The leader of
//! every other node, of `s` ranks, is that node's `j % s`-th rank, so leaders take turns and, with
//! equal nodes, a rank talks to the ranks of the same place only. The members send their leaves to
//! the leader, the leaders send the node's sum to the owner, and the owner folds its own node's
//! leaves and the other nodes' sums at once, in the order of the nodes; the result goes back the
//! same way. With G nodes, per element of a chunk:
//!
//! | rank | reduction: receives | sends | distribution: receives | sends |
//! |---|---|---|---|---|
//! | owner (node of s) | `s-1` leaves, `G-1` sums | 0 | 0 | `s-1 + G-1` |
//! | leader (node of s) | `s-1` leaves | 1 sum | 1 | `s-1` |
//! | member | 0 | 1 leaf | 1 | 0 |
//!
//! A node of one rank sends a leaf instead of a sum. Steps of the reduction, and again of the
//! distribution: 2, or 1 if every node but the owner's has one rank. Between nodes a chunk crosses
//! `G-1` times each way, which is what the schedule is for: `N-1` for direct.
//!
//! The order is canonical exactly if every node is one aligned block `[b, b + 2^k)` of ranks, cut
//! off at N: a subtree of the canonical tree (for example equal nodes of a power of two, and a
//! smaller last one).
//!
//! Source: Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
//! collective operation performance", IPDPS 2000; the rotation of leaders is Horovod's and NCCL's
//! reduce-scatter, all-reduce, all-gather composition seen chunk by chunk.

use super::{Flow, MEMBERS_MAX, log2_ceil, owner, spreads};
use crate::layout::Layout;
use crate::route::{Rank, Route};
use heapless::Vec;

/// Which node each rank lives on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Node of each rank, numbered in the order of the nodes' first ranks.
    node_of: Vec<u8, MEMBERS_MAX, u8>,
    /// The ranks, sorted by node, then by rank.
    by_node: Vec<u8, MEMBERS_MAX, u8>,
}

impl Nodes {
    /// Groups ranks with equal entries; which numbers are used does not matter.
    ///
    /// `None` for no rank or more than [`MEMBERS_MAX`].
    #[must_use]
    pub fn new(node_of: &[u16]) -> Option<Self> {
        let mut nodes = Self { node_of: Vec::new(), by_node: Vec::new() };
        if node_of.is_empty() {
            return None;
        }
        let mut firsts: Vec<u16, MEMBERS_MAX> = Vec::new();
        for &id in node_of {
            let known = firsts.iter().position(|&first| first == id);
            nodes.node_of.push(known.unwrap_or(firsts.len()) as u8).ok()?;
            if known.is_none() {
                firsts.push(id).ok()?;
            }
        }
        for node in 0..firsts.len() {
            for (rank, &at) in nodes.node_of.iter().enumerate() {
                if usize::from(at) == node {
                    nodes.by_node.push(rank as u8).ok()?;
                }
            }
        }
        Some(nodes)
    }

    /// `ranks` ranks in consecutive nodes of `size`, the last one possibly smaller; `None` if
    /// either is 0 or there are more than [`MEMBERS_MAX`] ranks.
    #[must_use]
    pub fn even(ranks: u16, size: u16) -> Option<Self> {
        if size == 0 {
            return None;
        }
        let mut node_of: Vec<u16, MEMBERS_MAX> = Vec::new();
        for rank in 0..ranks {
            node_of.push(rank / size).ok()?;
        }
        Self::new(&node_of)
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u16 {
        self.node_of.len() as u16
    }

    /// Number of nodes.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.groups().count() as u16
    }

    /// Ranks of the largest node.
    #[must_use]
    pub fn largest(&self) -> u16 {
        self.groups().map(<[u8]>::len).max().unwrap_or(0) as u16
    }

    /// Node of each rank, numbered in the order of the nodes' first ranks.
    #[must_use]
    pub fn node_of(&self) -> &[u8] {
        &self.node_of
    }

    /// Is every node a subtree of the canonical tree?
    #[must_use]
    pub fn is_canonical(&self) -> bool {
        self.groups().all(|group| {
            let (Some(&first), Some(&last)) = (group.first(), group.last()) else { return true };
            let (first, size) = (usize::from(first), group.len());
            let block = size.next_power_of_two();
            let contiguous = usize::from(last) - first == size - 1;
            let whole = size == block || first + size == self.node_of.len();
            contiguous && whole && first % block == 0
        })
    }

    /// The ranks of each node, in order.
    fn groups(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.by_node[..];
        core::iter::from_fn(move || {
            let node = self.node(*rest.first()?);
            let len = rest.iter().take_while(|&&rank| self.node(rank) == node).count();
            let (group, after) = rest.split_at_checked(len)?;
            rest = after;
            Some(group)
        })
    }

    fn node(&self, rank: u8) -> u8 {
        self.node_of.get(usize::from(rank)).copied().unwrap_or(u8::MAX)
    }

    /// The ranks of the node that `rank` lives on.
    fn group_of(&self, rank: Rank) -> &[u8] {
        let node = self.node(rank as u8);
        let start = self.by_node.partition_point(|&r| self.node(r) < node);
        let end = self.by_node.partition_point(|&r| self.node(r) <= node);
        self.by_node.get(start..end).unwrap_or(&[])
    }

    /// The owner's place in its own node.
    fn place(&self, owner: Rank) -> usize {
        self.group_of(owner).iter().position(|&r| Rank::from(r) == owner).unwrap_or(0)
    }
}

/// The leader of a node for a chunk.
fn leader(group: &[u8], owner: Rank, place: usize) -> Rank {
    if contains(group, owner) {
        return owner;
    }
    group.get(place % group.len().max(1)).map_or(owner, |&r| Rank::from(r))
}

fn contains(group: &[u8], rank: Rank) -> bool {
    group.binary_search(&(rank as u8)).is_ok()
}

/// The moves; at most twice the largest node and the nodes. Needs N ≥ 2 and a rank below N.
pub(super) fn route(nodes: &Nodes, layout: &Layout, chunk: u64, rank: Rank, route: &mut Route<'_>) {
    let owner = owner(layout, chunk);
    if rank == owner {
        return owner_route(nodes, layout, owner, route);
    }
    let group = nodes.group_of(rank);
    let leader = leader(group, owner, nodes.place(owner));
    let leads = rank == leader;
    let up = if leads { owner } else { leader };
    if layout.kind.reduces() {
        if leads && group.len() > 1 {
            leaves(group, rank, route);
            route.fold();
        }
        route.send(up);
    }
    if spreads(layout.kind) {
        route.store(up);
        if leads {
            members(group, rank).for_each(|to| route.send(to));
        }
    }
}

fn owner_route(nodes: &Nodes, layout: &Layout, owner: Rank, route: &mut Route<'_>) {
    let place = nodes.place(owner);
    if layout.kind.reduces() {
        for group in nodes.groups() {
            if contains(group, owner) {
                leaves(group, owner, route);
            } else {
                route.recv(leader(group, owner, place), log2_ceil(group.len() as u16) as u8);
            }
        }
        route.finish();
    }
    if spreads(layout.kind) {
        // Other nodes first: they have the longer way.
        for group in nodes.groups().filter(|group| !contains(group, owner)) {
            route.send(leader(group, owner, place));
        }
        members(nodes.group_of(owner), owner).for_each(|to| route.send(to));
        if !layout.kind.reduces() {
            route.own(0);
            route.finish();
        }
    }
}

/// The leaves of a node, in rank order.
fn leaves(group: &[u8], rank: Rank, route: &mut Route<'_>) {
    for from in group.iter().copied().map(Rank::from) {
        if from == rank {
            route.own(0);
        } else {
            route.recv(from, 0);
        }
    }
}

/// The ranks of a node but one.
fn members(group: &[u8], but: Rank) -> impl Iterator<Item = Rank> {
    group.iter().copied().map(Rank::from).filter(move |&r| r != but)
}

/// What the rank moves for one element of the chunk.
pub(super) fn flow(nodes: &Nodes, layout: &Layout, chunk: u64, rank: Rank) -> Flow {
    let owner = owner(layout, chunk);
    let group = nodes.group_of(rank);
    let peers = group.len() as u32 - 1;
    let leads = rank == leader(group, owner, nodes.place(owner));
    let mut flow = Flow::NONE;
    if rank == owner {
        // Nodes of one rank, but not the owner's own one, send a leaf.
        let single = nodes.groups().filter(|g| g.len() == 1).count() as u32;
        let single = single - u32::from(peers == 0);
        let abroad = u32::from(nodes.count()) - 1;
        flow.received.leaf = peers + single;
        flow.received.partial = abroad - single;
        flow.sent.last = peers + abroad;
    } else {
        flow.received.leaf = if leads { peers } else { 0 };
        flow.sent.partial = u32::from(leads && peers > 0);
        flow.sent.leaf = 1 - flow.sent.partial;
        flow.received.last = 1;
        flow.sent.last = if leads { peers } else { 0 };
    }
    flow.only(layout.kind.reduces(), spreads(layout.kind))
}

/// Transfers on the longest path of the chunk.
pub(super) fn steps(nodes: &Nodes, layout: &Layout, chunk: u64) -> u32 {
    let owner = owner(layout, chunk);
    let deep = nodes.groups().any(|group| group.len() > 1 && !contains(group, owner));
    let halves = u32::from(layout.kind.reduces()) + u32::from(spreads(layout.kind));
    halves * if deep { 2 } else { 1 }
}
