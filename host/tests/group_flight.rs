//! Calls in flight: begun and waited for later, carried out by workers, many and small.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use unisono::{Avg, Call, DType, Error, Group, Kind, Max, Sum, Worker};

fn sum(count: u64) -> Call {
    Call { op: Some(Sum), ..Call::new(Kind::AllReduce, DType::I64, count) }
}

fn tensor(rank: u16, call: i64, count: usize) -> Vec<i64> {
    (0..count as i64).map(|i| i * 3 + i64::from(rank) * 1000 + call).collect()
}

fn summed(n: u16, call: i64, count: usize) -> Vec<i64> {
    let ranks = i64::from(n);
    let base = ranks * (ranks - 1) / 2 * 1000 + ranks * call;
    (0..count as i64).map(|i| i * 3 * ranks + base).collect()
}

#[test]
fn several_calls_in_flight_end_in_any_order() {
    for n in [1u16, 2, 3, 5] {
        let mut group = Group::builder().cpus(usize::from(n)).build().expect("a group");
        group
            .run(|m| {
                for round in 0..20 {
                    let count = |k: usize| 1 + 3000 * k * (round % 3);
                    let mut flying = Vec::new();
                    for k in 0..4 {
                        let t = tensor(m.rank(), k as i64, count(k));
                        flying.push((k, m.start(&sum(count(k) as u64), t)?));
                    }
                    let fifth = m.start(&sum(1), vec![0i64]);
                    assert_eq!(fifth.err(), Some(Error::Busy(4)));
                    if m.rank() % 2 == 1 {
                        flying.reverse();
                    }
                    for (k, pending) in flying {
                        assert_eq!(m.wait(pending)?, summed(n, k as i64, count(k)));
                    }
                }
                Ok::<_, Error>(())
            })
            .expect("all calls match");
    }
}

#[test]
fn a_blocking_rank_and_one_with_calls_in_flight_do_not_wait_for_each_other() {
    let mut group = Group::builder().cpus(2).build().expect("a group");
    group
        .run(|m| {
            for _ in 0..50 {
                let (a, b) = (tensor(m.rank(), 1, 5000), tensor(m.rank(), 2, 7000));
                let (a, b) = if m.rank() == 0 {
                    let (a, b) = (m.start(&sum(5000), a)?, m.start(&sum(7000), b)?);
                    let b = m.wait(b)?;
                    (m.wait(a)?, b)
                } else {
                    let (mut a, mut b) = (a, b);
                    m.all_reduce(&mut a, Sum)?;
                    m.all_reduce(&mut b, Sum)?;
                    (a, b)
                };
                assert_eq!(a, summed(2, 1, 5000));
                assert_eq!(b, summed(2, 2, 7000));
            }
            Ok::<_, Error>(())
        })
        .expect("the calls match");
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn workers_carry_out_calls_while_the_caller_does_something_else() {
    let group = Group::builder().cpus(3).build().expect("a group");
    let workers = group.into_members().into_iter().map(Worker::new);
    let workers: Vec<Worker> = workers.collect::<Result<_, _>>().expect("threads");
    // More calls than channels, queued by one thread for all ranks.
    let promises: Vec<_> = (0..10)
        .flat_map(|k| workers.iter().map(move |w| (k, w)))
        .map(|(k, w)| (k, w.start(sum(2000), tensor(w.rank(), k, 2000))))
        .collect();
    for (i, (k, promise)) in promises.into_iter().enumerate() {
        let got = if i % 2 == 0 { promise.wait() } else { block_on(promise) };
        assert_eq!(got, Ok(summed(3, k, 2000)));
    }
    let wrong = workers[0].start(sum(3), vec![0f32; 3]);
    assert!(wrong.wait().is_err(), "the tensor's type is not the call's");
}

#[test]
fn a_call_that_nobody_waits_for_is_given_up_with_its_member() {
    let group = Group::builder().cpus(2).build().expect("a group");
    let mut members = group.into_members();
    let pending = members[0].start(&sum(4000), vec![1i64; 4000]);
    assert!(pending.is_ok());
    drop(pending);
    drop(members.remove(0));
    let error = members[0].all_reduce(&mut vec![1i64; 4000], Sum);
    assert!(matches!(error, Err(Error::Cancelled(0) | Error::PeerLost(0))), "{error:?}");
}

/// Many small calls of all sizes around the limits of inline payloads, vectors and chunks, checked
/// every time; more ranks than cores as well.
#[test]
fn many_small_calls_have_the_right_bits() {
    for n in [2u16, 3, 4, 9] {
        let mut group = Group::builder().cpus(usize::from(n)).build().expect("a group");
        group
            .run(|m| {
                for i in 0..600i64 {
                    let count = [1, 2, 5, 6, 7, 12, 13, 100, 129, 1000][i as usize % 10];
                    let mut t = tensor(m.rank(), i, count);
                    m.all_reduce(&mut t, Sum)?;
                    assert_eq!(t, summed(n, i, count));
                    let mut top = [f64::from(m.rank()) + i as f64];
                    m.all_reduce(&mut top, Max)?;
                    assert_eq!(top, [f64::from(n - 1) + i as f64]);
                    let mut mean = [f32::from(m.rank()); 3];
                    m.all_reduce(&mut mean, Avg)?;
                    assert_eq!(mean, [f32::from(n - 1) / 2.0; 3]);
                }
                Ok::<_, Error>(())
            })
            .expect("the calls match");
    }
}

/// A small call needs no machine where all ranks wait for it at once. Whether a rank has one, or
/// gets one because a peer is late, is its own affair.
#[test]
fn small_calls_meet_with_and_without_machines() {
    for n in [2u16, 3, 5] {
        let mut group = Group::builder().cpus(usize::from(n)).build().expect("a group");
        group
            .run(|m| {
                for i in 0..400i64 {
                    let count = 1 + i as usize % 6;
                    let own = tensor(m.rank(), i, count);
                    if (i + i64::from(m.rank())) % 37 == 0 {
                        std::thread::sleep(std::time::Duration::from_micros(300));
                    }
                    let got = match (i / 5 + i64::from(m.rank())) % 3 {
                        0 => {
                            let pending = m.start(&sum(count as u64), own)?;
                            m.wait(pending)?
                        }
                        1 => {
                            let mut to = vec![0; count];
                            m.all_reduce_into(&own, &mut to, Sum)?;
                            to
                        }
                        _ => {
                            let mut own = own;
                            m.all_reduce(&mut own, Sum)?;
                            own
                        }
                    };
                    assert_eq!(got, summed(n, i, count));
                }
                Ok::<_, Error>(())
            })
            .expect("the calls match");
    }
}
