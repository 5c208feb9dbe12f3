//! What becomes of a group when something goes wrong, and that it works again afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unisono::{Call, DType, Error, Group, Kind, Max, Member, Sum, Weighted};

fn group(n: usize) -> Group {
    Group::builder().cpus(n).timeout(Duration::from_secs(20)).build().expect("a group of threads")
}

/// The next call of everybody works.
fn works(group: &mut Group) {
    let n = u64::from(group.ranks());
    let sums = group.run(|m| {
        let mut t = vec![u64::from(m.rank()); 1000];
        m.all_reduce(&mut t, Sum)?;
        Ok::<_, Error>(t)
    });
    assert_eq!(sums, Ok(vec![vec![n * (n - 1) / 2; 1000]; n as usize]));
}

/// Every rank makes the call that `call` gives it; all must report a mismatch that names two ranks.
fn mismatch(n: usize, call: impl Fn(u16) -> Call + Sync) {
    let mut group = group(n);
    let errors: Vec<Result<(), Error>> = group
        .run(|m| {
            let mine = call(m.rank());
            let (input, output) = mine.lengths(m.rank(), m.ranks());
            let size = mine.dtype.size() as u64;
            let input = vec![1u8; (input * size) as usize];
            let mut output = vec![0u8; (output * size) as usize];
            Ok::<_, Error>(m.run_apart(&mine, &input, &mut output))
        })
        .expect("the closures return their errors as values");
    for (rank, error) in errors.iter().enumerate() {
        let Err(Error::Mismatch { a, a_print, b, b_print }) = error else {
            panic!("rank {rank} of {n}: {error:?}");
        };
        assert_ne!(a, b);
        assert_ne!(a_print, b_print);
        let text = error.as_ref().map_err(ToString::to_string).expect_err("an error");
        assert!(text.contains(&format!("ranks {a} and {b} disagree")), "{text}");
    }
    works(&mut group);
}

#[test]
fn calls_that_do_not_match_are_reported_by_everybody() {
    let base = |count| Call { op: Some(Sum), ..Call::new(Kind::AllReduce, DType::F32, count) };
    for n in 2..=5 {
        let last = n as u16 - 1;
        let odd = |other: Call| move |r: u16| if r == last { other } else { base(1000) };
        mismatch(n, odd(base(1001)));
        mismatch(n, odd(base(0)));
        mismatch(n, odd(Call { op: Some(Max), ..base(1000) }));
        mismatch(n, odd(Call { dtype: DType::I32, ..base(1000) }));
        mismatch(n, odd(Call { kind: Kind::ReduceScatter, ..base(1000) }));
        mismatch(n, odd(Call { op: None, kind: Kind::Broadcast, ..base(1000) }));
        let cast = |root| Call { root, ..Call::new(Kind::Broadcast, DType::U8, 500) };
        mismatch(n, |r| cast(u16::from(r == last)));
        let reduce = |count| Call { kind: Kind::Reduce, ..base(count) };
        mismatch(n, |r| if r == 0 { reduce(64) } else { reduce(65) });
    }
}

#[test]
fn a_rank_that_stays_away_is_named_at_the_deadline() {
    let builder = Group::builder().cpus(3).timeout(Duration::from_millis(200));
    let mut group = builder.build().expect("a group of threads");
    let start = Instant::now();
    let errors = group
        .run(|m| {
            let mut t = vec![1f32; 5000];
            if m.rank() == 1 {
                std::thread::sleep(Duration::from_millis(1500));
                return Ok(None);
            }
            Ok::<_, Error>(m.all_reduce(&mut t, Sum).err())
        })
        .expect("errors are values");
    // Who owns the lowest chunk waits for rank 1, the other one for the owner. Either may give up
    // first, and the other one may have heard of it before its own deadline.
    for rank in [0, 2] {
        match &errors[rank] {
            Some(Error::Deadline { rank: gave_up, waiting_for, after, .. }) => {
                assert_eq!(*after, Duration::from_millis(200));
                assert!(
                    matches!((gave_up, waiting_for), (0, 1) | (2, 0 | 1)),
                    "{:?}",
                    errors[rank]
                );
            }
            other => panic!("rank {rank}: {other:?}"),
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10));
    works(&mut group);
}

#[test]
fn a_panic_or_an_early_return_hangs_nobody() {
    let mut group = group(4);
    let start = Instant::now();
    let result = group.run(|m| {
        assert_ne!(m.rank(), 2, "rank 2 breaks");
        m.all_reduce(&mut [1f32; 4000], Sum)
    });
    match result {
        Err(Error::Panicked { rank: 2, text }) => assert!(text.contains("rank 2 breaks")),
        other => panic!("{other:?}"),
    }
    works(&mut group);
    let result: Result<Vec<Result<(), Error>>, Error> = group.run(|m| {
        let mut t = vec![1f32; 100];
        let first = m.all_reduce(&mut t, Sum);
        // Rank 3 makes one call fewer than the others.
        let mut both = |m: &mut Member| m.all_reduce(&mut t, Sum);
        Ok::<_, Error>(if m.rank() == 3 { first } else { first.and_then(|()| both(m)) })
    });
    let result = result.expect("errors are values");
    assert_eq!(result[3], Ok(()));
    for lost in &result[..3] {
        assert_eq!(*lost, Err(Error::PeerLost(3)));
    }
    works(&mut group);
    assert!(start.elapsed() < Duration::from_secs(10), "nobody waited for the deadline");
}

#[test]
fn a_dropped_member_is_lost() {
    let mut members = group(3).into_members();
    drop(members.remove(1));
    std::thread::scope(|s| {
        for m in &mut members {
            s.spawn(|| {
                let error = m.all_reduce(&mut [0f32; 9], Sum);
                assert_eq!(error, Err(Error::PeerLost(1)));
            });
        }
    });
}

#[test]
fn wrong_buffers_and_weights_are_refused_before_anything_is_sent() {
    let mut group = group(2);
    let texts = group
        .run(|m: &mut Member| {
            let mut out = [0f32; 3];
            let short = m.all_gather(&[1f32; 2], &mut out).expect_err("4 elements are needed");
            let odd = m.all_to_all(&[1u8; 5], &mut [0u8; 5]).expect_err("5 is not 2 blocks");
            let half = m.all_reduce(&mut [1i32], Weighted(0.5)).expect_err("a fraction");
            let root = m.broadcast(&mut [1u8], 2).expect_err("no rank 2");
            Ok::<_, Error>([short, odd, half, root].map(|e| e.to_string()))
        })
        .expect("refusals are values");
    let want = [
        "needs 16 bytes of output, not 12",
        "needs 4 bytes of input, not 5",
        "whole number",
        "root 2",
    ];
    for (text, want) in texts[0].iter().zip(want) {
        assert!(text.contains(want), "{text}");
    }
    works(&mut group);
}

#[test]
fn groups_that_make_no_sense_are_not_built() {
    let text =
        |b: unisono::GroupBuilder| b.build().err().map(|e| e.to_string()).unwrap_or_default();
    assert!(text(Group::builder().cpus(0)).contains("at least one"));
    assert!(text(Group::builder().cpus(1000)).contains("at most"));
    assert!(text(Group::builder().chunk(0)).contains("0 elements"));
    assert!(text(Group::builder().window(0)).contains("window"));
}

/// Each side fills its window with chunks that the other one's schedule does not send yet, so no
/// frame crosses: they must ask each other, long before the deadline.
#[test]
fn calls_that_wait_for_each_other_find_the_mismatch() {
    for (ranks, window) in [(2, 1), (4, 1), (4, 3), (20, 16)] {
        let builder = Group::builder().cpus(ranks).window(window).chunk(100);
        let mut group = builder.timeout(Duration::from_secs(60)).build().expect("a group");
        let last = ranks as u16 - 1;
        let started = Instant::now();
        let errors: Vec<Result<(), Error>> = group
            .run(|m| {
                let mut tensor = vec![1u8; 100 * ranks * ranks];
                let result = if m.rank() == last {
                    let part = tensor.len() / ranks;
                    m.all_gather(&vec![1u8; part], &mut tensor)
                } else {
                    m.all_reduce(&mut tensor, Sum)
                };
                Ok::<_, Error>(result)
            })
            .expect("the closures return their errors as values");
        for error in errors {
            assert!(matches!(error, Err(Error::Mismatch { .. })), "{ranks}, {window}: {error:?}");
        }
        assert!(started.elapsed() < Duration::from_secs(30), "the deadline found it");
        works(&mut group);
    }
}

/// A rank alone never waits for anybody.
#[test]
fn a_call_of_one_rank_can_be_given_up() {
    let flag = Arc::new(AtomicBool::new(true));
    let builder = Group::builder().chunk(1).interrupt(flag.clone());
    let mut group = builder.build().expect("a group of one");
    let mut tensor = vec![1u8; 10_000_000];
    let result = group.run(|m| m.run_apart(&sum_of(&tensor), &tensor, &mut vec![0; tensor.len()]));
    assert_eq!(result, Err(Error::Cancelled(0)));
    flag.store(false, Ordering::Relaxed);
    tensor.truncate(1000);
    let sums = group.run(|m| m.run_in_place(&sum_of(&tensor), &mut tensor.clone()));
    assert_eq!(sums, Ok(vec![()]));
}

fn sum_of(tensor: &[u8]) -> Call {
    Call { op: Some(Sum), ..Call::new(Kind::AllReduce, DType::U8, tensor.len() as u64) }
}
