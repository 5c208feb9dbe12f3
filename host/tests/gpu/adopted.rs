//! Buffers that the caller computes with are tensors of the group.

use crate::data::{bits, build, noise, reference};
use std::sync::Arc;
use unisono::opencl::opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use unisono::opencl::opencl3::types::CL_BLOCKING;
use unisono::vulkan::vulkano::buffer::{BufferCreateInfo, BufferUsage, Subbuffer};
use unisono::vulkan::vulkano::memory::allocator::{
    AllocationCreateInfo, MemoryTypeFilter, StandardMemoryAllocator,
};
use unisono::vulkan::{VulkanContext, vulkano};
use unisono::{DeviceSpec, Error, Group, Opened, Sum, opencl, vulkan};

const LEN: usize = 50_000;

fn subbuffer(context: &Arc<VulkanContext>) -> Subbuffer<[u8]> {
    let device = context.vulkano_device().clone();
    let usage = BufferUsage::STORAGE_BUFFER | BufferUsage::TRANSFER_SRC | BufferUsage::TRANSFER_DST;
    let filter = MemoryTypeFilter::PREFER_DEVICE | MemoryTypeFilter::HOST_RANDOM_ACCESS;
    vulkano::buffer::Buffer::new_slice::<u8>(
        Arc::new(StandardMemoryAllocator::new_default(device)),
        BufferCreateInfo { usage, ..BufferCreateInfo::default() },
        AllocationCreateInfo { memory_type_filter: filter, ..AllocationCreateInfo::default() },
        LEN as u64 * 4,
    )
    .expect("a buffer")
}

#[test]
fn of_both_apis_in_one_group() {
    let through_vulkan = VulkanContext::open(0, &vulkan::Options::default()).expect("Vulkan");
    let through_opencl = opencl::OpenCl::open(0, &opencl::Options::default()).expect("OpenCL");
    let builder = Group::builder()
        .open(Opened::vulkan(through_vulkan.clone()))
        .open(Opened::opencl(through_opencl.clone()))
        .device(DeviceSpec::Cpu);
    let mut group = build(builder);
    let inputs: Vec<Vec<f32>> = (0..3).map(|rank| noise(rank + 40, LEN)).collect();
    let want = reference(Sum, &inputs);

    // The caller's own objects, filled by the caller's own calls.
    let theirs = subbuffer(&through_vulkan);
    theirs.write().expect("mapped").copy_from_slice(bits(&inputs[0]));
    let context = through_opencl.context().expect("a context");
    let device = context.devices()[0];
    // SAFETY: no host memory is given.
    let buffer =
        unsafe { Buffer::<f32>::create(&context, CL_MEM_READ_WRITE, LEN, std::ptr::null_mut()) };
    let mut buffer = buffer.expect("a buffer");
    // SAFETY: the device is the context's.
    let queue = unsafe {
        opencl::opencl3::command_queue::CommandQueue::create_with_properties(&context, device, 0, 0)
    };
    let queue = queue.expect("a queue");
    // SAFETY: the slice is as long as the buffer, and the call waits.
    unsafe { queue.enqueue_write_buffer(&mut buffer, CL_BLOCKING, 0, &inputs[1], &[]) }
        .expect("written");

    // SAFETY: the buffers are not used until the sum is there.
    let mut first = unsafe { group.adopt_vulkan::<f32>(0, theirs.clone()) }.expect("adopted");
    // SAFETY: as above.
    let mut second = unsafe { group.adopt_opencl::<f32>(1, &buffer) }.expect("adopted");
    let mut third = group.tensor::<f32>(2, LEN).expect("a tensor");
    assert_eq!((first.len(), second.len()), (LEN, LEN));
    third.write(&inputs[2]).expect("written");
    group.all_reduce(&mut [&mut first, &mut second, &mut third], Sum).expect("a sum");
    assert!(bits(&third.to_vec().expect("read")) == want);

    // The result is in the caller's buffers.
    assert!(*theirs.read().expect("mapped") == want[..]);
    let mut back = vec![0f32; LEN];
    // SAFETY: as above.
    unsafe { queue.enqueue_read_buffer(&buffer, CL_BLOCKING, 0, &mut back, &[]) }.expect("read");
    assert!(bits(&back) == want);
}

#[test]
fn of_another_device_is_refused() {
    let group = build(Group::builder().on("cpu,opencl:0").rates(vec![1e9; 2]));
    let context = VulkanContext::open(0, &vulkan::Options::default()).expect("Vulkan");
    for rank in [0, 1, 2] {
        // SAFETY: it is refused.
        let adopted = unsafe { group.adopt_vulkan::<f32>(rank, subbuffer(&context)) };
        let error = adopted.expect_err("no Vulkan");
        assert!(matches!(error, Error::Build(_)), "{error}");
    }
}
