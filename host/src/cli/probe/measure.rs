//! The measurements: calls of groups of two, then of the whole group.

use super::super::args::{GroupArgs, Place, Ranks};
use super::super::devices::host_and_cpu;
use super::super::interrupt::Interrupt;
use super::super::job::Job;
use super::super::progress::Progress;
use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};
use unisono::schedule::Owners;
use unisono::topology::{LinkKind, numa_nodes, numa_of_pci};
use unisono::{
    Call, DType, DeviceSpec, Error, GroupBuilder, Kind, Schedule, Sum, Tensor, Topology,
};

/// A number is measured in short pieces, of which the fastest counts: what else runs here only ever
/// makes them slower. So many are enough, and fewer if they take long.
const PIECE: Duration = Duration::from_millis(1);
const PIECES: std::ops::Range<u32> = 3..25;
const ENOUGH: Duration = Duration::from_millis(100);
/// A broadcast that takes so long is of a large tensor.
const LONG: f64 = 5e-3;
/// Most calls of a piece: they tell each other nothing in between.
const CALLS_MAX: u32 = 4096;
/// Tensors whose broadcasts are timed: the first one that takes a piece, or the largest.
const SIZES: [usize; 5] = [16 << 10, 128 << 10, 1 << 20, 4 << 20, 16 << 20];

/// What one process knows.
#[derive(Serialize, Deserialize)]
struct Own {
    members: Vec<unisono::topology::Member>,
    links: Vec<(u16, u16, LinkKind)>,
    ways: Vec<Way>,
    /// Rank, bytes per second sent and received.
    ports: Vec<(u16, f64, f64)>,
}

/// From one rank to another.
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

/// What is measured, and where.
pub struct Survey<'a> {
    pub group: &'a GroupArgs,
    pub job: &'a Job,
    pub places: &'a Ranks,
    pub interrupt: &'a Interrupt,
}

/// Measurements of a group.
pub fn steps(ranks: usize) -> u64 {
    (ranks * (ranks - 1) / 2 + 1 + ranks) as u64
}

impl Survey<'_> {
    /// Everything, on all processes together; all have the result.
    pub fn all(&self, progress: &Progress) -> Result<Topology> {
        progress.stage("devices");
        let members = self.members();
        // Nobody goes on where another one cannot.
        let told = self.job.agree(members.as_ref().map(drop).map_err(super::copy));
        let (members, _) = (members?, told?);
        progress.add(1);
        let mut own = Own { members, links: Vec::new(), ways: Vec::new(), ports: Vec::new() };
        progress.stage("links");
        for (a, b) in (0..self.job.ranks()).flat_map(|a| (0..a).map(move |b| (b, a))) {
            own.ways.extend(self.pair(a, b)?);
            progress.add(1);
        }
        progress.stage("ports");
        self.ports(&mut own, progress)?;
        let all = self.job.agree(Ok(own))?;
        joined(all)
    }

    fn builder(&self, ranks: &Ranks, members: u16) -> Result<GroupBuilder> {
        let direct = Owners::equal(members).map(Schedule::Direct);
        let direct = direct.ok_or_else(|| anyhow!("{members} ranks do not fit a group"))?;
        let builder = self.group.plain(self.job, ranks).schedule(direct);
        Ok(builder.interrupt(self.interrupt.flag()))
    }

    /// The members of this process: ranks, then aggregators.
    fn members(&self) -> Result<Vec<unisono::topology::Member>> {
        let rates = self.group.plain(self.job, self.places).fold_rates()?;
        let (host, cpu) = host_and_cpu();
        let sys = Path::new("/sys");
        let nodes = numa_nodes(sys);
        let only = match &nodes[..] {
            [one] => Some(one.node),
            _ => None,
        };
        let boards = self.places.aggregators().iter().cloned();
        let places = self.places.places().iter().cloned();
        let places = places.map(|place| (place, true)).chain(boards.map(|place| (place, false)));
        let member = |((place, data), fold): ((Place, bool), f64)| {
            let pci = if let Place::Gpu(on) = &place { on.card().pci } else { None };
            let pci = pci.and_then(|pci| numa_of_pci(sys, &pci.to_string()));
            let on_cpu = matches!(place, Place::Cpu);
            unisono::topology::Member {
                host: host.clone(),
                device: place.name(&cpu),
                numa: pci.or(only.filter(|_| on_cpu)),
                data,
                fold,
                send: 1.0,
                receive: 1.0,
                both: None,
            }
        };
        Ok(places.zip(rates).map(member).collect())
    }

    /// Both ways between two ranks; known in the process of the first one.
    fn pair(&self, a: usize, b: usize) -> Result<Vec<Way>> {
        let first = self.job.here().start;
        let ranks = self.places.only(|index| [a, b].contains(&(first + index)));
        let mut group = self.builder(&ranks, 2)?.build()?;
        let boards = self.has_boards(&[a, b]);
        let found = group.run(|member| {
            let alpha = small(member)?;
            let rates = [large(member, 0)?, large(member, 1)?];
            // Boards have no memory for more, and no time.
            let both = if boards { None } else { Some(exchanges(member)?) };
            Ok::<_, Error>((member.rank() == 0).then_some((alpha, rates, both)))
        })?;
        drop(group);
        let message = if boards { None } else { self.message(&ranks)? };
        let [a, b] = [a as u16, b as u16];
        let ways = |(alpha, [up, down], both): (f64, [f64; 2], _)| {
            let way = |from, to, rate: f64| {
                let message = message.map(|time| (time - SHORT as f64 / rate).max(0.0));
                Way { from, to, alpha, rate, both, message }
            };
            [way(a, b, up), way(b, a, down)]
        };
        Ok(found.into_iter().flatten().flat_map(ways).collect())
    }

    /// Seconds of one of many short messages between two ranks; known in the process of the first
    /// one.
    fn message(&self, ranks: &Ranks) -> Result<Option<f64>> {
        let mut group = self.builder(ranks, 2)?.chunk(SHORT / 4).build()?;
        let times = group.run(|member| {
            let time = many(member)?;
            Ok::<_, Error>((member.rank() == 0).then_some(time))
        })?;
        Ok(times.into_iter().flatten().next())
    }

    /// Is any of these ranks on a board?
    fn has_boards(&self, ranks: &[usize]) -> bool {
        let devices = self.job.devices().iter().filter(|device| device.has_data());
        let on_board =
            |(rank, device)| ranks.contains(&rank) && matches!(device, &DeviceSpec::Dpu(_));
        devices.enumerate().any(on_board)
    }

    /// What each rank sends to all others together, and receives from them.
    fn ports(&self, own: &mut Own, progress: &Progress) -> Result<()> {
        let ranks = self.job.ranks() as u16;
        let all = self.places.only(|_| true);
        let mut group = self.builder(&all, ranks)?.build()?;
        own.links.extend(group.links());
        let found = group.run(|member| {
            let mut ports = Vec::new();
            for root in 0..ranks {
                let sends = large(member, root)?;
                let receives = reduces(member, root)?;
                let others = f64::from(ranks - 1);
                if member.rank() == 0 {
                    progress.add(1);
                    ports.push((root, sends * others, receives * others));
                }
            }
            Ok::<_, Error>(ports)
        })?;
        own.ports = found.into_iter().flatten().collect();
        drop(group);
        if self.job.devices().len() > self.job.ranks() {
            self.aggregators(own, ranks)?;
        }
        Ok(())
    }

    /// Boards without data are met by all ranks at once, and share the chunks: the ways of each are
    /// what it then gets.
    fn aggregators(&self, own: &mut Own, ranks: u16) -> Result<()> {
        let members = self.job.devices().len() as u16;
        let builder = self.group.plain(self.job, self.places).interrupt(self.interrupt.flag());
        let mut group = builder.build()?;
        let to_board = |link: &&(u16, u16, LinkKind)| link.0.max(link.1) >= ranks;
        own.links.extend(group.links().iter().filter(to_board));
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
        })?;
        for (alpha, rate) in found.into_iter().flatten() {
            let way = |from, to| Way { from, to, alpha, rate, both: None, message: None };
            for board in ranks..members {
                own.ports.push((board, rate, rate));
                own.ways
                    .extend((0..board).flat_map(|other| [way(other, board), way(board, other)]));
            }
        }
        Ok(())
    }
}

/// Seconds of a message without data.
fn small(member: &mut unisono::Member) -> Result<f64, Error> {
    let mut tensor = member.tensor::<f32>(2)?;
    Ok(steady(member, &mut |member| member.all_reduce(&mut tensor, Sum))? / 2.0)
}

/// Bytes of a message that is little more than its frame, and how many there are of it.
const SHORT: u64 = 1024;
const MANY: u64 = 64;

/// Seconds of one of many short messages.
fn many(member: &mut unisono::Member) -> Result<f64, Error> {
    let mut tensor = member.tensor::<f32>((MANY * SHORT / 4) as usize)?;
    Ok(steady(member, &mut |member| member.broadcast(&mut tensor, 0))? / MANY as f64)
}

/// Bytes per second that each of two ranks sends and receives at the same time.
fn exchanges(member: &mut unisono::Member) -> Result<f64, Error> {
    let mut rate = 0.0;
    for bytes in SIZES {
        let count = bytes / 8;
        let input = member.tensor::<f32>(count)?;
        let mut output = member.tensor::<f32>(2 * count)?;
        let time = steady(member, &mut |member| member.all_gather(&input, &mut output))?;
        rate = bytes as f64 / time.max(1e-9);
        if time > LONG {
            break;
        }
    }
    Ok(rate)
}

/// Bytes per second of broadcasts.
fn large(member: &mut unisono::Member, root: u16) -> Result<f64, Error> {
    sized(member, &mut |member, tensor| member.broadcast(tensor, root))
}

/// Bytes per second that reach a root from each of the others.
fn reduces(member: &mut unisono::Member, root: u16) -> Result<f64, Error> {
    sized(member, &mut |member, tensor| member.reduce(tensor, Sum, root))
}

type On<'a> = &'a mut dyn FnMut(&mut unisono::Member, &mut Tensor<f32>) -> Result<(), Error>;

/// Bytes of a tensor over the time of a call, for one that takes long enough.
fn sized(member: &mut unisono::Member, call: On<'_>) -> Result<f64, Error> {
    let mut rate = 0.0;
    for bytes in SIZES {
        let mut tensor = member.tensor::<f32>(bytes / 4)?;
        let time = steady(member, &mut |member| call(member, &mut tensor))?;
        rate = bytes as f64 / time.max(1e-9);
        if time > LONG {
            break;
        }
    }
    Ok(rate)
}

/// Seconds of a call that is made again and again, in the fastest of some pieces by rank 0's clock.
fn steady(
    member: &mut unisono::Member,
    call: &mut dyn FnMut(&mut unisono::Member) -> Result<(), Error>,
) -> Result<f64, Error> {
    let (mut calls, mut pieces, mut least) = (1u32, 0, f64::INFINITY);
    let mut taken = Duration::ZERO;
    while pieces < PIECES.start || (pieces < PIECES.end && taken < ENOUGH) {
        let whole = timed(member, calls, call)? * f64::from(calls);
        // All go by the same clock, so all make as many calls.
        let mut time = [(whole * 1e9) as u64];
        member.broadcast(&mut time[..], 0)?;
        let whole = Duration::from_nanos(time[0]);
        if whole < PIECE && calls < CALLS_MAX && pieces == 0 {
            calls *= 4;
            continue;
        }
        pieces += 1;
        taken += whole;
        least = least.min(whole.as_secs_f64() / f64::from(calls));
    }
    Ok(least)
}

/// Seconds of one of so many calls.
fn timed(
    member: &mut unisono::Member,
    calls: u32,
    call: &mut dyn FnMut(&mut unisono::Member) -> Result<(), Error>,
) -> Result<f64, Error> {
    member.barrier()?;
    let started = Instant::now();
    for _ in 0..calls {
        call(member)?;
    }
    member.barrier()?;
    Ok(started.elapsed().as_secs_f64() / f64::from(calls))
}

/// One topology of what all processes know.
fn joined(all: Vec<Own>) -> Result<Topology> {
    let (mut members, mut links) = (Vec::new(), Vec::new());
    let (mut kinds, mut ways, mut ports) = (Vec::new(), Vec::new(), Vec::new());
    for own in all {
        members.extend(own.members);
        // Those without data come last, as in the group.
        members.sort_by_key(|member| !member.data);
        kinds.extend(own.links);
        ways.extend(own.ways);
        ports.extend(own.ports);
    }
    for Way { from, to, alpha, rate, message, .. } in ways.iter().copied() {
        let kind = kinds.iter().find(|(a, b, _)| (*a, *b) == (from, to));
        let kind = kind.map_or(LinkKind::Window, |(.., kind)| *kind);
        let rate = rate.max(1.0);
        links.push(unisono::topology::Link { from, to, kind, alpha, rate, message });
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
    Ok(Topology::new(members, links)?)
}
