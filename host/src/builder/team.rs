//! The processes of a group: which members are where, and how fast they are.

use super::places::{About, Places};
use crate::device::rates::{self, Rate};
use crate::error::Error;
use crate::failures::Failures;
use crate::member::MEMBERS_MAX;
use crate::world::World;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use unisono_core::schedule::Owners;
use unisono_rendezvous::Route;

/// What a process brings to a group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Part {
    /// Members with data.
    pub ranks: usize,
    /// Boards without.
    pub aggregators: usize,
    /// What all have to say the same of: what it is, what this process says, and a hash of that.
    pub same: Vec<(String, String, u64)>,
}

impl Part {
    /// What these two processes do not say the same of.
    fn differs(&self, other: &Self) -> Option<String> {
        let both = self.same.iter().zip(&other.same);
        let (a, b) = both.into_iter().find(|((.., a), (.., b))| a != b)?;
        Some(format!("have different {}s: {} and {}", a.0, a.1, b.1))
    }
}

/// Where the members of a group are.
pub(super) struct Team {
    world: Option<World>,
    /// Index of this process.
    pub own: u16,
    /// Members with data.
    pub ranks: u16,
    /// What all processes bring.
    pub all: Part,
    /// The process of each member.
    pub homes: Vec<u16>,
    /// Those of the boards without data.
    hosts: Vec<u16>,
    /// Whether each process shares this one's kernel, and so its cores.
    beside: Vec<bool>,
}

impl Team {
    /// All processes tell each other what they bring.
    pub fn meet(world: Option<&World>, own: Result<Part, Error>) -> Result<Self, Error> {
        let kernel = unisono_rendezvous::boot_id();
        let parts = match world {
            None => vec![(own?, kernel.clone())],
            Some(world) => world.agree(own.map(|part| (part, kernel.clone())))?,
        };
        for (at, two) in parts.windows(2).enumerate() {
            if let Some(what) = two[0].0.differs(&two[1].0) {
                return Err(Error::Build(format!("processes {at} and {} {what}", at + 1)));
            }
        }
        // More than that is refused, and would only take memory here.
        let homes = |count: fn(&Part) -> usize| {
            let homes = (0..).zip(&parts).flat_map(move |(process, (part, _))| {
                std::iter::repeat_n(process, count(part).min(MEMBERS_MAX + 1))
            });
            homes.take(MEMBERS_MAX + 1).collect::<Vec<u16>>()
        };
        let (ranks, hosts) = (homes(|part| part.ranks), homes(|part| part.aggregators));
        let all = Part { ranks: ranks.len(), aggregators: hosts.len(), same: Vec::new() };
        let beside = parts.iter().map(|(_, other)| *other == kernel).collect();
        let own = world.map_or(0, |world| world.rank() as u16);
        let world = world.cloned();
        Ok(Self { world, own, ranks: all.ranks as u16, all, homes: ranks, hosts, beside })
    }

    /// Whether the ranks of all processes fold with CPUs, and what is to be known of the boards.
    pub fn opened(&self, own: Result<&Places, Error>) -> Result<(bool, Option<About>), Error> {
        let own = own.map(|places| (places.is_even(), places.boards(self)));
        let all = match &self.world {
            None => vec![own?],
            Some(world) => world.agree(own)?,
        };
        let even = all.iter().all(|(even, _)| *even);
        let boards = all.into_iter().flat_map(|(_, boards)| boards);
        let about = boards.map(Ok).reduce(|a, b| a?.and(b?));
        Ok((even, about.transpose()?))
    }

    /// Members of this process, in order.
    pub fn own_members(&self) -> impl Iterator<Item = u16> + '_ {
        (0..).zip(&self.homes).filter(|(_, home)| **home == self.own).map(|(member, _)| member)
    }

    /// How many members there are on this machine, however they reach each other.
    pub fn near(&self) -> usize {
        let beside = |home: &&u16| self.beside.get(usize::from(**home)).is_some_and(|b| *b);
        self.homes.iter().filter(beside).count()
    }

    /// Do members share cores here?
    pub fn is_crowded(&self) -> bool {
        std::thread::available_parallelism().is_ok_and(|cores| self.near() > cores.get())
    }

    /// Is it a member of this process?
    pub fn is_own(&self, member: u16) -> bool {
        self.homes.get(usize::from(member)) == Some(&self.own)
    }

    /// Adds members without data until there are so many: boards, each in its own process, and
    /// threads of the first one.
    pub fn fill(&mut self, members: u16) {
        self.homes.extend(&self.hosts);
        self.homes.resize(usize::from(members), 0);
    }

    /// Shares by the measured rates of all ranks; `None` if there is nothing to share.
    pub fn owners(&self, places: &mut Places) -> Result<Option<Owners>, Error> {
        let ranks = self.ranks;
        if ranks < 2 {
            return Ok(None);
        }
        let own = places.rates();
        let Some(world) = &self.world else { return Ok(rates::owners(ranks, &own?)) };
        // Bits: all processes compute shares from the same numbers, infinities included.
        let bits = |rate: &Rate| [rate.fold, rate.send].map(f64::to_bits);
        let own = own.map(|all| all.iter().map(bits).collect::<Vec<_>>());
        let all = world.agree(own)?.into_iter().flatten();
        let rate = |bits: [u64; 2]| {
            let [fold, send] = bits.map(f64::from_bits);
            Rate { fold, send }
        };
        let all: Vec<Rate> = all.map(rate).collect();
        Ok(rates::owners(ranks, &all))
    }

    /// Is it so for any process?
    pub fn any(&self, own: bool) -> Result<bool, Error> {
        let Some(world) = &self.world else { return Ok(own) };
        Ok(world.agree(Ok(own))?.contains(&true))
    }

    /// What passes on the words of devices that fail; once the group is there.
    pub fn failures(&self) -> Failures {
        let of = |world| Failures::of(world, self.own_members().collect());
        self.world.as_ref().map_or_else(Failures::default, of)
    }

    /// Are all members in this process?
    pub const fn is_alone(&self) -> bool {
        self.world.is_none()
    }

    /// What the first process says, if it says something; that another one says something else is
    /// an error of all, and so is an error of any.
    pub fn first<T: Serialize + DeserializeOwned + PartialEq>(
        &self,
        own: Result<Option<T>, Error>,
        what: &str,
    ) -> Result<Option<T>, Error> {
        let Some(world) = &self.world else { return own };
        let mut all = world.agree(own)?.into_iter();
        let first = all.next().flatten();
        let differs = |other: Option<T>| other.is_some() && other != first;
        match all.position(differs) {
            Some(at) => {
                let process = at + 1;
                let text = format!("process {process} has another {what} than process 0");
                Err(Error::Build(text))
            }
            None => Ok(first),
        }
    }

    /// What the first process says.
    pub fn told_by_first(&self, own: String) -> Result<String, Error> {
        let Some(world) = &self.world else { return Ok(own) };
        let own = if self.own == 0 { own } else { String::new() };
        Ok(world.agree(Ok(own))?.into_iter().next().unwrap_or_default())
    }

    /// Ways to the other processes, by their index, for links with so many channels.
    pub fn routes(&self, channels: usize) -> Result<Vec<Option<Route>>, Error> {
        let Some(world) = &self.world else { return Ok(vec![None]) };
        // Every pair of members has a stream for each channel, or one socket.
        let channels = if world.has_datagrams() { 1 } else { channels };
        let count = |process| self.homes.iter().filter(|home| **home == process).count();
        let counts: Vec<usize> = (0..world.size() as u16).map(count).collect();
        let most = |(at, a): (usize, &usize)| counts[..at].iter().map(move |b| a * b).max();
        // A job of one process has no pairs.
        let pairs = counts.iter().enumerate().filter_map(most).max().unwrap_or(1).max(1);
        world.routes(pairs * channels)
    }
}
