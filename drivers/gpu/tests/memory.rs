//! Addresses for memory of all kinds.

mod mock;

use mock::{Call, Kind, Mock, MockBuffer, MockContext, Rig, Task, awkward, generous};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use unisono_core::{DType, ReduceOp};
use unisono_driver::{Device, HostMemory, HostPtr, Memory as _};
use unisono_gpu::{GpuError, Memory, Options, Place};
use unisono_testkit::device::{Bits, DeviceHarness};

fn memory(config: mock::Config) -> (Arc<MockContext>, Arc<Memory<Mock>>) {
    let context = MockContext::new(config);
    let memory = Memory::new(Arc::new(Mock(Arc::clone(&context))));
    (context, memory)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Writes and reads all of it, from an odd place on.
fn round_trip(memory: &Arc<Memory<Mock>>, mem: HostPtr, bytes: usize) {
    let (data, mut got) = (pattern(bytes - 3), vec![0; bytes - 3]);
    // SAFETY: within the allocation, which nobody else uses.
    unsafe {
        memory.write(mem.offset(3), &data).unwrap();
        memory.read(mem.offset(3), &mut got).unwrap();
    }
    assert!(got == data, "{bytes} bytes");
}

#[test]
fn what_the_host_cannot_reach_has_addresses_of_its_own() {
    let (context, memory) = memory(awkward());
    let small = memory.alloc(1000, Place::Device).unwrap();
    // Several buffers: the largest are 64 KiB.
    let large = memory.alloc(300_001, Place::Device).unwrap();
    assert_eq!((small.bytes(), large.bytes()), (1000, 300_001));
    for allocation in [&small, &large] {
        assert!(!allocation.is_shared() && !memory.is_shared(allocation.mem()));
        round_trip(&memory, allocation.mem(), allocation.bytes());
    }
    assert!(!memory.is_shared(large.mem().offset(300_000)));
    let pinned = memory.alloc(1000, Place::Pinned).unwrap();
    assert!(pinned.is_shared() && memory.is_shared(pinned.mem()));
    let end = large.mem().offset(300_000);
    drop((small, large, pinned));
    assert!(memory.is_shared(end), "it is nobody's any more");
    drop(memory);
    assert_eq!(context.live.load(Ordering::Relaxed), 0, "buffers are left");
}

#[test]
fn mapped_memory_lies_where_the_host_sees_it() {
    let mut config = generous();
    config.limits.buffer_max = 64 << 10;
    let (context, memory) = memory(config);
    for bytes in [0, 1, 1000, 64 << 10, 300_001] {
        for place in [Place::Device, Place::Pinned] {
            let allocation = memory.alloc(bytes, place).unwrap();
            assert!(allocation.is_shared() && allocation.bytes() == bytes);
            assert!(allocation.mem().as_ptr().addr().is_multiple_of(64));
            if bytes > 3 {
                round_trip(&memory, allocation.mem(), bytes);
                // SAFETY: shared memory of this test's own.
                let first = unsafe { allocation.mem().as_ptr().add(3).read() };
                assert_eq!(first, pattern(1)[0]);
            }
        }
    }
    drop(memory);
    assert_eq!(context.live.load(Ordering::Relaxed), 0, "buffers are left");
}

#[test]
fn mapped_memory_beyond_the_largest_buffer_takes_an_import() {
    let mut config = awkward();
    config.mapped = true;
    let (context, memory) = memory(config);
    let error = memory.alloc(70_000, Place::Device).unwrap_err();
    let text = "mock: no memory for 70000 bytes: more than the device's largest buffer";
    assert_eq!(error.to_string(), text);
    let error = memory.alloc(usize::MAX, Place::Device).unwrap_err();
    assert!(matches!(error, GpuError::OutOfMemory { .. }), "{error}");
    assert_eq!(context.live.load(Ordering::Relaxed), 0);
}

#[test]
fn an_allocation_that_fails_half_way_leaves_nothing() {
    let (context, memory) = memory(awkward());
    let (device, text) = ("mock".to_owned(), "full".to_owned());
    let full = GpuError::OutOfMemory { device, bytes: 1, text };
    context.fail(Call::Alloc, 2, full.clone());
    assert_eq!(memory.alloc(300_000, Place::Device).unwrap_err(), full);
    assert_eq!(context.live.load(Ordering::Relaxed), 0);
    context.heal(Call::Alloc);
    assert!(memory.alloc(300_000, Place::Device).is_ok());
}

#[test]
fn buffers_of_the_callers_own_are_used_to_the_last_byte() {
    for mapped in [true, false] {
        let mut config = awkward();
        config.mapped = mapped;
        config.limits.buffer_max = 1 << 20;
        let mut rig = Rig::new(config, &Options::default()).unwrap();
        // 3 bytes after the last whole word, which no kernel may touch as a word.
        let count = 4099;
        let adopt = |rig: &Rig| {
            let buffer = MockBuffer::new(&rig.context, count, Place::Device);
            rig.memory.adopt(Arc::new(buffer)).unwrap()
        };
        let (from, to) = (adopt(&rig), adopt(&rig));
        assert_eq!((from.bytes(), from.is_shared()), (4099, mapped));
        let data = pattern(4099);
        rig.put(from.mem(), &data);
        let mem = |mem, merges| {
            let (form, weight) = (unisono_core::Form::Leaf, unisono_core::Scalar(0));
            unisono_core::Source { mem, form, weight, merges }
        };
        let work = unisono_driver::Fold {
            dtype: DType::U8,
            op: Some(ReduceOp::Sum),
            count: 4099,
            sources: &[mem(from.mem(), 0), mem(from.mem(), 1)],
            dests: &[to.mem()],
            finish: unisono_core::Finish::Final { ranks: 2 },
        };
        // SAFETY: both allocations live until the completion.
        unsafe { rig.gpu.fold(&work, 1) }.unwrap();
        rig.wait().1.unwrap();
        let want: Vec<u8> = data.iter().map(|byte| byte.wrapping_mul(2)).collect();
        assert!(rig.get(to.mem(), 4099) == want, "mapped: {mapped}");
    }
}

#[test]
fn registered_memory_is_used_in_place() {
    let mut config = generous();
    config.limits.unified = false;
    config.limits.buffer_max = 64 << 10;
    let mut rig = Rig::new(config, &Options::default()).unwrap();
    let mut bits = Bits::new(1);
    let kinds = [Kind::Registered; 3];
    let sum = (DType::F32, ReduceOp::Sum);
    let task = Task::new(&mut rig, &mut bits, sum, 50_000, (2, &kinds), 4);
    let (imports, allocs) = (rig.context.calls(Call::Import), rig.context.calls(Call::Alloc));
    assert!(imports >= 9, "pieces of 64 KiB: {imports}");
    task.start(&mut rig, 1).unwrap();
    rig.wait().1.unwrap();
    task.check(&rig);
    let after = (rig.context.calls(Call::Import), rig.context.calls(Call::Alloc));
    assert_eq!(after, (imports, allocs), "nothing was imported or staged for the fold");
}

#[test]
fn what_cannot_be_registered_says_so() {
    let (_, memory) = memory(awkward());
    assert!(!memory.can_register());
    let mut data = [0u8; 100];
    // SAFETY: the data outlives the registration.
    let error = unsafe { memory.register(HostPtr::new(data.as_mut_ptr()), 100) }.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("cannot reach 100 bytes") && text.contains("import"), "{text}");
}

#[test]
fn a_device_is_shared_by_its_queues() {
    let mut rig = Rig::new(awkward(), &Options::default()).unwrap();
    let compiled = rig.context.calls(Call::Compile);
    let other = unisono_gpu::Gpu::open(&rig.memory, &Options::default()).unwrap();
    assert_eq!(rig.context.calls(Call::Compile), compiled, "tested once");
    assert_eq!(other.card(), rig.gpu.card());
    let mem = rig.place(Kind::Device, 10);
    assert!(!other.is_shared(mem), "an allocation is known to all queues");
}

/// Members are threads.
#[test]
fn everything_can_be_sent_to_a_thread() {
    fn sent<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    sent::<unisono_gpu::Gpu<Mock>>();
    shared::<Memory<Mock>>();
    shared::<unisono_gpu::Allocation<Mock>>();
    shared::<unisono_gpu::Registration<Mock>>();
}
