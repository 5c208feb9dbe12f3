//! Tensors that the library has not allocated: copied to shared memory or fetched by the peer, as
//! the first calls of a size try both.

use crate::again;
use unisono::{Error, Group, GroupBuilder, Member, Order, Schedule, Sum, World};

/// Elements of four bytes: no whole pages, no whole chunks, and large enough to be fetched.
const COUNT: usize = (1 << 18) + 331;

/// Enough for all tries, and some calls the way that was faster.
const CALLS: usize = 20;

fn value(rank: usize, call: usize, i: usize) -> u32 {
    (i as u32).wrapping_mul(2_654_435_761).wrapping_add((rank * 40_503 + call * 77) as u32)
}

fn fill(rank: usize, call: usize, count: usize) -> Vec<u32> {
    (0..count).map(|i| value(rank, call, i)).collect()
}

/// What is at `i` of the sum.
fn sum(call: usize, i: usize) -> u32 {
    value(0, call, i).wrapping_add(value(1, call, i))
}

#[track_caller]
fn demand(what: &str, got: &[u32], want: impl Fn(usize) -> u32) {
    let wrong = got.iter().enumerate().position(|(i, got)| *got != want(i));
    assert_eq!(wrong, None, "{what}: the first wrong element");
}

/// Was it done? Not every schedule has routes for every collective.
fn done(result: Result<(), Error>) -> Result<bool, Error> {
    match result {
        Err(Error::NoPlan { .. }) => Ok(false),
        result => result.map(|()| true),
    }
}

/// Every collective, in place and apart; how many there were.
fn collectives(member: &mut Member, call: usize) -> Result<usize, Error> {
    let (rank, mut all) = (usize::from(member.rank()), 0);
    let own = fill(rank, call, COUNT);
    let mut tensor = own.clone();
    if done(member.all_reduce(&mut tensor, Sum))? {
        demand("all-reduce", &tensor, |i| sum(call, i));
        all += 1;
    }
    let mut output = vec![0; COUNT];
    if done(member.all_reduce_into(&own, &mut output, Sum))? {
        demand("all-reduce apart", &output, |i| sum(call, i));
        all += 1;
    }
    let both = fill(rank, call, 2 * COUNT);
    if done(member.reduce_scatter(&both, &mut output, Sum))? {
        demand("reduce-scatter", &output, |i| sum(call, rank * COUNT + i));
        all += 1;
    }
    let mut wide = vec![0; 2 * COUNT];
    if done(member.all_gather(&own, &mut wide))? {
        demand("all-gather", &wide, |i| value(i / COUNT, call, i % COUNT));
        all += 1;
    }
    if done(member.all_to_all(&both, &mut wide))? {
        demand("all-to-all", &wide, |i| value(i / COUNT, call, rank * COUNT + i % COUNT));
        all += 1;
    }
    let root = (call % 2) as u16;
    let mut tensor = own.clone();
    if done(member.broadcast(&mut tensor, root))? {
        demand("broadcast", &tensor, |i| value(root.into(), call, i));
        all += 1;
    }
    let mut tensor = own.clone();
    if done(member.reduce(&mut tensor, Sum, root))? {
        if usize::from(root) == rank {
            demand("reduce", &tensor, |i| sum(call, i));
        }
        all += 1;
    }
    demand("what was only read", &own, |i| value(rank, call, i));
    Ok(all)
}

/// A tensor of the library at one end, an ordinary one at the other.
fn mixed(member: &mut Member, call: usize) -> Result<(), Error> {
    let rank = usize::from(member.rank());
    let own = fill(rank, call, COUNT);
    if rank == call % 2 {
        let mut tensor = member.tensor::<u32>(COUNT)?;
        tensor.write(&own)?;
        member.all_reduce(&mut tensor, Sum)?;
        demand("in the library's tensor", &tensor.to_vec()?, |i| sum(call, i));
    } else {
        let mut tensor = own;
        member.all_reduce(&mut tensor, Sum)?;
        demand("beside the library's tensor", &tensor, |i| sum(call, i));
    }
    Ok(())
}

const SCHEDULES: [Option<Schedule>; 6] = [
    None,
    Some(Schedule::Ring),
    Some(Schedule::OneShot),
    Some(Schedule::Binomial),
    Some(Schedule::DoubleTree),
    Some(Schedule::HalvingDoubling),
];

#[test]
fn every_way_gives_the_same_bits() {
    let name = "ordinary::every_way_gives_the_same_bits";
    let Some((rank, job)) = again::place() else {
        return again::start(name, 2, &[]).into_iter().for_each(again::succeeded);
    };
    let world = World::builder().rank(rank).size(2).job(job).build().expect("a world");
    for schedule in SCHEDULES {
        let least = if schedule.is_none() { 7 } else { 2 };
        let builder = Group::builder().order(Order::Any).world(&world);
        let builder = match schedule {
            Some(schedule) => builder.schedule(schedule),
            None => builder,
        };
        let all = uses(builder).expect("every call succeeds");
        assert!(all >= least, "{all} collectives");
    }
}

/// Makes all calls; how many collectives there were in each round.
fn uses(builder: GroupBuilder) -> Result<usize, Error> {
    let mut group = builder.build()?;
    let each = group.run(|member| {
        let mut all = 0;
        for call in 0..CALLS {
            all = collectives(member, call)?;
            mixed(member, call)?;
        }
        Ok::<_, Error>(all)
    })?;
    Ok(each[0])
}
