//! Makes members of places: everybody gets a link to everybody.

use super::GroupBuilder;
use super::links::Links;
use super::places::{About, Place, Places};
use super::team::Team;
use crate::device::Opened;
use crate::device::any::AnyDevice;
use crate::device::dpu::Taken;
use crate::error::Error;
use crate::group::Group;
use crate::member::seat::Seat;
use crate::member::{Boards, CALLS_MAX, Member, Parts, Remote, Shared};
use crate::memory::Pool;
use crate::planner::{Limits, PlanOptions};
use crate::relay::{self, Relay};
use crate::replan::Plans;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use unisono_core::schedule::Owners;
use unisono_device_cpu::CpuDevice;
use unisono_link_shm::Word;

/// What a member is, once the boards are apart.
enum Kind {
    Device(AnyDevice, Option<Opened>),
    /// Which of the boards.
    Board(usize),
}

impl GroupBuilder {
    /// A group of these places, and of those of other processes.
    pub(super) fn join(
        self,
        places: Places,
        team: &Team,
        about: Option<About>,
        owners: Option<Owners>,
    ) -> Result<Group, Error> {
        let replanner = self.replanner(&places, team, about.as_ref());
        let Self { choice, order, chunk, window, timeout, interrupt, .. } = self;
        let Self { selection, on_stuck, .. } = self;
        let ranks = team.ranks;
        let options =
            PlanOptions { choice, order, chunk, window, owners, ..PlanOptions::new(ranks) };
        let options = PlanOptions { selection, mixed: options.owners.is_some(), ..options };
        let (kinds, mut taken, open) = sorted(places, team.own_members().count());
        let (limits, mut boards) = known(about, &taken);
        let mut links = Links::new(team, boards.calls)?;
        let streams = team.any(links.streams)?;
        let crowded = streams && team.any(team.is_crowded())?;
        let payload = limits.as_ref().map_or(0, |limits| limits.payload);
        let options = PlanOptions { boards: limits, streams, crowded, ..options };
        let options = Self::planned(self.topology.as_ref(), options, team)?;
        let mut carried = Vec::new();
        for (member, kind) in team.own_members().zip(&kinds) {
            if let Kind::Board(board) = kind {
                boards.own.push(member);
                taken[*board].raise(boards.epoch);
                carried.extend(links.join(&mut taken[*board], member, team, boards.epoch)?);
            }
        }
        let kinds_of_links = links.kinds(team);
        let Links { rows, words, shared, attached, .. } = links;
        let (near, (arena, watch)) = (team.near(), shared.unzip());
        // Where members wait for cores, fetching has always been slower (docs/PERFORMANCE.md).
        let attached = attached && !team.is_crowded();
        let pool = Pool { devices: open, arena, attached };
        let setup = relay::Setup {
            payload_max: usize::try_from(payload).unwrap_or(usize::MAX),
            pool: Pool { arena: pool.arena.clone(), ..Pool::default() },
            stirs: boards.stirs.clone(),
            patience: timeout,
            interrupt: interrupt.clone(),
        };
        let relay = (!carried.is_empty()).then(|| Relay::start(carried, setup)).transpose();
        let relay = relay.map_err(|error| Error::Thread(error.to_string()))?;
        boards.taken = taken.into_iter().map(Mutex::new).collect();
        let (started, failures) = (Instant::now(), team.failures());
        let shared = Arc::new(Shared {
            _relay: relay,
            ranks,
            plans: Plans::new(options),
            replanner,
            timeout,
            started,
            pool,
            near,
            _watch: watch,
            failures,
            interrupt,
            on_stuck,
            boards,
        });
        let mut seats = seats(words, team);
        let members = team.own_members().zip(kinds).zip(rows).map(|((rank, kind), row)| {
            let seat = seats.next();
            match kind {
                Kind::Device(device, on) => {
                    let (links, bell) = row;
                    let parts = Parts { device, on, links, bell, seat };
                    Member::local(rank, shared.clone(), parts)
                }
                Kind::Board(board) => {
                    let remote = Remote::new(rank, shared.clone(), board);
                    Member::remote(rank, shared.clone(), remote)
                }
            }
        });
        Ok(Group { members: members.collect(), ranks, links: kinds_of_links })
    }
}

/// Seats of the members of this process among all on this machine, if there is one for each.
fn seats(words: Vec<(u16, Word)>, team: &Team) -> impl Iterator<Item = Seat> + '_ {
    let (ranks, words): (Vec<u16>, Vec<Word>) = words.into_iter().unzip();
    let all = ranks.into_iter().zip(Seat::row(words).into_iter().flatten());
    all.filter(|(rank, _)| team.is_own(*rank)).map(|(_, seat)| seat)
}

/// Every member's kind, and the boards. Aggregators that are no boards are on the CPU.
fn sorted(places: Places, members: usize) -> (Vec<Kind>, Vec<Taken>, Vec<Opened>) {
    let Places { ranks, aggregators, open } = places;
    let (mut kinds, mut taken) = (Vec::new(), Vec::new());
    for place in ranks.into_iter().chain(aggregators) {
        kinds.push(match place {
            Place::Device(device, on) => Kind::Device(device, on),
            Place::Board(board) => {
                taken.push(board);
                Kind::Board(taken.len() - 1)
            }
        });
    }
    let on_cpu = || Kind::Device(AnyDevice::Cpu(CpuDevice::new()), None);
    kinds.resize_with(members, on_cpu);
    (kinds, taken, open)
}

/// What the members have to know of the boards, of which these are in this process.
fn known(about: Option<About>, taken: &[Taken]) -> (Option<Limits>, Boards) {
    let packets = taken.iter().any(|board| board.has_packets());
    let Some(About { limits, calls, epoch, names }) = about else {
        return (None, Boards { calls: CALLS_MAX, ..Boards::default() });
    };
    let calls = calls.unwrap_or(CALLS_MAX);
    (Some(limits), Boards { calls, epoch, names, packets, ..Boards::default() })
}

#[cfg(test)]
mod tests {
    use super::super::roomy;
    use super::super::team::Part;
    use super::*;
    use crate::Sum;
    use crate::device::any::Broken;
    use crate::world::World;

    /// A device that fails is an error on all ranks, in the driver's words.
    #[test]
    fn all_ranks_hear_what_a_device_says() {
        let cpu = || Place::Device(AnyDevice::Cpu(CpuDevice::new()), None);
        let broken = Place::Device(AnyDevice::Broken(Broken::default()), None);
        let ranks = vec![cpu(), broken, cpu()];
        let places = Places { ranks, aggregators: Vec::new(), open: Vec::new() };
        let part = Part { ranks: 3, ..Part::default() };
        let team = Team::meet(None, Ok(part)).expect("only this process");
        let mut group = GroupBuilder::new().join(places, &team, None, None).expect("no boards");
        let heard = Mutex::new(Vec::new());
        let done = group.run(|member| {
            let result = member.all_reduce(&mut vec![1f32; 100_000], Sum);
            heard.lock().expect("no panic").push(result.clone());
            result
        });
        let text = "a card is lost: fell off the bus".to_owned();
        let want = Err(Error::Device { rank: 1, text });
        assert_eq!(done.map(|_| ()), want);
        assert_eq!(heard.into_inner().expect("no panic"), [want.clone(), want.clone(), want]);
    }

    /// The same for ranks of other processes, however these are linked.
    #[test]
    fn other_processes_hear_what_a_device_says() {
        for near in [true, false] {
            let one = |process: usize| {
                let job = format!("broken-device-{}-{near}", std::process::id());
                let world = World::builder().rank(process).size(3).job(job).near(near);
                let world = world.build().expect("all come");
                let cpu = || Place::Device(AnyDevice::Cpu(CpuDevice::new()), None);
                let broken = || Place::Device(AnyDevice::Broken(Broken::default()), None);
                let ranks = vec![if process == 1 { broken() } else { cpu() }, cpu()];
                let places = Places { ranks, aggregators: Vec::new(), open: Vec::new() };
                let part = Part { ranks: 2, ..Part::default() };
                let team = Team::meet(Some(&world), Ok(part)).expect("all are there");
                let group = roomy(|| GroupBuilder::new().join(places, &team, None, None));
                let mut group = group.flatten().expect("a group");
                let done = group.run(|m| m.all_reduce(&mut vec![1f32; 100_000], Sum));
                done.map(|_| ())
            };
            let errors: Vec<_> = std::thread::scope(|scope| {
                let all = [0, 1, 2].map(|process| scope.spawn(move || one(process)));
                all.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            let text = "a card is lost: fell off the bus".to_owned();
            let want = Err(Error::Device { rank: 2, text });
            assert_eq!(errors, [want.clone(), want.clone(), want]);
        }
    }
}
