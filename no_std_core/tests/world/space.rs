//! The space of small worlds.

use super::Case;
use super::shapes::Rng;
use unisono_core::schedule::{Aggregators, Nodes, Owners};
use unisono_core::{Kind, Schedule};

/// Every schedule, tables in several shapes, over `n` ranks.
pub fn schedules(n: u16) -> Vec<Schedule> {
    let mut all = vec![
        Schedule::Ring,
        Schedule::Direct(Owners::equal(n).unwrap()),
        Schedule::OneShot,
        Schedule::Binomial,
        Schedule::DoubleTree,
        Schedule::HalvingDoubling,
    ];
    let uneven: Vec<u32> = (0..u32::from(n)).map(|r| r * 2 % 5 + u32::from(r == 0)).collect();
    all.push(Schedule::Direct(Owners::weighted(n, &uneven).unwrap()));
    // Two aggregators without data own most of the chunks.
    let helped: Vec<u32> = (0..n).map(|_| 1).chain([3, 2]).collect();
    all.push(Schedule::Direct(Owners::weighted(n, &helped).unwrap()));
    all.extend((1..=3).map(|a| Schedule::Star(Aggregators::new(a).unwrap())));
    all.extend([2, 4, 3].iter().map(|&s| Schedule::Hierarchical(Nodes::even(n, s).unwrap())));
    let striped: Vec<u16> = (0..n).map(|r| r % 3).collect();
    let lopsided: Vec<u16> = (0..n).map(|r| if r * r < n { 0 } else { r / 5 + 1 }).collect();
    let placed: [&[u16]; 2] = [&striped, &lopsided];
    all.extend(placed.map(|nodes| Schedule::Hierarchical(Nodes::new(nodes).unwrap())));
    all.extend([1, 2, 4].iter().map(|&s| Schedule::Hub(Nodes::even(n, s).unwrap())));
    all.extend(placed.map(|nodes| Schedule::Hub(Nodes::new(nodes).unwrap())));
    all
}

/// A number that depends on everything that makes a case what it is.
pub fn seed_of(parts: &[u64]) -> u64 {
    parts.iter().fold(0x5eed, |seed, &part| Rng(seed ^ part).next())
}

/// Every schedule that can do `kind` over `n` ranks, with its number.
pub fn able(kind: Kind, n: u16) -> impl Iterator<Item = (u64, Schedule)> {
    let all = schedules(n).into_iter().enumerate();
    all.filter(move |(_, s)| s.supports(kind, n)).map(|(i, s)| (i as u64, s))
}

/// A case of the exhaustive grid.
pub fn case(
    (number, schedule): &(u64, Schedule),
    kind: Kind,
    n: u16,
    count: u64,
    chunk: u64,
    window: u16,
    root: u16,
) -> Case {
    let mut case = Case::new(schedule.clone(), kind, n, count);
    case.layout.chunk = chunk;
    case.layout.root = root;
    case.window = window;
    let parts = [*number, kind as u64, u64::from(n), count, chunk, u64::from(window), root.into()];
    case.draw(seed_of(&parts))
}
