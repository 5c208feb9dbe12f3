//! What an OpenCL device does in a second, against its own plain copy.
//!
//! ```text
//! cargo bench -p unisono-device-opencl -- [MiB]     device `UNISONO_OPENCL`, spans of so many MiB
//! ```

#[path = "../../gpu/benches/rates/mod.rs"]
mod rates;

use rates::Bench;
use unisono_device_opencl::{OpenCl, Options};
use unisono_gpu::Context;

fn main() {
    let Some(bytes) = rates::span_bytes() else { return };
    let index = std::env::var("UNISONO_OPENCL").map_or(0, |n| n.parse().expect("a device"));
    for (out_of_order, group_size) in [(false, 64), (false, 256), (true, 256)] {
        let options = Options { out_of_order, group_size, ..Options::default() };
        let cl = OpenCl::open(index, &options).unwrap_or_else(|e| panic!("{e}"));
        let order = if out_of_order { "any order" } else { "in order" };
        println!("{}, groups of {group_size}, {order}", cl.card().name);
        let mut bench = Bench::new(&cl, bytes);
        bench.rates("clEnqueueSVMMemcpy or CopyBuffer");
        bench.trips();
    }
}
