//! What safe code must not be able to break: memory in flight, the numbering of calls, promises.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use unisono::schedule::{Aggregators, Owners};
use unisono::{BitXor, Call, DType, Error, Group, Kind, Schedule, Sum, Weighted, Worker};

fn sum(dtype: DType, count: u64) -> Call {
    Call { op: Some(Sum), ..Call::new(Kind::AllReduce, dtype, count) }
}

/// Scratch of a call in flight must not move when one more call, which needs more, is refused.
#[test]
fn a_refused_call_leaves_the_scratch_of_those_in_flight_alone() {
    let builder = Group::builder().cpus(4).schedule(Schedule::HalvingDoubling).chunk(1 << 18);
    let mut group = builder.build().expect("a group");
    group
        .run(|m| {
            let small = 1 << 16;
            let mut flying = Vec::new();
            for _ in 0..4 {
                flying.push(m.start(&sum(DType::F32, small), vec![1f32; small as usize])?);
            }
            let large = m.start(&sum(DType::F32, 1 << 20), vec![1f32; 1 << 20]);
            assert_eq!(large.err(), Some(Error::Busy(4)));
            for pending in flying {
                assert_eq!(m.wait(pending)?, vec![4f32; small as usize]);
            }
            Ok::<_, Error>(())
        })
        .expect("the four calls match");
}

/// Sizes that overflow are refused, and the calls after them work.
#[test]
fn impossible_sizes_are_refused_and_do_no_harm() {
    let builder = Group::builder().cpus(2).schedule(Schedule::OneShot).chunk(u64::MAX);
    let mut group = builder.build().expect("a group");
    group
        .run(|m| {
            for shift in [61, 62, 63] {
                let call = sum(DType::F64, 1 << shift);
                assert!(matches!(m.run_in_place(&call, &mut []), Err(Error::Length { .. })));
            }
            // The others are told of a refusal; whoever sees that first reports it as theirs.
            let mut t = [1f32, 2.0];
            m.all_reduce(&mut t, Sum)?;
            assert_eq!(t, [2.0, 4.0]);
            Ok::<_, Error>(())
        })
        .expect("legal calls work");
}

/// A call that one rank cannot begin fails on all of them; the next one is again the same on all.
#[test]
fn a_refusal_on_one_rank_is_counted_and_told() {
    for n in 2..=4 {
        let mut group = Group::builder().cpus(n).build().expect("a group");
        let steps = group
            .run(|m| {
                let mut results = Vec::new();
                for step in 0..6u64 {
                    let input = vec![step; 100];
                    let short = usize::from(step == 2 && m.rank() == 1);
                    let mut output = vec![0u64; 100 - short];
                    let result = m.all_reduce_into(&input, &mut output, Sum);
                    results.push(result.map(|()| output[0]));
                }
                // Weights that the type cannot hold are refused before a call is made up, too.
                let weight = if m.rank() == 0 { Weighted(0.5) } else { Weighted(1.0) };
                results.push(m.all_reduce(&mut [1i32], weight).map(|()| 0));
                let mut last = [7u64];
                m.all_reduce(&mut last, Sum)?;
                assert_eq!(last, [7 * m.ranks() as u64]);
                Ok::<_, Error>(results)
            })
            .expect("errors are values");
        for (rank, steps) in steps.iter().enumerate() {
            for (step, result) in steps.iter().enumerate() {
                match (step, rank, result) {
                    (2, 1, Err(Error::Length { .. })) | (6, 0, Err(Error::Weight(_))) => {}
                    (2, _, Err(Error::Refused(1))) | (6, _, Err(Error::Refused(0))) => {}
                    (0 | 1 | 3..6, _, Ok(sum)) => assert_eq!(*sum, step as u64 * n as u64),
                    other => panic!("{n} ranks: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn claims_are_checked_and_dropped_ones_free_their_channel() {
    let mut group = Group::builder().cpus(2).timeout(Duration::from_secs(20)).build().expect("two");
    let kept = group
        .run(|m| {
            for i in 0..40i64 {
                drop(m.start(&sum(DType::I64, 500), vec![i; 500])?);
                // The channels come free as the calls end; until then it says busy.
                let mut t = [i];
                while let Err(error) = m.all_reduce(&mut t, Sum) {
                    assert_eq!(error, Error::Busy(4));
                    std::thread::yield_now();
                    t = [i];
                }
                assert_eq!(t, [2 * i]);
            }
            m.start(&sum(DType::I64, 3), vec![1i64; 3])
        })
        .expect("the calls match");
    let mut kept = kept.into_iter().map(Some).collect::<Vec<_>>();
    let mut members = group.into_members();
    for (m, claim) in members.iter_mut().zip(&mut kept) {
        let claim = claim.take().expect("one a member");
        assert_eq!(m.wait(claim), Err(Error::NoSuchCall), "given up at the end of the run");
    }
}

#[test]
fn empty_tensors_work_in_every_collective_and_in_place_means_what_was_said() {
    let mut group = Group::builder().cpus(3).build().expect("a group");
    group
        .run(|m| {
            let (none, mut out) = (Vec::<f32>::new(), Vec::<f32>::new());
            m.all_to_all(&none, &mut out)?;
            m.all_gather(&none, &mut out)?;
            m.reduce_scatter(&none, &mut out, Sum)?;
            m.all_reduce(&mut out, Sum)?;
            m.broadcast(&mut out, 2)?;
            m.reduce(&mut out, Sum, 1)?;
            let mut blocks = [0u32; 30_000];
            let own = usize::from(m.rank()) * 10_000;
            blocks[own..own + 10_000].fill(u32::from(m.rank()) + 1);
            let call = Call::new(Kind::AllGather, DType::U32, 10_000);
            // SAFETY: plain numbers as bytes.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut(blocks.as_mut_ptr().cast::<u8>(), 120_000)
            };
            m.run_in_place(&call, bytes)?;
            assert!((0..30_000).all(|i| blocks[i] == i as u32 / 10_000 + 1));
            Ok::<_, Error>(())
        })
        .expect("the calls match");
}

#[test]
fn an_orchestrated_group_may_have_aggregators() {
    let star = Schedule::Star(Aggregators::new(2).expect("two"));
    let direct = Schedule::Direct(Owners::equal(3).expect("three"));
    for schedule in [star, direct] {
        let mut group = Group::builder().cpus(3).schedule(schedule).build().expect("a group");
        let mut tensors = [vec![1f32; 5000], vec![2f32; 5000], vec![3f32; 5000]];
        let mut views: Vec<&mut [f32]> = tensors.iter_mut().map(|t| &mut t[..]).collect();
        group.all_reduce(&mut views, Sum).expect("the tensors match");
        assert!(tensors.iter().flatten().all(|x| *x == 6.0));
    }
}

#[test]
fn one_rank_and_its_aggregator_must_agree_as_well() {
    let star = Schedule::Star(Aggregators::new(1).expect("one"));
    let mut group = Group::builder().cpus(1).schedule(star).build().expect("a group");
    let errors = group
        .run(|m| {
            let call = sum(DType::U8, 10 + u64::from(m.rank()));
            let mut t = vec![1u8; if m.rank() == 0 { 10 } else { 0 }];
            Ok::<_, Error>(m.run_in_place(&call, &mut t).err())
        })
        .expect("errors are values");
    assert!(errors.iter().all(|e| matches!(e, Some(Error::Mismatch { .. }))), "{errors:?}");
}

/// Far more calls than channels, one of them much longer than the others.
#[test]
fn a_worker_waits_for_a_channel_instead_of_refusing() {
    let group = Group::builder().cpus(2).build().expect("a group");
    let workers = group.into_members().into_iter().map(Worker::new);
    let workers: Vec<Worker> = workers.collect::<Result<_, _>>().expect("threads");
    let size = |i: usize| if i == 0 { 4 << 20 } else { 1000 };
    let promises: Vec<_> = (0..13)
        .flat_map(|i| workers.iter().map(move |w| (i, w)))
        .map(|(i, w)| (i, w.start(sum(DType::U32, size(i) as u64), vec![1u32; size(i)])))
        .collect();
    for (i, promise) in promises {
        assert_eq!(promise.wait(), Ok(vec![2u32; size(i)]));
    }
}

/// A waker that panics, as a careless executor's might.
struct Careless;

impl Wake for Careless {
    fn wake(self: Arc<Self>) {
        panic!("a careless waker");
    }
}

#[test]
fn promises_are_kept_even_if_the_worker_dies() {
    let builder = Group::builder().cpus(2).timeout(Duration::from_secs(5));
    let mut members = builder.build().expect("a group").into_members();
    let (b, a) = (members.pop().expect("two"), members.pop().expect("two"));
    let [a, b] = [a, b].map(|member| Worker::new(member).expect("a thread"));
    let call = || sum(DType::U8, 9);
    let mut first = a.start(call(), vec![1u8; 9]);
    let waker = Waker::from(Arc::new(Careless));
    let poll = Pin::new(&mut first).poll(&mut Context::from_waker(&waker));
    assert!(matches!(poll, Poll::Pending), "rank 1 has not made the call");
    let second = a.start(call(), vec![1u8; 9]);
    assert_eq!(b.start(call(), vec![1u8; 9]).wait(), Ok(vec![2u8; 9]));
    // The waker has ended rank 0's thread; nobody waits for ever.
    assert_eq!(second.wait(), Err(Error::PeerLost(0)));
    // What rank 0 had sent may still be enough for rank 1's next call, not for the one after.
    let _ = b.start(call(), vec![1u8; 9]).wait();
    assert!(b.start(call(), vec![1u8; 9]).wait().is_err());
}

#[test]
fn members_can_be_taken_out_of_a_group_that_has_run() {
    let mut group = Group::builder().cpus(3).build().expect("a group");
    group.run(|m| m.all_reduce(&mut [1u8; 5], Sum)).expect("the calls match");
    std::thread::scope(|s| {
        for mut m in group.into_members() {
            s.spawn(move || {
                let mut t = [1u8; 5];
                assert_eq!(m.all_reduce(&mut t, Sum), Ok(()));
                assert_eq!(t, [3; 5]);
                // A member leaves only when all are done.
                m.barrier().expect("everybody comes");
            });
        }
    });
}

/// More dropped claims than channels: the next call waits for the oldest one by itself.
#[test]
fn dropped_claims_never_leave_a_member_busy() {
    let mut group = Group::builder().cpus(2).timeout(Duration::from_secs(20)).build().expect("two");
    group
        .run(|m| {
            for i in 0..9i64 {
                drop(m.start(&sum(DType::I64, 2000), vec![i; 2000])?);
            }
            let mut t = [5i64];
            m.all_reduce(&mut t, Sum)?;
            assert_eq!(t, [10]);
            Ok::<_, Error>(())
        })
        .expect("nobody is busy for ever");
}

/// `run` reports what happened on the rank where it happened, whichever that is.
#[test]
fn the_cause_is_reported_not_what_others_heard_of_it() {
    for culprit in 0..3 {
        let mut group = Group::builder().cpus(3).build().expect("a group");
        let error = group.run(|m| {
            let mut out = vec![0u8; if m.rank() == culprit { 4 } else { 5 }];
            m.all_reduce_into(&[1u8; 5], &mut out, Sum)
        });
        assert!(matches!(error, Err(Error::Length { .. })), "{culprit}: {error:?}");
    }
}

#[test]
fn a_result_is_there_once() {
    let group = Group::builder().cpus(1).build().expect("a group");
    let workers = group.into_members().into_iter().map(Worker::new);
    let workers: Vec<Worker> = workers.collect::<Result<_, _>>().expect("threads");
    let mut promise = workers[0].start(sum(DType::U8, 3), vec![1u8; 3]);
    let mut context = Context::from_waker(Waker::noop());
    let first = loop {
        match Pin::new(&mut promise).poll(&mut context) {
            Poll::Ready(result) => break result,
            Poll::Pending => std::thread::yield_now(),
        }
    };
    assert_eq!(first, Ok(vec![1; 3]));
    assert_eq!(promise.wait(), Err(Error::NoSuchCall));
}

/// Errors say what is wrong with a call, in the words of the caller, and blame no group.
#[test]
fn refused_calls_have_their_own_errors() {
    let mut group = Group::builder().cpus(2).build().expect("a group");
    let (mut a, mut b, mut c) = ([1u8], [1u8], [1u8]);
    let three = group.all_reduce(&mut [&mut a, &mut b, &mut c], Sum);
    assert_eq!(three, Err(Error::Tensors { tensors: 3, ranks: 2 }));
    assert_eq!(three.map_err(|e| e.to_string()), Err("3 tensors for 2 ranks".into()));
    group
        .run(|m| {
            let error = m.start(&sum(DType::F32, 4), vec![1u16; 8]).err();
            assert_eq!(error, Some(Error::Type { call: DType::F32, tensor: DType::U16 }));
            let text = error.map(|e| e.to_string());
            assert_eq!(text.as_deref(), Some("the call is on f32, the tensor u16"));
            let errors = [Some(BitXor), None].map(|op| {
                let call = Call { op, ..Call::new(Kind::AllReduce, DType::F32, 1) };
                m.run_in_place(&call, &mut [0; 4]).expect_err("no such call").to_string()
            });
            let why = "does not fit all-reduce of f32";
            assert_eq!(errors[0], format!("cannot begin the call: operator xor {why}"));
            let none = "a call without an operator";
            assert_eq!(errors[1], format!("cannot begin the call: {none} {why}"));
            Ok::<_, Error>(())
        })
        .expect("errors are values");
}

/// A group can be built where there is little stack, as in threads of other runtimes.
#[test]
fn a_small_stack_is_enough() {
    let thread = std::thread::Builder::new().stack_size(192 << 10).spawn(|| {
        let mut group = Group::builder().cpus(2).build().expect("a group");
        group.run(|m| m.barrier()).map(|done| done.len())
    });
    let ranks = thread.expect("a thread").join().expect("no panic");
    assert_eq!(ranks, Ok(2));
}
