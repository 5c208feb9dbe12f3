//! Batches: their order, their number, their end, and what is said when one fails.

use opencl3::command_queue::enqueue_marker_with_wait_list;
use opencl3::event::{create_user_event, release_event, set_user_event_status};
use std::sync::Arc;
use unisono_core::{DType, ReduceOp};
use unisono_device_opencl::{Buffer, OpenCl, OpenClQueue, Options};
use unisono_gpu::{Arithmetic, Context, GpuError, Params, Place, Queue, Span, Variant};

const BYTES: u64 = 4096;

fn buffers(cl: &OpenCl, count: usize) -> Vec<Arc<Buffer>> {
    (0..count).map(|_| Arc::new(cl.alloc(BYTES, Place::Pinned).unwrap())).collect()
}

fn span(buffer: &Arc<Buffer>) -> Span<'_, Buffer> {
    Span { buffer, offset: 0, bytes: BYTES }
}

fn fill(cl: &OpenCl, buffer: &Arc<Buffer>, value: i32) {
    let start = cl.mapped(buffer).unwrap().cast::<i32>();
    for i in 0..BYTES as usize / 4 {
        // SAFETY: within the buffer, which nobody else uses.
        unsafe { start.add(i).write(value) };
    }
}

fn read(cl: &OpenCl, buffer: &Arc<Buffer>) -> Vec<i32> {
    let start = cl.mapped(buffer).unwrap().cast::<i32>();
    // SAFETY: as long as that, and nobody writes it.
    unsafe { std::slice::from_raw_parts(start.as_ptr(), BYTES as usize / 4) }.to_vec()
}

/// The sum of two spans of i32.
fn sum(cl: &OpenCl) -> Variant {
    Variant {
        dtype: DType::I32,
        op: Some(ReduceOp::Sum),
        partial: false,
        sources: 2,
        dests: 1,
        partials: 0,
        merges: 1 << 4,
        arithmetic: Arithmetic::default(),
        group_size: cl.limits().group_size,
    }
}

fn copy(queue: &mut OpenClQueue, from: &Arc<Buffer>, to: &Arc<Buffer>) {
    // SAFETY: the buffers outlive the queue.
    unsafe { queue.copy(span(from), span(to)) }.unwrap();
}

/// Each batch sees what the one before has written, whatever the queue may reorder.
fn batches_in_order(out_of_order: bool) {
    let cl = OpenCl::open(0, &Options { out_of_order, ..Options::default() }).unwrap();
    let buffers = buffers(&cl, 41);
    for (i, buffer) in buffers.iter().enumerate() {
        fill(&cl, buffer, i as i32);
    }
    let mut queue = cl.clone().queue().unwrap();
    let variant = sum(&cl);
    let kernel = queue.compile(&variant).unwrap();
    let count = BYTES as u32 / 4;
    // buffer[i + 1] += buffer[i], one batch each: triangular numbers.
    for pair in buffers.windows(2) {
        let spans = [span(&pair[0]), span(&pair[1]), span(&pair[1])];
        let groups = variant.groups(count, cl.limits().groups_max);
        // SAFETY: the buffers outlive the queue; the destination is the second source.
        unsafe { queue.dispatch(&kernel, &Params::new(count, 2), &spans, groups) }.unwrap();
        queue.submit().unwrap();
    }
    queue.wait(40).unwrap();
    for (i, buffer) in buffers.iter().enumerate() {
        let want = (i * (i + 1) / 2) as i32;
        assert!(read(&cl, buffer).iter().all(|&value| value == want), "batch {i}");
    }
}

#[test]
fn batches_run_in_order() {
    batches_in_order(false);
}

#[test]
fn batches_run_in_order_on_a_queue_that_reorders() {
    batches_in_order(true);
}

/// There is an end to what can be recorded and to what can be under way, and it is said before.
#[test]
fn room_ends_and_comes_back() {
    let cl = OpenCl::open(0, &Options::default()).unwrap();
    let buffers = buffers(&cl, 2);
    let mut queue = cl.clone().queue().unwrap();
    assert!(queue.has_room(32), "an empty batch takes at least 32 jobs");
    assert_eq!((queue.submit().unwrap(), queue.poll().unwrap()), (0, 0), "a batch of nothing");
    let mut jobs = 0;
    while queue.has_room(1) {
        copy(&mut queue, &buffers[0], &buffers[1]);
        jobs += 1;
        assert!(jobs < 10_000, "a batch without end");
    }
    let mut batch = queue.submit().unwrap();
    while queue.has_room(1) {
        copy(&mut queue, &buffers[0], &buffers[1]);
        batch = queue.submit().unwrap();
        assert!(batch < 10_000, "batches without end");
    }
    queue.wait(batch).unwrap();
    assert_eq!(queue.poll().unwrap(), batch);
    assert!(queue.has_room(32), "room in an idle queue");
}

/// A kernel is of the queue that compiled it: two queues would mix up its arguments.
#[test]
fn kernels_stay_in_their_queue() {
    let cl = OpenCl::open(0, &Options::default()).unwrap();
    let buffers = buffers(&cl, 3);
    let (mut one, mut two) = (cl.clone().queue().unwrap(), cl.clone().queue().unwrap());
    let kernel = one.compile(&sum(&cl)).unwrap();
    let spans = [span(&buffers[0]), span(&buffers[1]), span(&buffers[2])];
    // SAFETY: both are refused.
    let (other, few) = unsafe {
        let params = Params::new(4, 2);
        let other = two.dispatch(&kernel, &params, &spans, [1, 1]).unwrap_err();
        (other, one.dispatch(&kernel, &params, &spans[..2], [1, 1]).unwrap_err())
    };
    for error in [other, few] {
        assert!(error.to_string().contains("another queue or other spans"), "{error}");
    }
}

/// What does not compile says why, in the compiler's words.
#[test]
fn a_build_failure_has_the_compilers_words() {
    let cl = OpenCl::open(0, &Options::default()).unwrap();
    let mut queue = cl.clone().queue().unwrap();
    // No work group has no items.
    let error = queue.compile(&Variant { group_size: 0, ..sum(&cl) }).unwrap_err();
    let GpuError::Build { kernel, text, .. } = error else { panic!("{error}") };
    assert_eq!(kernel, "sum of i32 from 2 to 1");
    assert!(text.contains("CL_BUILD_PROGRAM_FAILURE") && text.contains("error: "), "{text}");
}

/// A job that fails ends the queue: everything says so from then on, and nothing hangs.
#[test]
fn a_failed_job_loses_the_queue() {
    let cl = OpenCl::open(0, &Options { out_of_order: false, ..Options::default() }).unwrap();
    let buffers = buffers(&cl, 2);
    let mut queue = cl.clone().queue().unwrap();
    copy(&mut queue, &buffers[0], &buffers[1]);
    let first = queue.submit().unwrap();
    queue.wait(first).unwrap();

    // Everything that is enqueued from here on waits for an event, which then fails.
    let event = create_user_event(cl.raw()).unwrap();
    // SAFETY: the queue and the event are of the same context.
    let marker =
        unsafe { enqueue_marker_with_wait_list(queue.raw(), 1, &raw const event) }.unwrap();
    copy(&mut queue, &buffers[0], &buffers[1]);
    let second = queue.submit().unwrap();
    assert_eq!(queue.poll().unwrap(), first, "complete before its time");
    const OUT_OF_RESOURCES: i32 = -5;
    set_user_event_status(event, OUT_OF_RESOURCES).unwrap();

    let error = queue.wait(second).unwrap_err();
    assert!(matches!(error, GpuError::Lost { .. }), "{error}");
    assert_eq!(queue.poll().unwrap_err(), error);
    assert_eq!(queue.submit().unwrap_err(), error);
    // SAFETY: it is refused.
    assert_eq!(unsafe { queue.copy(span(&buffers[0]), span(&buffers[1])) }.unwrap_err(), error);
    drop(queue);
    // SAFETY: both are this test's own.
    unsafe {
        release_event(marker).unwrap();
        release_event(event).unwrap();
    }
    // The device is as good as before.
    let mut queue = cl.clone().queue().unwrap();
    fill(&cl, &buffers[0], 7);
    copy(&mut queue, &buffers[0], &buffers[1]);
    let batch = queue.submit().unwrap();
    queue.wait(batch).unwrap();
    assert!(read(&cl, &buffers[1]).iter().all(|&value| value == 7));
}
