//! Small calls that run without a machine, on tensors that a peer has lent.
//!
//! Peers copy small tensors into a ring's buffers. While those are all in use they lend the tensor
//! instead, and may take it back: both ends are driven by hand here, so that it happens.

use unisono_core::machine::Config;
use unisono_core::{DType, Kind, Layout, ReduceOp, Scalar, Schedule};
use unisono_device_cpu::CpuDevice;
use unisono_driver::HostPtr;
use unisono_link_span::{SpanLink, fabric};
use unisono_runtime::{Buffers, Call, Engine, Quick};

type Member = Engine<CpuDevice, SpanLink<HostPtr>, 1, 16, 40, 16>;

/// Elements of a small call: more than ride in a frame, and few enough for a buffer.
const COUNT: usize = 100;
/// Tensors gathered in such chunks take all buffers that a ring has.
const GATHERED: u64 = 25;
/// Rounds in which a member that has all it needs has long done it.
const ROUNDS: usize = 100;

fn members() -> [Member; 2] {
    let mut ends = (0..).zip(fabric(2, 1, 16));
    [(); 2].map(|()| {
        let (rank, (links, _)) = ends.next().expect("two ends");
        Engine::new(rank, 0, CpuDevice::new(), links.into_iter().collect())
    })
}

fn call(
    member: &Member,
    kind: Kind,
    schedule: Schedule,
    chunk: u64,
    mem: *mut f32,
) -> Call<HostPtr> {
    let mut config = Config {
        epoch: 0,
        op_id: 0,
        rank: 0,
        schedule_print: schedule.fingerprint(),
        schedule,
        layout: Layout { kind, ranks: 2, count: COUNT as u64, chunk, root: 0 },
        dtype: DType::F32,
        op: kind.reduces().then_some(ReduceOp::Sum),
        weight: Scalar::one(DType::F32),
        window: 16,
        eager: 16,
        slots: 0,
        by_bytes: 0,
        puts: 0,
        in_place: true,
        input_private: false,
        output_private: false,
        sources_max: 0,
        dests_max: 0,
        deadline: None,
    };
    member.fit(&mut config).expect("a call that can run");
    let mem = HostPtr::new(mem.cast());
    // Two leaves of a span link need no slots.
    let buffers = Buffers { input: mem, output: mem, scratch: mem };
    Call { config, buffers, source_ready: u64::MAX }
}

fn spin(member: &mut Member) {
    for _ in 0..ROUNDS {
        member.poll();
    }
}

/// Rank 0 has sent more frames than its ring has buffers, and lends what it sends next. `between`
/// is what happens to that call before rank 1 looks; returns what became of it there.
fn lent(between: impl FnOnce(&mut Member, u64, *mut f32)) -> (Vec<f32>, Option<bool>) {
    let [mut zero, mut one] = members();
    let mut far = vec![1.5f32; 2 * COUNT];
    let mut near = vec![0.25f32; 2 * COUNT];
    let (far, near_at) = (far.as_mut_ptr(), near.as_mut_ptr());
    // Rank 1 sends its part before rank 0 does, and does not look for that before it is needed.
    let mut gather = call(&one, Kind::AllGather, Schedule::Ring, GATHERED, near_at);
    gather.buffers.input = HostPtr::new(near_at.wrapping_add(COUNT).cast());
    // SAFETY: here and below both tensors outlive the calls, and one thread uses them.
    let first = unsafe { one.begin(&mut gather) }.expect("a channel");
    one.poll();
    let mut gather = call(&zero, Kind::AllGather, Schedule::Ring, GATHERED, far);
    // SAFETY: see above.
    let gathered = unsafe { zero.begin(&mut gather) }.expect("a channel");
    spin(&mut zero);
    assert_eq!(zero.result(gathered), Some(Ok(())), "it has all, and has sent all");
    let mut sum = call(&zero, Kind::AllReduce, Schedule::OneShot, COUNT as u64, far);
    assert!(zero.is_quick(&sum.config), "small enough");
    let print = sum.config.fingerprint();
    // SAFETY: see above.
    let tried = unsafe { zero.quick(&mut sum, &print, || false) };
    assert_eq!(tried, Ok(Quick::No), "all buffers are in use");
    // SAFETY: see above.
    let lent = unsafe { zero.begin(&mut sum) }.expect("a channel");
    spin(&mut zero);
    between(&mut zero, lent, far);

    spin(&mut one);
    assert_eq!(one.result(first), Some(Ok(())));
    assert_eq!(near[..COUNT], [1.5; COUNT]);
    let mut sum = call(&one, Kind::AllReduce, Schedule::OneShot, COUNT as u64, near_at);
    // SAFETY: see above.
    let done = match unsafe { one.quick(&mut sum, &print, || false) } {
        Ok(Quick::Done) => None,
        Ok(Quick::Begun(begun)) => {
            spin(&mut one);
            Some(one.result(begun).is_some_and(|result| result.is_ok()))
        }
        other => panic!("{other:?}"),
    };
    spin(&mut zero);
    near.truncate(COUNT);
    (near, done)
}

#[test]
fn a_lent_tensor_is_read_in_place() {
    let (near, done) = lent(|_, _, far| {
        // SAFETY: one thread; the peer has not begun to read. A copy would not show this.
        unsafe { far.write(10.0) };
    });
    assert_eq!(done, None, "without a machine");
    let mut want = vec![3.0f32; COUNT];
    want[0] = 11.5;
    assert_eq!(near, want);
}

#[test]
fn a_tensor_that_was_taken_back_is_not_read() {
    let (near, done) = lent(|zero, lent, far| {
        zero.cancel(lent);
        spin(zero);
        assert!(matches!(zero.result(lent), Some(Err(_))), "taken back");
        // SAFETY: the call is over.
        unsafe { far.write(10.0) };
    });
    assert_eq!(done, Some(false), "an error on this side, too");
    assert_eq!(near, [1.5; COUNT], "nothing was written");
}
