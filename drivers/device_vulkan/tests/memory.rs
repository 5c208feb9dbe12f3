//! Buffers, copies, batches.

mod common;

use common::{Watch, finish, pinned, span};
use std::ptr::NonNull;
use std::sync::Arc;
use unisono_device_vulkan::vulkano::VulkanObject;
use unisono_device_vulkan::vulkano::buffer::{Buffer, BufferCreateInfo, BufferUsage, Subbuffer};
use unisono_device_vulkan::vulkano::memory::allocator::{
    AllocationCreateInfo, MemoryTypeFilter, StandardMemoryAllocator,
};
use unisono_device_vulkan::{Context, Options, VulkanContext, devices};
use unisono_gpu::{GpuError, Place, Queue};

/// Bytes that differ from their neighbours.
fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|i| ((i * 37 + seed) % 251) as u8).collect()
}

/// With timeline semaphores and without.
fn both_ways() -> [Options; 2] {
    [Options::default(), Options { timeline: false, ..Options::default() }]
}

#[test]
fn lists_and_opens() {
    let watch = Watch::new();
    let Some(context) = watch.open(Options::default()) else { return };
    let card = context.card();
    assert!(!card.name.is_empty() && !card.driver.is_empty() && card.memory > 0);
    assert_eq!(&devices().unwrap()[card.index].name, &card.name);
    let limits = context.limits();
    assert!(limits.span_align >= 4 && limits.span_align.is_power_of_two());
    assert!(limits.group_size >= 1 && limits.groups_max >= 1 && limits.spans_max >= 3);
    let error = VulkanContext::open(99, &Options::default()).unwrap_err();
    assert!(error.to_string().contains(&card.name), "{error}");
}

/// The other tests prove nothing if nobody hears what the layer says.
#[test]
fn what_is_not_destroyed_is_heard() {
    let watch = Watch::new();
    let Some(context) = watch.open(Options::default()) else { return };
    let device = context.vulkano_device();
    let create = device.fns().v1_0.create_fence;
    let (info, mut fence) = (ash::vk::FenceCreateInfo::default(), ash::vk::Fence::null());
    // SAFETY: all structures live until the call returns. Never destroyed, on purpose.
    let made = unsafe { create(device.handle(), &info, std::ptr::null(), &mut fence) };
    assert_eq!(made, ash::vk::Result::SUCCESS);
    drop(context);
    let heard = watch.take();
    if Watch::can_hear() {
        assert!(heard.iter().any(|text| text.contains("VkFence")), "{heard:?}");
    }
}

#[test]
fn copies_any_alignment_through_device_memory() {
    for options in both_ways() {
        let watch = Watch::new();
        let Some(context) = watch.open(options) else { return };
        let mut queue = context.clone().queue().unwrap();
        let (a, from) = pinned(&context, 4096);
        let (b, to) = pinned(&context, 4096);
        let device = Arc::new(context.alloc(4096, Place::Device).unwrap());
        from.copy_from_slice(&bytes(4096, 1));
        for (start, middle, end, len) in [(0, 0, 0, 4096), (1, 2, 3, 5), (77, 0, 1, 1001)] {
            to.fill(0);
            // SAFETY: all spans lie in buffers that outlive the batches.
            unsafe { queue.copy(span(&a, start, len), span(&device, middle, len)) }.unwrap();
            queue.submit().unwrap();
            // SAFETY: as above.
            unsafe { queue.copy(span(&device, middle, len), span(&b, end, len)) }.unwrap();
            finish(&mut queue);
            let (start, end, len) = (start as usize, end as usize, len as usize);
            assert_eq!(to[end..end + len], from[start..start + len]);
            assert!(to[..end].iter().chain(&to[end + len..]).all(|&byte| byte == 0));
        }
    }
}

#[test]
fn batches_are_bounded_and_complete_in_order() {
    for options in both_ways() {
        let watch = Watch::new();
        let Some(context) = watch.open(options) else { return };
        let mut queue = context.clone().queue().unwrap();
        let (buffer, host) = pinned(&context, 64 << 10);
        host.copy_from_slice(&bytes(64 << 10, 2));
        assert_eq!(queue.submit().unwrap(), 0, "nothing was recorded");
        assert_eq!(queue.poll().unwrap(), 0);
        // Rings of batches, each as full as can be; every copy moves eight bytes on.
        let (mut batches, mut at) = (0, 0);
        while batches < 40 {
            let mut jobs = 0;
            while queue.has_room(1) {
                // SAFETY: as above; copies of one batch do not overlap.
                unsafe { queue.copy(span(&buffer, at, 8), span(&buffer, at + 8, 8)) }.unwrap();
                at = (at + 16) % (64 << 10);
                jobs += 1;
            }
            if jobs > 0 {
                // SAFETY: not started.
                let more = unsafe { queue.copy(span(&buffer, 0, 8), span(&buffer, 8, 8)) };
                assert_eq!(more, Err(GpuError::Busy));
                batches += 1;
                assert_eq!(queue.submit().unwrap(), batches);
            } else {
                queue.wait(batches - 3).unwrap();
                assert!(queue.poll().unwrap() >= batches - 3);
            }
        }
        queue.wait(batches).unwrap();
        assert_eq!(queue.poll().unwrap(), batches);
        let want = bytes(64 << 10, 2);
        for pair in 0..4096 {
            assert_eq!(host[pair * 16..pair * 16 + 8], want[pair * 16..pair * 16 + 8]);
            assert_eq!(host[pair * 16 + 8..pair * 16 + 16], want[pair * 16..pair * 16 + 8]);
        }
    }
}

#[test]
fn a_dropped_queue_waits_for_its_work() {
    for options in both_ways() {
        let watch = Watch::new();
        let Some(context) = watch.open(options) else { return };
        let mut queue = context.clone().queue().unwrap();
        let (a, from) = pinned(&context, 1 << 20);
        let (b, to) = pinned(&context, 1 << 20);
        from.copy_from_slice(&bytes(1 << 20, 3));
        // SAFETY: the buffers outlive the queue.
        unsafe { queue.copy(span(&a, 0, 1 << 20), span(&b, 0, 1 << 20)) }.unwrap();
        queue.submit().unwrap();
        drop(queue);
        assert_eq!(from, to);
    }
}

#[test]
fn queues_of_one_device_work_side_by_side() {
    let watch = Watch::new();
    let Some(context) = watch.open(Options::default()) else { return };
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let context = &context;
            scope.spawn(move || {
                let mut queue = context.clone().queue().unwrap();
                let (a, from) = pinned(context, 4096);
                let (b, to) = pinned(context, 4096);
                for round in 0..50 {
                    from.copy_from_slice(&bytes(4096, seed * 50 + round));
                    // SAFETY: the buffers outlive the batch.
                    unsafe { queue.copy(span(&a, 0, 4096), span(&b, 0, 4096)) }.unwrap();
                    finish(&mut queue);
                    assert_eq!(from, to);
                }
            });
        }
    });
}

#[test]
fn imports_pages_in_place() {
    let watch = Watch::new();
    let Some(context) = watch.open(Options::default()) else { return };
    let Some(align) = context.limits().import_align else {
        eprintln!("SKIPPED: {} does not import host memory", context.card().name);
        return;
    };
    let size = align.max(4096) as usize * 4;
    // SAFETY: a private mapping of its own; unmapped below.
    let start = unsafe {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0)
    };
    assert_ne!(start, libc::MAP_FAILED);
    let start = NonNull::new(start.cast::<u8>()).unwrap();
    // SAFETY: mapped until the end of the test; the buffer is dropped before.
    let import = |offset: usize, bytes| unsafe { context.import(start.add(offset), bytes) };
    assert!(matches!(import(64, align), Err(GpuError::Address { .. })));
    assert!(matches!(import(0, align + 1), Err(GpuError::Address { .. })));
    assert!(matches!(import(0, 0), Err(GpuError::Address { .. })));
    // More often than a count of allocations could run over.
    for round in 0..3 {
        let buffer = Arc::new(import(0, size as u64).unwrap());
        assert_eq!(context.mapped(&buffer), Some(start));
        let mut queue = context.clone().queue().unwrap();
        let (own, host) = pinned(&context, size);
        host.copy_from_slice(&bytes(size, round));
        // SAFETY: both outlive the batch.
        unsafe { queue.copy(span(&own, 0, size as u64), span(&buffer, 0, size as u64)) }.unwrap();
        finish(&mut queue);
        // SAFETY: mapped, and no work is under way.
        assert_eq!(unsafe { std::slice::from_raw_parts(start.as_ptr(), size) }, host);
    }
    // SAFETY: all buffers are gone.
    unsafe { libc::munmap(start.as_ptr().cast(), size) };
    drop(context);
    let masked = watch.open(Options { import: false, ..Options::default() }).unwrap();
    assert_eq!(masked.limits().import_align, None);
    // SAFETY: refused before it is touched.
    let refused = unsafe { masked.import(start, align) };
    assert!(refused.unwrap_err().to_string().contains("VK_EXT_external_memory_host"));
}

/// A buffer as a program has it that computes through vulkano.
fn users(context: &VulkanContext, usage: BufferUsage, bytes: u64) -> Subbuffer<[u8]> {
    let device = context.vulkano_device().clone();
    let allocator = Arc::new(StandardMemoryAllocator::new_default(device));
    let info = BufferCreateInfo { usage, ..BufferCreateInfo::default() };
    let filter = MemoryTypeFilter::PREFER_DEVICE | MemoryTypeFilter::HOST_RANDOM_ACCESS;
    let place = AllocationCreateInfo { memory_type_filter: filter, ..Default::default() };
    Buffer::new_slice::<u8>(allocator, info, place, bytes).unwrap()
}

#[test]
fn adopts_the_callers_buffers() {
    let watch = Watch::new();
    let Some(first) = watch.open(Options::default()) else { return };
    // As a program does that has a device and a queue already.
    let queue = first.vulkano_queue().clone();
    let context = VulkanContext::with_queue(queue, &Options::default()).unwrap();
    assert_eq!(context.card(), first.card());
    let all = BufferUsage::STORAGE_BUFFER | BufferUsage::TRANSFER_SRC | BufferUsage::TRANSFER_DST;
    let theirs = users(&context, all, 4096);
    theirs.write().unwrap().copy_from_slice(&bytes(4096, 9));
    let adopted = Arc::new(context.adopt(theirs.clone().slice(1024..2048)).unwrap());
    assert_eq!(context.bytes(&adopted), 1024);
    let mut work = context.clone().queue().unwrap();
    let (own, host) = pinned(&context, 1024);
    // SAFETY: both outlive the batch.
    unsafe { work.copy(span(&adopted, 3, 500), span(&own, 0, 500)) }.unwrap();
    finish(&mut work);
    assert_eq!(host[..500], bytes(4096, 9)[1027..1527]);
    if context.limits().unified {
        let mapped = context.mapped(&adopted).unwrap();
        // SAFETY: mapped as long as the buffer lives, and no work is under way.
        assert_eq!(unsafe { mapped.read() }, bytes(4096, 9)[1024]);
    }
    let refused = |buffer| context.adopt(buffer).unwrap_err().to_string();
    assert!(refused(users(&context, BufferUsage::STORAGE_BUFFER, 64)).contains("TRANSFER_SRC"));
    assert!(refused(theirs.slice(1..65)).contains("minStorageBufferOffsetAlignment"));
    assert!(refused(users(&context, all, 67)).contains("multiple of 4"));
    let other = watch.open(Options::default()).unwrap();
    assert!(refused(users(&other, all, 64)).contains("another device's"));
}

#[test]
fn limits_can_be_narrowed() {
    let watch = Watch::new();
    let narrow = Options {
        buffer_max: 1 << 20,
        span_max: 1 << 16,
        spans_max: 5,
        groups_max: 7,
        group_size: 8,
        unified: false,
        ..Options::default()
    };
    let Some(context) = watch.open(narrow) else { return };
    let limits = context.limits();
    assert_eq!((limits.buffer_max, limits.span_max, limits.spans_max), (1 << 20, 1 << 16, 5));
    assert_eq!((limits.groups_max, limits.group_size, limits.unified), (7, 8, false));
    let error = context.alloc((1 << 20) + 1, Place::Device).unwrap_err();
    assert!(matches!(error, GpuError::OutOfMemory { .. }), "{error}");
    let buffer = context.alloc(1 << 20, Place::Device).unwrap();
    assert_eq!(context.mapped(&buffer), None, "staged as on a discrete GPU");
}
