//! Links of the members of this process to all members of their group.

use super::team::Team;
use crate::datagram::{Keeper, UdpLink};
use crate::device::dpu::Taken;
use crate::error::Error;
use crate::member::{AnyLink, FarLink};
use crate::planner::WINDOW_MAX;
use crate::relay::Pair;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use unisono_core::wire::board::Join;
use unisono_driver::Either;
use unisono_link_shm::{Arena, Fabric, Guard, Layout, Word};
use unisono_link_span::{Bell, fabric_with};
use unisono_link_tcp::{End, Options, TcpLink};
use unisono_planner::LinkKind;
use unisono_rendezvous::{Datagrams, Route};

/// A member's links, by rank, and its bell.
pub(super) type Row = (Vec<Option<AnyLink>>, Arc<Bell>);

/// All links of this process.
pub(super) struct Links {
    /// Of each of its members.
    pub rows: Vec<Row>,
    /// A word of each member on this machine, and its rank.
    pub words: Vec<(u16, Word)>,
    /// Memory that other processes see, and what notices when they die.
    pub shared: Option<(Arc<Arena>, Guard)>,
    /// Other processes on this machine reach the rest of this one's memory, too.
    pub attached: bool,
    /// Some are byte streams.
    pub streams: bool,
}

/// What has come of the routes to other processes, by their index.
struct Ways {
    near: Vec<Option<UnixStream>>,
    far: Vec<Option<Far>>,
}

/// What leads to a process that shares no memory.
enum Far {
    /// For each pair of members a stream for each channel.
    Streams(Vec<TcpStream>),
    /// For each pair of members a socket.
    Datagrams(Vec<Datagrams>),
}

impl Links {
    /// Links for members that have room for so many calls in flight.
    pub fn new(team: &Team, calls: usize) -> Result<Self, Error> {
        let mut ways = Ways { near: Vec::new(), far: Vec::new() };
        for route in team.routes(calls)? {
            let (near, far) = match route {
                None => (None, None),
                Some(Route::Near(stream)) => (Some(stream), None),
                Some(Route::Far { streams, .. }) => (None, Some(Far::Streams(streams))),
                Some(Route::Datagrams(pairs)) => (None, Some(Far::Datagrams(pairs))),
            };
            ways.near.push(near);
            ways.far.push(far);
        }
        let own: Vec<usize> = team.own_members().map(usize::from).collect();
        let all = team.homes.len();
        let mut links = Self::near(team, calls, ways.near)?;
        let bells = links.rows.iter().map(|(_, bell)| bell.clone()).collect();
        for (row, (spans, _)) in links.rows.iter_mut().zip(fabric_with(bells, calls, WINDOW_MAX)) {
            row.0.resize_with(all, || None);
            for (to, span) in own.iter().zip(spans) {
                if let Some(span) = span {
                    row.0[*to] = Some(Either::A(span));
                }
            }
        }
        let mut keeper = Keeper::default();
        for (process, far) in (0..).zip(ways.far) {
            if let Some(far) = far {
                links.streams = true;
                links.far(team, process, calls, far, &mut keeper)?;
            }
        }
        keeper.start().map_err(|error| Error::Thread(error.to_string()))?;
        Ok(links)
    }

    /// Rows of all own members, with links to those of other processes on this machine.
    fn near(team: &Team, calls: usize, sockets: Vec<Option<UnixStream>>) -> Result<Self, Error> {
        if sockets.iter().all(Option::is_none) {
            let rows = team.own_members().map(|_| (Vec::new(), Arc::default())).collect();
            let words = team.own_members().map(|rank| (rank, Word::default())).collect();
            return Ok(Self { rows, words, shared: None, attached: false, streams: false });
        }
        let (homes, window) = (team.homes.clone(), WINDOW_MAX);
        let layout = Layout { homes, channels: calls, window };
        let fabric = Fabric::join(&layout, team.own, sockets);
        let fabric = fabric.map_err(|error| Error::World(error.to_string()))?;
        let row = |(links, bell): unisono_link_shm::Ends| {
            let any = |link: Option<_>| link.map(|link| Either::B(Either::A(link)));
            (links.into_iter().map(any).collect(), bell)
        };
        let rows = fabric.ends.into_iter().map(row).collect();
        let words = (0..).zip(fabric.words).filter_map(|(rank, word)| Some((rank, word?)));
        let words = words.collect();
        let (shared, attached) = (Some((fabric.arena, fabric.watch)), fabric.attached);
        Ok(Self { rows, words, shared, attached, streams: false })
    }

    /// Links to the members of a process that is reached in this way.
    fn far(
        &mut self,
        team: &Team,
        process: u16,
        calls: usize,
        mut far: Far,
        keeper: &mut Keeper,
    ) -> Result<(), Error> {
        let of = |home: u16| {
            let here = move |(_, other): &(usize, &u16)| **other == home;
            team.homes.iter().enumerate().filter(here).map(|(member, _)| member)
        };
        let (low, high) = (team.own.min(process), team.own.max(process));
        // Both ends deal them out in the same order.
        for (a, b) in of(low).flat_map(|a| of(high).map(move |b| (a, b))) {
            let (from, to) = if low == team.own { (a, b) } else { (b, a) };
            let link = far.link(calls, low == team.own, keeper);
            let link = link.map_err(|error| Error::World(format!("process {process}: {error}")))?;
            let index = team.own_members().position(|member| usize::from(member) == from);
            let place = index.and_then(|index| self.rows[index].0.get_mut(to));
            if let Some(place) = place {
                *place = Some(Either::B(Either::B(Either::A(link))));
            }
        }
        Ok(())
    }

    /// What links each member of this process to each other member.
    pub fn kinds(&self, team: &Team) -> Vec<(u16, u16, LinkKind)> {
        let mut kinds = Vec::new();
        for (from, (links, _)) in team.own_members().zip(&self.rows) {
            for (to, link) in (0..).zip(links) {
                let Some(link) = link else { continue };
                let kind = match link {
                    Either::A(_) => LinkKind::Thread,
                    Either::B(Either::A(_)) => LinkKind::SharedMemory,
                    Either::B(Either::B(Either::A(_))) => LinkKind::Tcp,
                    Either::B(Either::B(Either::B(Either::A(_)))) => LinkKind::Window,
                    Either::B(Either::B(Either::B(Either::B(Either::A(_))))) => LinkKind::Serial,
                    Either::B(Either::B(Either::B(Either::B(Either::B(_))))) => LinkKind::Udp,
                };
                kinds.push((from, to, kind));
                if !matches!(kind, LinkKind::Thread | LinkKind::SharedMemory | LinkKind::Tcp) {
                    // A board keeps its own ends.
                    kinds.push((to, from, kind));
                }
            }
        }
        kinds
    }

    /// Makes the member `member` of this process a board; returns what has to be carried between it
    /// and members of other processes.
    pub fn join(
        &mut self,
        board: &mut Taken,
        member: u16,
        team: &Team,
        epoch: u32,
    ) -> Result<Vec<Pair>, Error> {
        let members = team.homes.len() as u16;
        let peers: Vec<u16> = (0..members).filter(|&peer| peer != member).collect();
        let join = Join { epoch, rank: member, members, next_op: 0 };
        let ends = board.join(join, &peers)?;
        let row = |of: u16| team.own_members().position(|own| own == of);
        let own = row(member).and_then(|at| self.rows.get_mut(at));
        let mut others = own.map(|(links, _)| std::mem::take(links)).unwrap_or_default();
        let mut carried = Vec::new();
        for (peer, end) in peers.into_iter().zip(ends) {
            let end = Either::B(Either::B(Either::B(end)));
            let mut between = || others.get_mut(usize::from(peer)).and_then(Option::take);
            if !team.is_own(peer) {
                carried.extend(between().map(|other| (end, other)));
                continue;
            }
            let theirs = row(peer).and_then(|at| self.rows.get_mut(at));
            let Some((theirs, _)) = theirs else { continue };
            if let Some(place) = theirs.get_mut(usize::from(member)) {
                *place = Some(end);
            } else {
                carried.extend(between().map(|other| (end, other)));
            }
        }
        Ok(carried)
    }
}

impl Far {
    /// The link of the next pair of members, with so many channels; `low`: this process is the
    /// lower one of the two.
    fn link(
        &mut self,
        calls: usize,
        low: bool,
        keeper: &mut Keeper,
    ) -> Result<FarLink, Box<dyn std::error::Error>> {
        match self {
            Self::Streams(all) => {
                let mine = all.drain(..calls.min(all.len())).collect();
                let end = if low { End::First } else { End::Second };
                Ok(Either::A(TcpLink::new(mine, end, Options::default())?))
            }
            Self::Datagrams(all) if all.is_empty() => Err("a pair of members has no socket".into()),
            Self::Datagrams(all) => Ok(Either::B(UdpLink::new(all.remove(0), low, calls, keeper)?)),
        }
    }
}
