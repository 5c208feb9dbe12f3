//! Several groups at once, each used by a thread of its own.

use crate::again;
use std::thread;
use unisono::{Error, Group, Sum, World};

const GROUPS: usize = 8;
const COUNT: usize = 3000;
/// Each makes, uses and drops all groups.
const ROUNDS: usize = 18;
/// Until then threads' stacks and the allocator's reserves grow.
const WARM: usize = 4;

/// Differs from group to group; sums are not exact.
fn value(group: usize, rank: usize, i: usize) -> f32 {
    let x =
        (i as u32).wrapping_mul(2_654_435_761).wrapping_add((rank * 40_503 + group * 77) as u32);
    (x >> 8) as f32 / 65_536.0 - 100.0
}

/// What four ranks get, in the order that the canonical tree has.
fn wanted(group: usize, i: usize) -> u32 {
    let of = |rank| value(group, rank, i);
    ((of(0) + of(1)) + (of(2) + of(3))).to_bits()
}

/// Some calls of different sizes in this process's part of a group.
fn use_one(number: usize, group: &mut Group) -> Result<(), Error> {
    group.run(|member| {
        let rank = usize::from(member.rank());
        for count in [1, 64, 700, COUNT, 16, COUNT] {
            let mut tensor: Vec<f32> = (0..count).map(|i| value(number, rank, i)).collect();
            member.all_reduce(&mut tensor, Sum)?;
            for (i, got) in tensor.iter().enumerate() {
                assert_eq!(got.to_bits(), wanted(number, i), "group {number}, element {i}");
            }
            let mut own = vec![1_u32 << rank; count];
            member.all_reduce(&mut own, Sum)?;
            assert_eq!(own, vec![15; count], "group {number}");
        }
        Ok::<_, Error>(())
    })?;
    Ok(())
}

/// All groups at once.
fn use_all(groups: &mut [Group]) -> Result<(), Error> {
    thread::scope(|scope| {
        let uses = |(n, group)| scope.spawn(move || use_one(n, group));
        let threads: Vec<_> = groups.iter_mut().enumerate().map(uses).collect();
        threads.into_iter().try_for_each(|t| t.join().expect("a thread without panic"))
    })
}

/// Kilobytes of memory, and open descriptors.
fn size() -> (u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    let fds = std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    (kb.expect("a number"), fds)
}

/// Makes, uses and drops all groups again and again.
fn rounds(mut make: impl FnMut() -> Result<Vec<Group>, Error>) {
    let mut sizes = Vec::new();
    for _ in 0..ROUNDS {
        let mut groups = make().expect("groups");
        use_all(&mut groups).expect("calls");
        drop(groups);
        sizes.push(size());
    }
    let (early, late) = (&sizes[WARM..WARM + 4], &sizes[ROUNDS - 6..]);
    let fds = |half: &[(u64, usize)]| half.iter().map(|s| s.1).max();
    assert!(fds(late) <= fds(early), "memory in KiB, descriptors: {sizes:?}");
    // Threads' stacks and the heap's reserves come and go in steps of some MiB. 80 groups that
    // leave 0.2 MiB each are more than that.
    let (most, least) = (early.iter().map(|s| s.0).max(), late.iter().map(|s| s.0).min());
    assert!(least <= most.map(|kb| kb + (16 << 10)), "memory in KiB, descriptors: {sizes:?}");
}

/// Which thread gets which of several heaps is up to chance, and so is how full they are.
const ONE_HEAP: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

#[test]
fn eight_groups_of_one_process() {
    // In a process of its own: other tests take memory and descriptors, too.
    let name = "many::eight_groups_of_one_process";
    if again::place().is_none() {
        return again::start(name, 1, &[ONE_HEAP]).into_iter().for_each(again::succeeded);
    }
    rounds(|| {
        // Built at once, too.
        thread::scope(|scope| {
            let build = |_| scope.spawn(|| Group::builder().cpus(4).build());
            let threads: Vec<_> = (0..GROUPS).map(build).collect();
            threads.into_iter().map(|t| t.join().expect("a thread without panic")).collect()
        })
    });
}

#[test]
fn eight_groups_of_two_processes() {
    let name = "many::eight_groups_of_two_processes";
    let Some((rank, job)) = again::place() else {
        for links in ["near", "tcp"] {
            let ended = again::start(name, 2, &[ONE_HEAP, ("UNISONO_TEST_LINKS", links)]);
            ended.into_iter().for_each(again::succeeded);
        }
        return;
    };
    let near = std::env::var("UNISONO_TEST_LINKS").is_ok_and(|links| links == "near");
    let world = World::builder().rank(rank).size(2).job(job).near(near).build().expect("a world");
    // All processes make their groups in the same order; which is used when does not matter.
    rounds(|| (0..GROUPS).map(|_| Group::builder().cpus(2).world(&world).build()).collect());
}
