//! Kernels on a queue: what this crate adds to them. That all of them give the right bits is shown
//! by `suite.rs`.

mod common;

use common::{Watch, finish, pinned, span};
use std::sync::Arc;
use unisono_core::fold::leaf_merges;
use unisono_core::{DType, Finish, Form, ReduceOp, Scalar, Source, numeric};
use unisono_device_vulkan::{Context, Options, VulkanContext};
use unisono_gpu::{Arithmetic, GpuError, Params, Place, Queue, Variant};
use unisono_testkit::device::Bits;

const SOURCES: usize = 3;
const COUNT: usize = 5000;

/// A sum of three leaves, in integers only.
fn sum(context: &VulkanContext, dtype: DType) -> Variant {
    let merges = leaf_merges(SOURCES as u32);
    Variant {
        dtype,
        op: Some(ReduceOp::Sum),
        partial: false,
        sources: SOURCES as u8,
        dests: 1,
        partials: 0,
        merges: merges.enumerate().map(|(i, merges)| u64::from(merges) << (4 * i)).sum(),
        arithmetic: Arithmetic::default(),
        group_size: context.limits().group_size,
    }
}

/// What the reference gives for it.
fn reference(dtype: DType, inputs: &[Vec<u8>]) -> Vec<u8> {
    let sources: Vec<Source<&[u8]>> = inputs
        .iter()
        .zip(leaf_merges(SOURCES as u32))
        .map(|(input, merges)| Source {
            mem: &**input,
            form: Form::Leaf,
            weight: Scalar::one(dtype),
            merges,
        })
        .collect();
    let mut want = vec![0; inputs[0].len()];
    let finish = Finish::Final { ranks: SOURCES as u32 };
    numeric::fold(dtype, Some(ReduceOp::Sum), finish, &sources, &mut want).unwrap();
    want
}

/// Many kernels in many batches, each on inputs of its own, at spans that start anywhere allowed.
fn sums(context: &Arc<VulkanContext>, dtype: DType) {
    let mut queue = context.clone().queue().unwrap();
    let variant = sum(context, dtype);
    let kernel = queue.compile(&variant).unwrap();
    let (align, size) = (context.limits().span_align, COUNT * dtype.size());
    let (buffer, host) = pinned(context, 4 * (size + 256));
    let (dest, out) = pinned(context, size + 256);
    let mut bits = Bits::new(1);
    for round in 0..20 {
        let inputs: Vec<_> = (0..SOURCES).map(|_| bits.elements(dtype, COUNT)).collect();
        let mut spans = Vec::new();
        let mut params = Params::new(COUNT as u32, SOURCES as u32);
        for (i, input) in inputs.iter().enumerate() {
            let at = (i * (size + 256)) as u64 / align * align + align * (round % 2);
            host[at as usize + 4..][..size].copy_from_slice(input);
            params.sources[i] = 4;
            spans.push(span(&buffer, at, size as u64 + 4));
        }
        spans.push(span(&dest, 0, size as u64));
        let groups = variant.groups(COUNT as u32, context.limits().groups_max);
        // SAFETY: all spans lie in buffers that outlive the queue, and overlap no others.
        unsafe { queue.dispatch(&kernel, &params, &spans, groups) }.unwrap();
        finish(&mut queue);
        assert!(out[..size] == reference(dtype, &inputs), "{dtype}, round {round}");
    }
}

#[test]
fn kernels_run_with_fences_and_narrow_limits() {
    let small = Options { group_size: 8, groups_max: 9, ..Options::default() };
    for options in [
        Options::default(),
        Options { timeline: false, ..Options::default() },
        Options { storage_8: false, int64: false, float64: false, ..small },
    ] {
        let watch = Watch::new();
        let Some(context) = watch.open(options) else { return };
        for dtype in [DType::F32, DType::F16, DType::I8, DType::F64, DType::I64] {
            sums(&context, dtype);
        }
    }
}

#[test]
fn a_batch_sees_what_the_last_one_wrote() {
    let watch = Watch::new();
    let Some(context) = watch.open(Options::default()) else { return };
    let mut queue = context.clone().queue().unwrap();
    let variant = sum(&context, DType::U32);
    let kernel = queue.compile(&variant).unwrap();
    let size = 4 * COUNT as u64;
    let device = Arc::new(context.alloc(size, Place::Device).unwrap());
    let (own, host) = pinned(&context, 4 * COUNT);
    host.fill(0);
    host[..4].copy_from_slice(&1u32.to_le_bytes());
    // SAFETY: the buffers outlive the queue.
    unsafe { queue.copy(span(&own, 0, size), span(&device, 0, size)) }.unwrap();
    let groups = variant.groups(COUNT as u32, context.limits().groups_max);
    for _ in 0..30 {
        while queue.submit().is_ok() && !queue.has_room(1) {
            queue.poll().unwrap();
        }
        let all = || span(&device, 0, size);
        // Three times itself, in place.
        let spans = [all(), all(), all(), all()];
        let params = Params::new(COUNT as u32, 1);
        // SAFETY: as above.
        unsafe { queue.dispatch(&kernel, &params, &spans, groups) }.unwrap();
    }
    finish(&mut queue);
    // SAFETY: as above.
    unsafe { queue.copy(span(&device, 0, size), span(&own, 0, size)) }.unwrap();
    finish(&mut queue);
    assert_eq!(host[..4], 3u32.wrapping_pow(30).to_le_bytes());
    assert!(host[4..].iter().all(|&byte| byte == 0));
}

#[test]
fn kernels_of_a_device_are_compiled_once() {
    let watch = Watch::new();
    let Some(context) = watch.open(Options::default()) else { return };
    let variant = sum(&context, DType::F32);
    let first = context.clone().queue().unwrap().compile(&variant).unwrap();
    let second = context.clone().queue().unwrap().compile(&variant).unwrap();
    assert_eq!(first, second);
}

#[test]
fn features_that_are_off_are_not_compiled_for() {
    let watch = Watch::new();
    let off = Options { float64: false, int64: false, storage_8: false, ..Options::default() };
    let Some(context) = watch.open(off) else { return };
    let mut queue = context.clone().queue().unwrap();
    let all = Arithmetic {
        normal_f32: true,
        native_f32: true,
        native_f64: true,
        native_i64: true,
        storage_8: true,
        narrow: false,
    };
    for (dtype, needs) in [
        (DType::F64, "shaderFloat64"),
        (DType::I64, "shaderInt64"),
        (DType::U8, "storageBuffer8BitAccess"),
    ] {
        let variant = Variant { arithmetic: all, ..sum(&context, dtype) };
        let error = queue.compile(&variant).unwrap_err();
        assert!(matches!(error, GpuError::Build { .. }), "{error}");
        assert!(error.to_string().contains(needs), "{error}");
    }
}
