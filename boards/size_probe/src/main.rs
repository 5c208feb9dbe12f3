//! An image that holds all of `unisono-core` and runs nowhere: `cargo xtask size` links it for each
//! bare-metal target and measures it.
//!
//! Each probe is one part of the core behind a C function. Its arguments come from the caller
//! through [`black_box`]: the compiler can neither compute a result beforehand nor drop a branch.
//! A new part of the core gets a probe here and a line in [`_start`].
#![no_std]
#![no_main]

use core::hint::black_box;
use core::panic::PanicInfo;
use heapless::Vec;
use unisono_core::{DType, Kind, Layout, Move, ReduceOp, Route, fold};

/// Entry point that the linker looks for; everything else in the image is reached from here.
#[unsafe(no_mangle)]
pub extern "C" fn _start() -> ! {
    loop {
        let [a, b, c, d] = black_box([0u64; 4]);
        black_box(probe_dtype(a as usize, b as usize));
        black_box(probe_fold(a as u32));
        black_box(probe_layout(a as usize, b, c, d as u16));
        black_box(probe_route(a as u16));
    }
}

/// Element types and operators.
#[unsafe(no_mangle)]
pub extern "C" fn probe_dtype(dtype: usize, op: usize) -> usize {
    let (Some(dtype), Some(op)) = (DType::ALL.get(dtype), ReduceOp::ALL.get(op)) else { return 0 };
    let flags = usize::from(op.supports(*dtype)) + usize::from(op.is_exact(*dtype));
    dtype.size() + dtype.acc().size() + dtype.name().len() + op.name().len() + flags
}

/// Fold programs of the canonical order.
#[unsafe(no_mangle)]
pub extern "C" fn probe_fold(sources: u32) -> bool {
    fold::check_merges(fold::leaf_merges(sources))
}

/// From a call to its chunks.
#[unsafe(no_mangle)]
pub extern "C" fn probe_layout(kind: usize, count: u64, chunk: u64, rank: u16) -> u64 {
    let Some(kind) = Kind::ALL.get(kind) else { return 0 };
    let layout = Layout { kind: *kind, ranks: 4, count, chunk: chunk | 1, root: 0 };
    let mut sum = layout.input_len(rank) ^ layout.output_len(rank);
    for chunk in 0..layout.chunks() {
        let input = layout.input(chunk, rank).unwrap_or(0);
        let output = layout.output(chunk, rank).unwrap_or(0);
        sum = sum.wrapping_add(layout.len(chunk) ^ input ^ output);
    }
    sum
}

/// Building a route in lent storage.
#[unsafe(no_mangle)]
pub extern "C" fn probe_route(rank: u16) -> usize {
    let mut moves = Vec::<Move, 64>::new();
    let mut route = Route::new(&mut moves);
    for peer in 0..rank {
        route.recv(peer, 0);
    }
    route.own(0);
    route.fold();
    route.send(rank);
    route.finish();
    route.store(rank);
    if route.overflowed() { 0 } else { black_box(route.moves()).len() }
}

/// Keeps what a panic carries, as a real handler that prints it would, but prints nothing.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    loop {
        black_box(info);
    }
}
