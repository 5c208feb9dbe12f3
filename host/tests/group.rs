//! Groups of threads against the canonical order, for every schedule, size and way to call.

use unisono::schedule::{Aggregators, Nodes, Owners};
use unisono::{Error, Group, Order, Schedule, Sum};

/// Deterministic values that are not exactly representable sums.
fn value(rank: usize, i: usize) -> f32 {
    let x = (i as u32).wrapping_mul(2_654_435_761).wrapping_add(rank as u32 * 40_503);
    (x >> 8) as f32 / 65_536.0 - 100.0
}

fn tensor(rank: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| value(rank, i)).collect()
}

/// The balanced tree over rank ids, split at the largest power of two below n.
fn canonical(values: &[f32]) -> f32 {
    match values {
        [x] => *x,
        _ => {
            let (a, b) = values.split_at(values.len().next_power_of_two() / 2);
            canonical(a) + canonical(b)
        }
    }
}

fn expected(n: usize, count: usize) -> Vec<u32> {
    let column = |i| (0..n).map(|r| value(r, i)).collect::<Vec<_>>();
    (0..count).map(|i| canonical(&column(i)).to_bits()).collect()
}

fn bits(tensor: &[f32]) -> Vec<u32> {
    tensor.iter().map(|x| x.to_bits()).collect()
}

fn schedules(n: u16) -> Vec<Schedule> {
    let mut all = vec![
        Schedule::Ring,
        Schedule::OneShot,
        Schedule::Binomial,
        Schedule::DoubleTree,
        Schedule::HalvingDoubling,
    ];
    all.extend(Owners::equal(n).map(Schedule::Direct));
    all.extend(Aggregators::new(2).map(Schedule::Star));
    all.extend(Nodes::even(n, 2).map(Schedule::Hierarchical));
    all.extend(Nodes::even(n, 2).map(Schedule::Hub));
    all
}

#[test]
fn every_schedule_gives_the_canonical_bits() -> Result<(), Error> {
    for n in 1..=6usize {
        for schedule in schedules(n as u16) {
            let canonical = schedule.is_canonical(unisono::Kind::AllReduce, n as u16);
            for (count, chunk) in [(0, 1), (1, 1), (7, 1), (7, 100), (100, 7), (5000, 512)] {
                let order = if canonical { Order::Canonical } else { Order::Any };
                let builder = Group::builder().cpus(n).schedule(schedule.clone()).order(order);
                let mut group = builder.chunk(chunk).window(3).build()?;
                let want = expected(n, count);
                let got = group.run(|m| {
                    let rank = usize::from(m.rank());
                    let mut t = if rank < n { tensor(rank, count) } else { Vec::new() };
                    let mut out = vec![0f32; t.len()];
                    if rank < n {
                        m.all_reduce_into(&t, &mut out, Sum)?;
                        m.all_reduce(&mut t, Sum)?;
                    } else {
                        let call = unisono::Call {
                            op: Some(Sum),
                            ..unisono::Call::new(
                                unisono::Kind::AllReduce,
                                unisono::DType::F32,
                                count as u64,
                            )
                        };
                        m.run_in_place(&call, &mut [])?;
                        m.run_in_place(&call, &mut [])?;
                    }
                    Ok::<_, Error>((bits(&t), bits(&out)))
                })?;
                let name = schedule.name();
                for (rank, (inplace, apart)) in got.iter().take(n).enumerate() {
                    assert_eq!(inplace, apart, "{name} n={n} count={count} rank={rank}");
                    assert_eq!(inplace, &got[0].0, "{name} n={n} count={count} rank={rank}");
                    if canonical {
                        assert_eq!(inplace, &want, "{name} n={n} count={count} rank={rank}");
                    }
                }
            }
        }
    }
    Ok(())
}
