//! What a group costs, as numbers for [`replay`](crate::replay).

use crate::topology::{Factors, Topology};
use unisono_core::plan::LinkModel;
use unisono_core::schedule::{MEMBERS_MAX, Nodes};
use unisono_core::{Kind, Schedule};

/// One member's own limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Port {
    /// Nanoseconds per byte that it sends, to whomever.
    pub out: f64,
    /// Nanoseconds per byte that it receives, from whomever.
    pub into: f64,
    /// Nanoseconds per byte that it sends or receives in which it can do neither with another one;
    /// 0: it sends and receives at the same time.
    pub serial: f64,
    /// Nanoseconds per received byte that it folds; 0: no limit.
    pub fold: f64,
    /// Index of its host.
    pub host: u16,
}

/// The way from one member to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wire {
    /// Nanoseconds until an empty message has arrived.
    pub alpha: f64,
    /// Nanoseconds per byte of one message alone.
    pub byte: f64,
    /// Nanoseconds of its sender's and its receiver's time that each message takes.
    pub message: f64,
    /// The receiver reads the sender's memory in place: nothing travels, folds cost what they cost,
    /// and only plain copies take `byte`.
    pub lends: bool,
}

/// All members and the ways between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub(crate) ranks: u16,
    pub(crate) ports: Vec<Port>,
    /// From `a` to `b`: entry `a * members + b`.
    pub(crate) wires: Vec<Wire>,
    /// Nanoseconds per byte out of each host, and into it; empty if all are on one.
    pub(crate) hosts: Vec<[f64; 2]>,
    /// Where ranks live, if somebody has said it.
    named: Option<Nodes>,
    factors: Factors,
}

/// Members whose links are this much slower than the fastest ones are on another node.
const FAR: f64 = 2.0;

/// What peers read in place costs them the fold only; shares need a bandwidth above 0 nevertheless.
const LENT: f64 = 1e-9;

impl Model {
    /// A group whose members each have a port to a network that is never the limit itself.
    #[must_use]
    pub fn ports(ranks: u16, members: &[LinkModel]) -> Self {
        let port = |m: &LinkModel| Port {
            out: m.ns_per_byte,
            into: m.ns_per_byte,
            serial: 0.0,
            fold: m.fold_ns_per_byte,
            host: 0,
        };
        let wire = |a: &LinkModel, b: &LinkModel| Wire {
            alpha: a.alpha_ns.max(b.alpha_ns),
            byte: a.ns_per_byte.max(b.ns_per_byte),
            message: 0.0,
            lends: false,
        };
        let wires = members.iter().flat_map(|a| members.iter().map(move |b| wire(a, b)));
        let (ports, wires) = (members.iter().map(port).collect(), wires.collect());
        let (hosts, named, factors) = (Vec::new(), None, Factors::default());
        Self { ranks, ports, wires, hosts, named, factors }
    }

    /// What was measured.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let names = topology.hosts();
        let port = |m: &crate::Member| Port {
            out: 1e9 / m.send,
            into: 1e9 / m.receive,
            serial: serial(m),
            fold: 1e9 / m.fold,
            host: names.iter().position(|name| *name == m.host).unwrap_or(0) as u16,
        };
        let ports: Vec<Port> = topology.members.iter().map(port).collect();
        let members = ports.len();
        let mut wires =
            vec![Wire { alpha: 0.0, byte: 0.0, message: 0.0, lends: true }; members * members];
        let mut hosts = vec![[f64::INFINITY; 2]; names.len()];
        for link in &topology.links {
            let (from, to) = (usize::from(link.from), usize::from(link.to));
            let byte = 1e9 / link.rate;
            let (alpha, message) = (link.alpha * 1e9, link.message.unwrap_or(0.0) * 1e9);
            wires[from * members + to] = Wire { alpha, byte, message, lends: link.kind.lends() };
            let (a, b) = (usize::from(ports[from].host), usize::from(ports[to].host));
            if a != b {
                // What one pair gets is the least that the two hosts' ports have.
                hosts[a][0] = hosts[a][0].min(byte);
                hosts[b][1] = hosts[b][1].min(byte);
            }
        }
        let hosts = if names.len() > 1 { hosts } else { Vec::new() };
        let factors = Factors::new(&topology.timings);
        Self { ranks: topology.ranks(), ports, wires, hosts, named: None, factors }
    }

    /// The same group, with ranks on these nodes.
    #[must_use]
    pub fn with_nodes(self, nodes: Nodes) -> Self {
        Self { named: Some(nodes), ..self }
    }

    /// Ranks with data.
    #[must_use]
    pub const fn ranks(&self) -> u16 {
        self.ranks
    }

    /// Ranks and aggregators.
    #[must_use]
    pub fn members(&self) -> usize {
        self.ports.len()
    }

    /// The way from one member to another.
    #[must_use]
    pub fn wire(&self, from: usize, to: usize) -> Wire {
        self.wires[from * self.ports.len() + to]
    }

    /// Do all members read each other's memory in place?
    #[must_use]
    pub fn lends(&self) -> bool {
        self.wires.iter().all(|wire| wire.lends)
    }

    /// How much longer a call takes than what is played of it, as far as that was measured.
    #[must_use]
    pub fn factor(&self, schedule: &Schedule, kind: Kind, bytes: u64) -> f64 {
        if kind == Kind::AllReduce { self.factors.of(schedule, bytes) } else { 1.0 }
    }

    /// Every member by itself, as shares and bounds want it.
    #[must_use]
    pub fn links(&self) -> Vec<LinkModel> {
        let members = self.ports.len();
        let one = |a: usize| {
            let peers = || (0..members).filter(move |b| *b != a);
            let alpha = peers().map(|b| self.wire(a, b).alpha.min(self.wire(b, a).alpha));
            let lends = members > 1 && peers().all(|b| self.wire(a, b).lends);
            let port = self.ports[a];
            // Each way at the rate of the slower one: what shares and bounds know.
            let byte = if lends { LENT } else { port.out.max(port.into) };
            LinkModel {
                alpha_ns: alpha.fold(f64::INFINITY, f64::min).min(1e18),
                ns_per_byte: byte.max(LENT),
                fold_ns_per_byte: port.fold,
            }
        };
        (0..members).map(one).collect()
    }

    /// Where ranks are near each other: their hosts, or what links of another speed divide; `None`
    /// if nothing does.
    #[must_use]
    pub fn nodes(&self) -> Option<Nodes> {
        let ranks = usize::from(self.ranks);
        if ranks > MEMBERS_MAX || self.named.is_some() {
            return self.named.clone();
        }
        let hosts: Vec<u16> = self.ports[..ranks].iter().map(|port| port.host).collect();
        let hosts = Nodes::new(&hosts).filter(|nodes| is_useful(nodes, ranks));
        hosts.or_else(|| Nodes::new(&self.clusters(ranks)).filter(|n| is_useful(n, ranks)))
    }

    /// Ranks that fast links connect, by the least of them.
    fn clusters(&self, ranks: usize) -> Vec<u16> {
        let byte = |a: usize, b: usize| self.wire(a, b).byte.max(self.wire(b, a).byte);
        let pairs = (0..ranks).flat_map(|a| (0..a).map(move |b| (a, b)));
        let least = pairs.clone().map(|(a, b)| byte(a, b)).fold(f64::INFINITY, f64::min);
        let mut of: Vec<u16> = (0..ranks as u16).collect();
        for (a, b) in pairs.filter(|(a, b)| byte(*a, *b) <= least * FAR) {
            let (low, high) = (of[a].min(of[b]), of[a].max(of[b]));
            of.iter_mut().filter(|node| **node == high).for_each(|node| *node = low);
        }
        of
    }
}

/// What a byte takes of a member's own time, from the rates of sending, receiving and both at once:
/// nothing where both at once are as fast as each alone, all of it where they are as slow as one.
fn serial(member: &crate::Member) -> f64 {
    let alone = (1e9 / member.send).max(1e9 / member.receive);
    member.both.map_or(0.0, |both| (2e9 / both - alone).max(0.0))
}

/// Are there several nodes, of several ranks?
fn is_useful(nodes: &Nodes, ranks: usize) -> bool {
    nodes.count() > 1 && usize::from(nodes.count()) < ranks
}
