//! How fast the links and devices of a group are: calls of groups of two, then of the whole group.

mod calls;
mod timing;

use super::{GroupBuilder, On};
use crate::call::Call;
use crate::device::DeviceSpec;
use crate::error::Error;
use crate::planner::Choice;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use timing::{SHORT, SIZES, exchanges, large, many, reduces, small, timed};
use unisono_core::ReduceOp::Sum;
use unisono_core::schedule::Owners;
use unisono_core::{DType, Kind, Order, Schedule};
use unisono_planner::topology::{Link, Member};
use unisono_planner::{LinkKind, Topology};

/// From one member to another.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Way {
    from: u16,
    to: u16,
    /// Seconds of an empty message.
    alpha: f64,
    /// Bytes per second.
    rate: f64,
    /// Bytes per second that each of the two sends and receives while the other one does.
    both: Option<f64>,
    /// Seconds of a rank's time for each message.
    message: Option<f64>,
}

/// What has been measured so far.
#[derive(Default, Serialize, Deserialize)]
struct Found {
    links: Vec<(u16, u16, LinkKind)>,
    ways: Vec<Way>,
    /// Member, bytes per second sent and received.
    ports: Vec<(u16, f64, f64)>,
}

impl Found {
    fn add(&mut self, more: Vec<Self>) {
        for Self { links, ways, ports } in more {
            self.links.extend(links);
            self.ways.extend(ways);
            self.ports.extend(ports);
        }
    }
}

/// What is called before every step of a measurement, with a word for what comes.
pub type Step<'a> = &'a (dyn Fn(&'static str) + Sync);

/// A measurement of a group.
struct Survey<'a> {
    /// This process's part, and no word about plans.
    builder: GroupBuilder,
    /// Its first rank.
    first: usize,
    /// Which of all ranks are on boards.
    boards: Vec<bool>,
    /// Ranks and those without data.
    members: u16,
    step: Step<'a>,
}

impl GroupBuilder {
    /// Measures the links and devices of this group: what `unisono probe` does. All processes do
    /// it together, and all have the result. `own`: the members of this process, first its ranks,
    /// then those without data; their rates are filled in. Measure while nothing else runs.
    ///
    /// # Errors
    /// As for [`GroupBuilder::build`], and those of calls.
    pub fn measure(&self, own: Vec<Member>, step: Step<'_>) -> Result<Topology, Error> {
        let builder = self.plain();
        step("devices");
        let parts = builder.told(builder.rated(own))?;
        let before = self.world.as_ref().map_or(0, |world| world.rank());
        let first = parts.iter().take(before).map(|(_, boards)| boards.len()).sum();
        let (members, boards): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let (mut members, boards) = (members.concat(), boards.concat());
        // Those without data come last, as in the group.
        members.sort_by_key(|member| !member.data);
        let ranks = boards.len() as u16;
        let count = members.len() as u16;
        let survey = Survey { builder, first, boards, members: count, step };
        let mut found = Found::default();
        for (a, b) in (0..ranks).flat_map(|a| (0..a).map(move |b| (b, a))) {
            step("links");
            survey.pair(a, b, &mut found)?;
        }
        survey.ports(ranks, &mut found)?;
        if count > ranks {
            survey.without_data(ranks, &mut found)?;
        }
        joined(members, &found)
    }

    /// The same devices, and no word about plans.
    pub(super) fn plain(&self) -> Self {
        Self {
            choice: Choice::Auto,
            order: Order::Canonical,
            chunk: None,
            window: None,
            rates: None,
            topology: None,
            selection: None,
            ..self.clone()
        }
    }

    /// The members of this process with the rates of their folds, and which ranks are on boards.
    fn rated(&self, own: Vec<Member>) -> Result<(Vec<Member>, Vec<bool>), Error> {
        let boards: Vec<bool> = self.named()?.iter().map(is_board).collect();
        let rates = self.fold_rates()?;
        let (named, there) = (own.len(), rates.len());
        if named != there {
            return Err(Error::Build(format!("{named} names for {there} members")));
        }
        let rated = |(at, (member, fold))| {
            let (send, receive, both) = (1.0, 1.0, None);
            Member { data: at < boards.len(), fold, send, receive, both, ..member }
        };
        let rated = own.into_iter().zip(rates).enumerate().map(rated).collect();
        Ok((rated, boards))
    }

    /// What all processes say; an error of one is one of all.
    pub(crate) fn told<T: Serialize + DeserializeOwned>(
        &self,
        own: Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        match &self.world {
            None => Ok(vec![own?]),
            Some(world) => world.agree(own),
        }
    }
}

impl Survey<'_> {
    /// A group of so many members: all ranks, or some, by their number.
    fn builder(&self, members: u16, keep: impl Fn(u16) -> bool) -> Result<GroupBuilder, Error> {
        let direct = Owners::equal(members).map(Schedule::Direct);
        let text = || Error::Build(format!("{members} ranks do not fit a group"));
        let mut builder = self.builder.clone().schedule(direct.ok_or_else(text)?);
        let ranks = (self.first as u16..).zip(builder.ranks.unwrap_or_default());
        builder.ranks = Some(ranks.filter(|(rank, _)| keep(*rank)).map(|(_, on)| on).collect());
        builder.aggregators = Vec::new();
        Ok(builder)
    }

    /// Both ways between two ranks.
    fn pair(&self, a: u16, b: u16, all: &mut Found) -> Result<(), Error> {
        let two = || self.builder(2, |rank| rank == a || rank == b);
        let boards = [a, b].iter().any(|rank| self.boards[usize::from(*rank)]);
        let mut group = two()?.build()?;
        let found = group.run(|member| {
            let alpha = small(member)?;
            let rates = [large(member, 0)?, large(member, 1)?];
            // Boards have no memory for more, and no time.
            let both = if boards { None } else { Some(exchanges(member)?) };
            Ok::<_, Error>((member.rank() == 0).then_some((alpha, rates, both)))
        });
        drop(group);
        // Known in the process of the first one; whoever waits hears of an error at once.
        let found = self.builder.told(found)?.into_iter().flatten().flatten().next();
        let message = if boards { None } else { self.message(two()?)? };
        if let Some((alpha, [up, down], both)) = found {
            let way = |from, to, rate: f64| {
                let message = message.map(|time| (time - SHORT as f64 / rate).max(0.0));
                Way { from, to, alpha, rate, both, message }
            };
            all.ways.extend([way(a, b, up), way(b, a, down)]);
        }
        Ok(())
    }

    /// Seconds of one of many short messages between two ranks.
    fn message(&self, two: GroupBuilder) -> Result<Option<f64>, Error> {
        let mut group = two.chunk(SHORT / 4).build()?;
        let times = group.run(|member| {
            let time = many(member)?;
            Ok::<_, Error>((member.rank() == 0).then_some(time))
        });
        Ok(self.builder.told(times)?.into_iter().flatten().flatten().next())
    }

    /// What each rank sends to all others together, and receives from them.
    fn ports(&self, ranks: u16, all: &mut Found) -> Result<(), Error> {
        let mut group = self.builder(ranks, |_| true)?.build()?;
        let links = group.links().to_vec();
        let found = group.run(|member| {
            let mut ports = Vec::new();
            for root in 0..ranks {
                if member.rank() == 0 {
                    (self.step)("ports");
                }
                let sends = large(member, root)?;
                let receives = reduces(member, root)?;
                let others = f64::from(ranks - 1);
                if member.rank() == 0 {
                    ports.push((root, sends * others, receives * others));
                }
            }
            Ok::<_, Error>(ports)
        });
        let found = found.map(|ports| Found { links, ports: ports.concat(), ways: Vec::new() });
        all.add(self.builder.told(found)?);
        Ok(())
    }

    /// Members without data are met by all ranks at once, and share the chunks: the ways of each
    /// are what it then gets.
    fn without_data(&self, ranks: u16, all: &mut Found) -> Result<(), Error> {
        let members = self.members;
        let mut group = self.builder.clone().build()?;
        let there = |link: &&(u16, u16, LinkKind)| link.0.max(link.1) >= ranks;
        let links = group.links().iter().filter(there).copied().collect();
        let found = group.run(|member| {
            let mut all_reduce = |calls, count: usize| {
                let call = Call { op: Some(Sum), ..Call::new(Kind::AllReduce, DType::F32, 0) };
                let call = Call { count: count as u64, ..call };
                // Tensors of aggregators have no elements.
                let has = if member.rank() < ranks { count } else { 0 };
                let mut tensor = member.tensor::<f32>(has)?;
                timed(member, calls, &mut |member| member.in_place(&call, &mut tensor))
            };
            let alpha = all_reduce(64, 2)? / 2.0;
            let time = all_reduce(8, SIZES[2] / 4)?;
            let bytes = SIZES[2] as f64 * f64::from(ranks) / f64::from(members - ranks);
            let rate = bytes / (time - 2.0 * alpha).max(time / 4.0);
            Ok::<_, Error>((member.rank() == 0).then_some((alpha, rate)))
        });
        let found = found.map(|found| {
            let mut own = Found { links, ..Found::default() };
            for (alpha, rate) in found.into_iter().flatten() {
                let way = |from, to| Way { from, to, alpha, rate, both: None, message: None };
                for at in ranks..members {
                    own.ports.push((at, rate, rate));
                    own.ways.extend((0..at).flat_map(|other| [way(other, at), way(at, other)]));
                }
            }
            own
        });
        all.add(self.builder.told(found)?);
        Ok(())
    }
}

const fn is_board(on: &On) -> bool {
    matches!(on, On::Board(_) | On::Named(DeviceSpec::Dpu(_)))
}

/// One topology of what was measured.
fn joined(mut members: Vec<Member>, found: &Found) -> Result<Topology, Error> {
    let Found { links: kinds, ways, ports } = found;
    let mut links = Vec::new();
    for Way { from, to, alpha, rate, message, .. } in ways.iter().copied() {
        let kind = kinds.iter().find(|(a, b, _)| (*a, *b) == (from, to));
        let kind = kind.map_or(LinkKind::Window, |(.., kind)| *kind);
        links.push(Link { from, to, kind, alpha, rate: rate.max(1.0), message });
    }
    for (member, at) in members.iter_mut().zip(0u16..) {
        let most = |all: &mut dyn Iterator<Item = f64>| all.fold(1.0, f64::max);
        // Never less than what one link alone has.
        let port = ports.iter().find(|(rank, ..)| *rank == at).map_or((1.0, 1.0), |p| (p.1, p.2));
        let out = most(&mut links.iter().filter(|link| link.from == at).map(|link| link.rate));
        let into = most(&mut links.iter().filter(|link| link.to == at).map(|link| link.rate));
        (member.send, member.receive) = (port.0.max(out), port.1.max(into));
        // With the fastest of the others: what slower ones let through says nothing of it.
        let both = ways.iter().filter(|way| way.from == at).filter_map(|way| way.both);
        member.both = both.reduce(f64::max).map(|both| both.max(1.0));
    }
    Topology::new(members, links).map_err(|error| Error::Build(error.to_string()))
}
