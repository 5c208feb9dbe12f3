//! Makes members of places: everybody gets a link to everybody.

use super::GroupBuilder;
use super::places::{Place, Places};
use crate::device::Opened;
use crate::device::any::AnyDevice;
use crate::device::dpu::Taken;
use crate::error::Error;
use crate::failures::Failures;
use crate::group::Group;
use crate::member::seat::Seat;
use crate::member::{AnyLink, Boards, CALLS_MAX, Member, Parts, Remote, Shared};
use crate::planner::{PlanOptions, WINDOW_MAX};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use unisono_core::schedule::Owners;
use unisono_core::wire::board::Join;
use unisono_device_cpu::CpuDevice;
use unisono_driver::Either;
use unisono_link_span::fabric;

/// What a member is, once the boards are apart.
enum Kind {
    Device(AnyDevice, Option<Opened>),
    /// Which of the boards.
    Board(usize),
}

impl GroupBuilder {
    /// A group of these places.
    pub(super) fn join(
        self,
        places: Places,
        members: u16,
        owners: Option<Owners>,
    ) -> Result<Group, Error> {
        let Self { choice, order, chunk, window, timeout, interrupt, .. } = self;
        let (ranks, boards) = (places.ranks.len() as u16, places.limits());
        let options = PlanOptions { ranks, choice, order, chunk, window, owners, boards };
        let (kinds, mut taken, open) = sorted(places, members);
        let boards = about(&taken);
        let on_board = kinds.iter().map(|kind| matches!(kind, Kind::Board(_))).collect::<Vec<_>>();
        let mut links = Links::new(&on_board, boards.calls);
        for (rank, kind) in (0..).zip(&kinds) {
            if let Kind::Board(board) = kind {
                links.join(&mut taken[*board], rank, boards.epoch)?;
            }
        }
        let name = |(rank, kind): (u16, &Kind)| match kind {
            Kind::Board(board) => Some((rank, taken[*board].home.spec().to_string())),
            Kind::Device(..) => None,
        };
        let names = (0..).zip(&kinds).filter_map(name).collect();
        let taken = taken.into_iter().map(Mutex::new).collect();
        let boards = Boards { taken, names, ..boards };
        let (started, failures) = (Instant::now(), Failures::default());
        let shared =
            Shared { options, timeout, started, devices: open, failures, interrupt, boards };
        let shared = Arc::new(shared);
        let mut seats = Seat::row(usize::from(members)).into_iter().flatten();
        let members = (0..).zip(kinds).zip(links.rows).map(|((rank, kind), row)| {
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
        Ok(Group { members: members.collect() })
    }
}

/// Every member's kind, and the boards. Aggregators that are no boards are on the CPU.
fn sorted(places: Places, members: u16) -> (Vec<Kind>, Vec<Taken>, Vec<Opened>) {
    let Places { ranks, aggregators, open } = places;
    let (mut kinds, mut taken) = (Vec::new(), Vec::new());
    let aggregators = aggregators.into_iter().map(Place::Board);
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
    kinds.resize_with(usize::from(members), on_cpu);
    (kinds, taken, open)
}

/// What the members have to know of these boards.
fn about(taken: &[Taken]) -> Boards {
    let calls = taken.iter().map(|board| usize::from(board.identity().calls));
    let calls = calls.min().unwrap_or(CALLS_MAX).clamp(1, CALLS_MAX);
    Boards {
        // As the engines do: the largest power of two.
        calls: 1 << calls.ilog2(),
        packets: taken.iter().any(|board| board.has_packets()),
        epoch: taken.iter().map(|board| board.group).max().unwrap_or(0),
        ..Boards::default()
    }
}

/// A member's links, by rank, and its bell.
type Row = (Vec<Option<AnyLink>>, Arc<unisono_link_span::Bell>);

/// All links of a group.
struct Links {
    rows: Vec<Row>,
}

impl Links {
    /// Between members of this process; those on boards have none here.
    fn new(on_board: &[bool], calls: usize) -> Self {
        let row = |((links, bell), on_board): (unisono_link_span::Ends<_>, &bool)| {
            let links = links.into_iter().map(|link| link.map(Either::A));
            (if *on_board { Vec::new() } else { links.collect() }, bell)
        };
        let rows = fabric(on_board.len(), calls, WINDOW_MAX).into_iter().zip(on_board).map(row);
        Self { rows: rows.collect() }
    }

    /// Makes the member `rank` a board.
    fn join(&mut self, board: &mut Taken, rank: u16, epoch: u32) -> Result<(), Error> {
        let members = self.rows.len() as u16;
        let peers: Vec<u16> = (0..members).filter(|&peer| peer != rank).collect();
        let ends = board.join(Join { epoch, rank, members, next_op: 0 }, &peers)?;
        for (peer, end) in peers.into_iter().zip(ends) {
            if let Some(link) = self.rows[usize::from(peer)].0.get_mut(usize::from(rank)) {
                *link = Some(Either::B(end));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sum;
    use crate::device::any::Broken;

    /// A device that fails is an error on all ranks, in the driver's words.
    #[test]
    fn all_ranks_hear_what_a_device_says() {
        let cpu = || Place::Device(AnyDevice::Cpu(CpuDevice::new()), None);
        let broken = Place::Device(AnyDevice::Broken(Broken::default()), None);
        let ranks = vec![cpu(), broken, cpu()];
        let places = Places { ranks, aggregators: Vec::new(), open: Vec::new() };
        let mut group = GroupBuilder::new().join(places, 3, None).expect("no boards");
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
}
