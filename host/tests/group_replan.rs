//! Plans that are made anew in a group of threads: when, when not, and with what calls around.

use unisono::topology::{Link, LinkKind, Member as Named};
use unisono::{Call, DType, Error, Group, GroupBuilder, Kind, Replan, Schedule, Sum};
use unisono::{Topology, Worker};

/// Two ranks and a link that nobody has: every call has a long forecast.
fn slow() -> Topology {
    let named = Named::named("h", "cpu", None, true);
    let member = Named { fold: 1e10, send: 1e5, receive: 1e5, ..named };
    let (kind, alpha, rate, message) = (LinkKind::Thread, 1e-3, 1e5, None);
    let link = |(from, to)| Link { from, to, kind, alpha, rate, message };
    let links = [(0, 1), (1, 0)].map(link);
    Topology::new(vec![member; 2], links.to_vec()).expect("a topology")
}

fn group(change: impl FnOnce(GroupBuilder) -> GroupBuilder) -> Group {
    change(Group::builder().cpus(2)).build().expect("a group")
}

fn sum(count: u64) -> Call {
    Call { op: Some(Sum), ..Call::new(Kind::AllReduce, DType::F32, count) }
}

#[test]
fn a_group_that_cannot_plan_anew_says_why() {
    let fixed = |b: GroupBuilder| b.topology(slow()).schedule(Schedule::Ring);
    let groups: [(Group, &str); 2] = [
        (group(|b| b), "the group was built without a topology"),
        (group(fixed), "the group has one schedule for all calls"),
    ];
    for (mut group, why) in groups {
        for when in [Replan::default(), Replan::Always] {
            match group.replan(when) {
                Err(Error::Replan(text)) => assert!(text.starts_with(why), "{text}"),
                other => panic!("{other:?}"),
            }
        }
        let done = group.run(|member| member.all_reduce(&mut [1_i32; 8], Sum));
        assert!(done.is_ok(), "calls go on: {done:?}");
    }
}

/// In place of a hang: whoever has a call in flight says so, and the group lives on.
#[test]
fn a_call_in_flight_is_an_error_of_all() {
    let mut group = group(|b| b.topology(slow()));
    let all = group.run(|member| {
        let pending = member.start(&sum(1000), vec![1.5_f32; 1000])?;
        let waiting =
            if member.rank() == 0 { Some(pending) } else { member.wait(pending).map(|_| None)? };
        let done = member.replan(Replan::default());
        if let Some(pending) = waiting {
            assert_eq!(member.wait(pending)?, [3.0; 1000]);
        }
        let again = member.replan(Replan::default());
        Ok::<_, Error>((done.map(|_| ()), again.map(|done| done.measured)))
    });
    let in_flight = "rank 0 has a call in flight: wait for it first".to_owned();
    let want = [Err(Error::Replan(in_flight)), Err(Error::Refused(0))];
    assert_eq!(all.expect("no other error"), want.map(|first| (first, Ok(None))));
}

/// What it takes to agree, of which the forecast is far off here, is no sign of anything.
#[test]
fn asking_changes_nothing() {
    let mut group = group(|b| b.topology(slow()));
    let asked = group.run(|member| {
        for _ in 0..500 {
            let done = member.replan(Replan::default())?;
            assert!(done.measured.is_none() && done.drift == 1.0, "{done:?}");
        }
        Ok::<_, Error>(())
    });
    asked.expect("no error");
}

/// A claim that is dropped leaves a call that nobody can wait for.
#[test]
fn dropped_calls_are_waited_for() {
    let mut group = group(|b| b.topology(slow()));
    let all = group.run(|member| {
        drop(member.start(&sum(1000), vec![1.0_f32; 1000])?);
        drop(member.start(&sum(10), vec![1.0_f32; 10])?);
        member.replan(Replan::default())
    });
    assert!(all.expect("no error").iter().all(|done| done.measured.is_none()));
}

/// One thread drives two workers: their calls are measured, and so is that they are faster.
#[test]
fn workers_plan_anew() {
    let group = group(|b| b.topology(slow()));
    let workers = group.into_members().into_iter().map(Worker::new);
    let workers: Vec<_> = workers.collect::<Result<_, _>>().expect("threads");
    let calls = |late: std::time::Duration| {
        for _ in 0..25 {
            let one = |worker: &Worker| {
                std::thread::sleep(late);
                worker.start(sum(1000), vec![1.5_f32; 1000])
            };
            for promise in workers.iter().map(one).collect::<Vec<_>>() {
                assert_eq!(promise.wait().expect("a sum"), [3.0; 1000]);
            }
        }
    };
    let replan = |when: Replan| {
        let all: Vec<_> = workers.iter().map(|worker| worker.replan(when)).collect();
        let all: Vec<_> = all.into_iter().map(|one| one.wait().expect("no error")).collect();
        assert_eq!(all[0], all[1]);
        all[0].clone()
    };
    calls(std::time::Duration::from_millis(20));
    calls(std::time::Duration::ZERO);
    let done = replan(Replan::default());
    assert!(done.drift > 1.3 && done.changed, "{done:?}");
    let topology = done.measured.expect("it was measured");
    assert!(topology.links.iter().all(|link| link.rate > 1e6), "{topology:?}");
    calls(std::time::Duration::ZERO);
}
