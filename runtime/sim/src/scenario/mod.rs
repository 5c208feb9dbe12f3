//! What a seed stands for: a group, its links and devices, its calls, and what goes wrong.
//!
//! Everything is drawn from the seed, also which kinds of trouble there are at all (swarm testing:
//! Groce et al., ISSTA 2012), so that some runs are calm and others are wild in one way only.

mod calls;
mod faults;
mod ideal;

pub use calls::{CallPlan, Contents, Start};
pub use faults::{Fault, Variant};
pub use ideal::ideal;

use crate::device::DeviceModel;
use crate::hub::Think;
use crate::link::LinkKind;
use crate::net::{Nic, Partition, Weather};
use crate::rng::Rng;
use unisono_driver::DeviceCaps;

/// Most data ranks of a drawn group.
pub const RANKS_MAX: u64 = 9;
/// Most members, aggregators included.
pub const MEMBERS_MAX: usize = 12;
/// Most chunks in flight.
pub const WINDOW_MAX: usize = 16;

/// One member.
#[derive(Clone, Copy, Debug)]
pub struct MemberModel {
    /// How long it takes to notice things.
    pub think: Think,
    /// How fast its network is.
    pub nic: Nic,
    /// Its device.
    pub device: DeviceModel,
    /// What its clock is ahead of virtual time, in nanoseconds.
    pub ahead: u64,
}

/// What a seed stands for.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Ranks with data.
    pub ranks: u16,
    /// All members.
    pub members: Vec<MemberModel>,
    /// What each pair is linked by: entry `[a][b]` for `a < b`.
    pub links: Vec<Vec<LinkKind>>,
    /// What happens to packets before everything heals.
    pub weather: Weather,
    /// Who cannot reach whom, and when.
    pub partitions: Vec<Partition>,
    /// From then on nothing happens to packets.
    pub heals_at: u64,
    /// The calls, in the order in which all members make them.
    pub calls: Vec<CallPlan>,
    /// What goes wrong on purpose.
    pub faults: Vec<Fault>,
    /// Chance during the run.
    pub rng: Rng,
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let ranks = rng.within(1, RANKS_MAX) as u16;
        let aggregators = if rng.chance(30) { rng.within(1, 2) } else { 0 };
        let count = usize::from(ranks) + aggregators as usize;
        let mut parts = rng.fork();
        let members: Vec<MemberModel> = {
            let style = MemberStyle::draw(&mut parts);
            (0..count).map(|_| style.member(&mut parts)).collect()
        };
        let links = draw_links(&mut parts, count);
        let bytes = links.iter().flatten().any(|kind| !matches!(kind, LinkKind::Span { .. }));
        let calls = calls::draw(&mut rng.fork(), ranks, aggregators as u16, bytes);
        let faults = faults::draw(&mut rng.fork(), ranks, aggregators as u16, bytes, &calls);
        let mut members = members;
        draw_gpus(&mut Rng::new(!seed), &mut members);
        for fault in &faults {
            if let Fault::Device { member, job, at } = *fault {
                members[member].device.fails = Some((job, at));
            }
        }
        let mut sky = rng.fork();
        let weather = draw_weather(&mut sky);
        let partitions = draw_partitions(&mut sky, count);
        let heals_at = sky.within(5_000_000, 2_000_000_000);
        Self { ranks, members, links, weather, partitions, heals_at, calls, faults, rng }
    }
}

/// What the members of a group have in common.
struct MemberStyle {
    slow: u64,
    tight_devices: bool,
}

impl MemberStyle {
    fn draw(rng: &mut Rng) -> Self {
        Self { slow: if rng.chance(30) { 30 } else { 0 }, tight_devices: rng.chance(40) }
    }

    fn member(&self, rng: &mut Rng) -> MemberModel {
        let most = if rng.chance(self.slow) { 1_000_000 } else { *rng.pick(&[0, 500, 5_000]) };
        let (sources_max, dests_max, jobs_max) = if self.tight_devices {
            (rng.within(2, 4) as usize, rng.within(1, 2) as usize, 1)
        } else {
            let (sources, dests) = (rng.within(2, 12) as usize, rng.within(1, 12) as usize);
            (sources, dests, rng.within(1, 6) as usize)
        };
        MemberModel {
            think: Think { least: most / 10, most },
            nic: Nic {
                alpha_ns: *rng.pick(&[500, 5_000, 50_000]),
                ps_per_byte: *rng.pick(&[100, 1_000, 8_000]),
            },
            device: DeviceModel {
                caps: DeviceCaps { sources_max, dests_max },
                jobs_max,
                start_ns: *rng.pick(&[0, 200, 20_000]),
                ps_per_byte: *rng.pick(&[0, 100, 2_000]),
                jitter_ns: *rng.pick(&[0, 1_000, 50_000]),
                gathers: false,
                private: [false; 2],
                fails: None,
            },
            ahead: rng.below(3_600_000_000_000),
        }
    }
}

/// Some groups have members like GPUs: with memory of their own, and work that is started in
/// batches.
fn draw_gpus(rng: &mut Rng, members: &mut [MemberModel]) {
    if !rng.chance(40) {
        return;
    }
    for member in members {
        member.device.gathers = rng.chance(50);
        member.device.private = [rng.chance(40), rng.chance(40)];
    }
}

fn draw_links(rng: &mut Rng, members: usize) -> Vec<Vec<LinkKind>> {
    let span = |rng: &mut Rng| LinkKind::Span {
        delay_ns: rng.within(50, 2_000),
        puts: rng.chance(70),
        inline_max: *rng.pick(&[0, 16, 64]),
    };
    // All of a kind, or two nodes with memory in common and a network between them, or any mix.
    let style = rng.below(6);
    let split = rng.below(members as u64 + 1) as usize;
    let wire = if rng.chance(50) { LinkKind::Packet } else { LinkKind::Stream };
    let mut pick = |a: usize, b: usize| match style {
        0 => LinkKind::Packet,
        1 => LinkKind::Stream,
        2 => span(rng),
        3 => {
            if (a < split) == (b < split) {
                span(rng)
            } else {
                wire
            }
        }
        _ => match rng.below(3) {
            0 => LinkKind::Packet,
            1 => LinkKind::Stream,
            _ => span(rng),
        },
    };
    (0..members).map(|a| (0..members).map(|b| pick(a.min(b), a.max(b))).collect()).collect()
}

fn draw_weather(rng: &mut Rng) -> Weather {
    let some = |rng: &mut Rng, most: u64| if rng.chance(50) { rng.within(0, most) } else { 0 };
    Weather {
        loss_ppm: some(rng, 300_000),
        twice_ppm: some(rng, 100_000),
        held_ppm: some(rng, 100_000),
        damage_ppm: some(rng, 50_000),
        jitter_ns: some(rng, 300_000),
        queue_ns: if rng.chance(20) { rng.within(100_000, 5_000_000) } else { 0 },
    }
}

fn draw_partitions(rng: &mut Rng, members: usize) -> Vec<Partition> {
    let most = if rng.chance(20) { 2 } else { 0 };
    (0..rng.within(0, most))
        .map(|_| {
            let from = rng.below(50_000_000);
            let until = from + rng.within(1_000_000, 1_500_000_000);
            Partition { from, until, side: rng.below(1 << members) as u32 }
        })
        .collect()
}
