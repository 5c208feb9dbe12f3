//! Plans that are made anew: all members agree, whoever has noticed, and results stay the same.

use crate::again;
use std::time::{Duration, Instant};
use unisono::topology::{Link, LinkKind, Member as Named};
use unisono::{DeviceSpec, Error, Group, GroupBuilder, Max, Member, Replan, Replanned};
use unisono::{Sum, Topology, World};

/// Nothing may take so long.
const HANG: Duration = Duration::from_secs(60);

const LINKS: &str = "UNISONO_TEST_LINKS";

/// What nobody would measure: the first rank is a thousand times as fast as the others.
fn wrong(ranks: u16, others: u16) -> Topology {
    let rate = |member| if member == 0 { 1e10 } else { 1e7 };
    let member = |at| {
        let named = Named::named("h", "cpu", None, at < ranks);
        Named { fold: 1e10, send: rate(at), receive: rate(at), ..named }
    };
    let all = ranks + others;
    let pairs = (0..all).flat_map(|a| (0..all).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let (kind, alpha, message) = (LinkKind::Tcp, 5e-5, None);
    let link = |(from, to)| {
        let rate = rate(from).min(rate(to));
        Link { from, to, kind, alpha, rate, message }
    };
    Topology::new((0..all).map(member).collect(), pairs.map(link).collect()).expect("a topology")
}

/// This process's part of a group over TCP, or what the starter of this process wants.
fn builder(rank: usize, job: &str, size: usize) -> GroupBuilder {
    let links = std::env::var(LINKS).unwrap_or_default();
    let world = World::builder().near(links == "memory").datagrams(links == "udp");
    let world = world.rank(rank).size(size).job(job).timeout(HANG / 4);
    Group::builder().world(&world.build().expect("a world")).timeout(HANG / 12)
}

/// A sum whose bits depend on the order of its terms.
fn sum(member: &mut Member, count: usize) -> Result<Vec<f32>, Error> {
    let value = |at: usize| 1.1_f32.powi((at % 50) as i32 + 7 * i32::from(member.rank()));
    let mut tensor: Vec<f32> = (0..count).map(value).collect();
    member.all_reduce(&mut tensor, Sum)?;
    Ok(tensor)
}

/// Every rank has the same.
fn demand_same(member: &mut Member, done: &Replanned) -> Result<(), Error> {
    let drift = done.drift.to_bits();
    let said = [done.plan, !done.plan, drift, !drift, u64::from(done.measured.is_some())];
    let mut most = said;
    member.all_reduce(&mut most[..], Max)?;
    assert_eq!(said, most, "rank {}: {done:?}", member.rank());
    Ok(())
}

#[test]
fn all_members_get_the_same_plan_and_the_same_bits() {
    let name = "replan::all_members_get_the_same_plan_and_the_same_bits";
    let Some((rank, job)) = again::place() else {
        for links in ["tcp", "udp", "memory"] {
            let ended = again::start(name, 2, &[(LINKS, links)]);
            ended.into_iter().for_each(again::succeeded);
        }
        return;
    };
    // Two threads here, one there.
    let builder = builder(rank, &job, 2).cpus(2 - rank).topology(wrong(3, 0));
    let mut group = builder.build().expect("a group");
    group
        .run(|member| {
            let before = sum(member, 200_000)?;
            let steady = member.replan(Replan::default())?;
            assert!(steady.measured.is_none() && !steady.changed && steady.drift == 1.0);
            demand_same(member, &steady)?;
            let done = member.replan(Replan::Always)?;
            demand_same(member, &done)?;
            assert!(done.changed && done.plan != steady.plan, "nobody is as fast as that");
            let topology = done.measured.as_ref().expect("it was measured");
            assert!(topology.members.iter().all(|found| found.host == "h" && found.send > 1e7));
            assert_eq!(before, sum(member, 200_000)?);
            // Nothing has changed since then.
            let again = member.replan(Replan::Beyond(1e3))?;
            assert_eq!((again.measured, again.plan), (None, done.plan));
            Ok::<_, Error>(())
        })
        .expect("no error");
    let done = group.replan(Replan::Always).expect("driven from one thread");
    assert!(done.measured.is_some());
    group.run(|member| demand_same(member, &done)).expect("the same");
}

/// The two others come late to calls, so this one takes longer for them, and they do not.
#[test]
fn one_member_that_has_drifted_is_enough() {
    let name = "replan::one_member_that_has_drifted_is_enough";
    let Some((rank, job)) = again::place() else {
        return again::start(name, 3, &[]).into_iter().for_each(again::succeeded);
    };
    let mut group = builder(rank, &job, 3).topology(wrong(3, 0)).build().expect("a group");
    let calls = |member: &mut Member, late: Duration| {
        for _ in 0..15 {
            member.barrier()?;
            if rank != 1 {
                std::thread::sleep(late);
            }
            sum(member, 100_000)?;
        }
        Ok::<_, Error>(())
    };
    group
        .run(|member| {
            calls(member, Duration::ZERO)?;
            calls(member, Duration::from_millis(120))?;
            let done = member.replan(Replan::Beyond(2.0))?;
            demand_same(member, &done)?;
            assert!(done.drift > 2.0 && done.measured.is_some(), "{done:?}");
            let steady = member.replan(Replan::Beyond(2.0))?;
            assert!(steady.measured.is_none() && steady.drift == 1.0, "{steady:?}");
            Ok::<_, Error>(())
        })
        .expect("no error");
}

#[test]
fn members_without_data_plan_anew_as_well() {
    let name = "replan::members_without_data_plan_anew_as_well";
    let Some((rank, job)) = again::place() else {
        return again::start(name, 3, &[]).into_iter().for_each(again::succeeded);
    };
    let mut builder = builder(rank, &job, 3).topology(wrong(2, 1));
    if rank == 2 {
        builder = builder.device(DeviceSpec::Aggregator);
    }
    let mut group = builder.build().expect("a group");
    let all = group.run(|member| {
        let steady = member.replan(Replan::default())?;
        assert!(steady.measured.is_none(), "{steady:?}");
        member.replan(Replan::Always)
    });
    let done = all.expect("no error").remove(0);
    let topology = done.measured.as_ref().expect("it was measured");
    assert_eq!((topology.ranks(), topology.aggregators()), (2, 1));
    let own = format!("{:016x}", done.plan);
    let world = World::builder().rank(rank).size(3).job(format!("{job}-after"));
    let told = world.build().expect("a world").agree(Ok(own.clone())).expect("no error");
    assert_eq!(told, [own.clone(), own.clone(), own]);
}

/// What a rank does instead is an error of all, soon.
#[test]
fn a_member_that_takes_no_part_hangs_nobody() {
    let name = "replan::a_member_that_takes_no_part_hangs_nobody";
    let Some((rank, job)) = again::place() else {
        for instead in ["a call", "the end", "death", "nothing"] {
            let ended = again::start(name, 3, &[("UNISONO_TEST_INSTEAD", instead)]);
            let judged = ended.into_iter().enumerate();
            let lives = judged.filter(|(rank, _)| *rank != 1 || instead != "death");
            lives.for_each(|(_, output)| again::succeeded(output));
        }
        return;
    };
    let instead = std::env::var("UNISONO_TEST_INSTEAD").expect("what to do");
    let mut group = builder(rank, &job, 3).topology(wrong(3, 0)).build().expect("a group");
    let started = Instant::now();
    let done = group.run(|member| {
        match (rank, instead.as_str()) {
            (1, "a call") => return sum(member, 1000).map(|_| ()),
            (1, "the end") => return Ok(()),
            // In the middle of the measurement.
            (1, "death") => drop(std::thread::spawn(|| {
                std::thread::sleep(Duration::from_millis(700));
                std::process::abort()
            })),
            (1, _) => {
                std::thread::sleep(HANG / 6);
                return Ok(());
            }
            _ => {}
        }
        member.replan(Replan::Always).map(|_| ())
    });
    let done = done.map(|_| ());
    // Death and an end are noticed at once, and silence when the time of a call is over.
    let took = started.elapsed();
    assert!(took < HANG / 2, "{instead}: {took:?}");
    match (rank, instead.as_str()) {
        (1, "the end" | "nothing") => assert_eq!(done, Ok(())),
        (_, "a call") => assert!(matches!(done, Err(Error::Mismatch { .. })), "{done:?}"),
        (_, "the end") => assert_eq!(done, Err(Error::PeerLost(1))),
        (_, "nothing") => assert!(matches!(done, Err(Error::Deadline { .. })), "{done:?}"),
        _ => assert!(done.is_err(), "rank 1 is gone"),
    }
}
