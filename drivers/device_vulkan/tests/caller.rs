//! A program's own vulkano device, queue and buffers: what its kernels and commands leave there is
//! reduced in place.

mod common;

use common::Watch;
use std::sync::Arc;
use unisono_core::fold::leaf_merges;
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source};
use unisono_device_vulkan::vulkano::buffer::{Buffer, BufferCreateInfo, BufferUsage, Subbuffer};
use unisono_device_vulkan::vulkano::command_buffer::allocator::StandardCommandBufferAllocator;
use unisono_device_vulkan::vulkano::command_buffer::{
    AutoCommandBufferBuilder, CommandBufferUsage, PrimaryCommandBufferAbstract,
};
use unisono_device_vulkan::vulkano::device::{Device, DeviceCreateInfo, Queue, QueueCreateInfo};
use unisono_device_vulkan::vulkano::memory::allocator::{
    AllocationCreateInfo, MemoryTypeFilter, StandardMemoryAllocator,
};
use unisono_device_vulkan::vulkano::sync::GpuFuture;
use unisono_device_vulkan::{Context, Options, VulkanContext};
use unisono_driver::{Device as _, Fold};
use unisono_gpu::{Arithmetic, Gpu, Memory};

const COUNT: usize = 10_000;

/// The program's device, which knows nothing of this crate and has no features switched on.
fn device(watch: &Watch) -> Option<Arc<Queue>> {
    // Only for its instance, which listens to the validation layer.
    let context = watch.open(Options::default())?;
    let physical = context.vulkano_device().physical_device().clone();
    let family = context.vulkano_queue().queue_family_index();
    let info = DeviceCreateInfo {
        queue_create_infos: vec![QueueCreateInfo {
            queue_family_index: family,
            ..QueueCreateInfo::default()
        }],
        ..DeviceCreateInfo::default()
    };
    let (_, mut queues) = Device::new(physical, info).unwrap();
    queues.next()
}

/// A tensor that the program has filled by a command of its own.
fn tensor(queue: &Arc<Queue>, value: f32) -> Subbuffer<[u32]> {
    let device = queue.device();
    let usage = BufferUsage::STORAGE_BUFFER | BufferUsage::TRANSFER_SRC | BufferUsage::TRANSFER_DST;
    let filter = MemoryTypeFilter::PREFER_DEVICE | MemoryTypeFilter::HOST_RANDOM_ACCESS;
    let tensor = Buffer::new_slice::<u32>(
        Arc::new(StandardMemoryAllocator::new_default(device.clone())),
        BufferCreateInfo { usage, ..BufferCreateInfo::default() },
        AllocationCreateInfo { memory_type_filter: filter, ..AllocationCreateInfo::default() },
        COUNT as u64,
    )
    .unwrap();
    let allocator = StandardCommandBufferAllocator::new(device.clone(), Default::default());
    let mut commands = AutoCommandBufferBuilder::primary(
        Arc::new(allocator),
        queue.queue_family_index(),
        CommandBufferUsage::OneTimeSubmit,
    )
    .unwrap();
    commands.fill_buffer(tensor.clone(), value.to_bits()).unwrap();
    let work = commands.build().unwrap().execute(queue.clone()).unwrap();
    work.then_signal_fence_and_flush().unwrap().wait(None).unwrap();
    tensor
}

#[test]
fn tensors_of_the_caller_are_reduced_where_they_are() {
    let watch = Watch::new();
    let Some(queue) = device(&watch) else { return };
    let context = VulkanContext::with_queue(queue.clone(), &Options::default()).unwrap();
    let bare = Arithmetic { normal_f32: true, native_f32: true, ..Arithmetic::default() };
    assert_eq!(context.limits().offers, bare, "no feature is on");
    assert_eq!(context.limits().import_align, None);
    let memory = Memory::new(context.clone());
    let mut gpu = Gpu::open(&memory, &unisono_gpu::Options::default()).unwrap();
    let tensors = [tensor(&queue, 1.5), tensor(&queue, 0.25)];
    let adopted = tensors.each_ref().map(|tensor| {
        let buffer = context.adopt(tensor.clone().into_bytes()).unwrap();
        memory.adopt(Arc::new(buffer)).unwrap()
    });
    let sources: Vec<_> = adopted
        .iter()
        .zip(leaf_merges(2))
        .map(|(tensor, merges)| Source {
            mem: tensor.mem(),
            form: Form::Leaf,
            weight: Scalar::one(DType::F32),
            merges,
        })
        .collect();
    let work = Fold {
        dtype: DType::F32,
        op: Some(ReduceOp::Sum),
        count: COUNT,
        sources: &sources,
        dests: &[adopted[0].mem()],
        finish: Finish::Final { ranks: 2 },
    };
    // SAFETY: both tensors stay alive, and nobody else uses them.
    unsafe { gpu.fold(&work, 1) }.unwrap();
    gpu.flush();
    let done = loop {
        if let Some(done) = gpu.poll_done() {
            break done;
        }
        std::thread::yield_now();
    };
    done.result.unwrap();
    let read = |tensor: &Subbuffer<[u32]>, want: f32| {
        tensor.read().unwrap().iter().all(|&bits| bits == want.to_bits())
    };
    assert!(read(&tensors[0], 1.75));
    assert!(read(&tensors[1], 0.25));
}
