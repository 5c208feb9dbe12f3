//! Images that run nowhere: `cargo xtask size` links them for each bare-metal target, as firmware
//! is linked, and measures them.
//!
//! | image | what is in it |
//! |---|---|
//! | `machine` | a machine with every schedule, frames, set-up messages and COBS |
//! | `reliable` | and a reliable channel over packets that get lost |
//! | `fold` | and the scalar fold of every type and operator |
//! | `planner` | and the planner: all of `unisono-core` |
//! | `node` | engine, device of scalar folds, and a packet link to one peer: a whole member |
//! | `node_cpu` | the same with the CPU device's kernels |
//! | `serial` | engine, device of scalar folds, links over a serial line: a small board's member |
//!
//! What an image is given comes through [`black_box`](core::hint::black_box): the compiler can
//! neither compute a result beforehand nor drop a branch. State lies in statics, so the image's RAM
//! is that of one member (without tensors, scratch and stack). The node is a real member: the tests
//! here make two of them reduce.
#![cfg_attr(not(test), no_std)]

mod link;
mod node;
mod parts;
mod place;
pub mod serial;

pub use link::{End, PacketLink};
pub use node::Node;
pub use parts::{fold, machine, planner, reliable};
pub use place::Global;
pub use unisono_device_scalar::ScalarDevice;

use core::cell::RefCell;
use core::hint::black_box;
use unisono_core::time::Instant;
use unisono_driver::{Device, HostPtr};

/// Chunks in flight, moves of a route, members.
pub const WINDOW: usize = 2;
/// Most moves of a route.
pub const MOVES: usize = 24;
/// Most members of the group.
pub const MEMBERS: usize = 8;
/// Fragments of a reliable channel under way.
pub const FRAGMENTS: usize = 8;
/// Bytes of a packet.
pub const MTU: usize = 512;

/// The loop of a firmware with a node: packets in, packets out, and now and then a call.
pub fn run<D: Device<Mem = HostPtr>>(
    end: &'static Global<RefCell<End>>,
    node: &'static Global<Node<'static, D>>,
    device: D,
) -> ! {
    let Some(end) = end.put(RefCell::new(End::new(black_box(1), black_box(0), black_box(1))))
    else {
        halt()
    };
    let Some(node) = node.put(Node::new(black_box(0), end, device)) else { halt() };
    let mut packet = [0; MTU];
    loop {
        let now = Instant::from_nanos(black_box(0));
        node.handle_packet(now, black_box(&packet));
        if let Some(config) = parts::config() {
            let memory = [0usize; 3].map(|at| HostPtr::new(black_box(at) as *mut u8));
            // SAFETY: nobody runs this; in a firmware, the addresses of its buffers.
            black_box(unsafe { node.begin(config, memory).is_ok() });
        }
        black_box(node.poll(now));
        black_box(node.result());
        black_box(node.poll_timeout());
        while let Some(len) = node.poll_transmit(now, &mut packet) {
            black_box((len, &packet));
        }
    }
}

/// Stops for good.
pub fn halt() -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Keeps what a panic carries, as a real handler that prints it would, but prints nothing.
#[cfg(not(test))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        black_box(info);
    }
}
