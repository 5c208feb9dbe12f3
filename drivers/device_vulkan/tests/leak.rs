//! Nothing is left behind. A process of its own, so that its memory can be measured.

mod common;

use common::{Watch, finish, pinned, span};
use std::sync::Arc;
use unisono_device_vulkan::{Context, Options, VulkanContext};
use unisono_gpu::Queue;

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Opens, computes, closes.
fn once(context: Arc<VulkanContext>) {
    let mut queue = context.clone().queue().unwrap();
    let (a, from) = pinned(&context, 1 << 16);
    let (b, to) = pinned(&context, 1 << 16);
    from.fill(7);
    // SAFETY: both outlive the batch.
    unsafe { queue.copy(span(&a, 0, 1 << 16), span(&b, 0, 1 << 16)) }.unwrap();
    finish(&mut queue);
    assert_eq!(from, to);
}

#[test]
fn two_hundred_devices_come_and_go() {
    // The validation layer says what has not been destroyed, but keeps memory of its own.
    let watch = Watch::new();
    let Some(context) = watch.open(Options::default()) else { return };
    let index = context.card().index;
    once(context);
    let open = || VulkanContext::open(index, &Options::default()).unwrap();
    for _ in 0..20 {
        once(open());
    }
    let before = resident();
    for _ in 0..200 {
        once(open());
    }
    let more = resident().saturating_sub(before);
    assert!(more < 4 << 20, "200 devices leave {more} bytes behind");
}
