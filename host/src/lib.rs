//! unisono: all-reduce over mixed devices in one group, with the same bits whatever the devices.
//!
//! ```
//! use unisono::{Group, Sum};
//!
//! # fn main() -> Result<(), unisono::Error> {
//! let mut group = Group::builder().cpus(4).build()?;
//! let results = group.run(|member| {
//!     let mut gradient = vec![member.rank() as f32; 1000];
//!     member.all_reduce(&mut gradient, Sum)?;
//!     Ok::<_, unisono::Error>(gradient[0])
//! })?;
//! assert_eq!(results, [6.0; 4]);
//! # Ok(())
//! # }
//! ```

mod builder;
mod call;
mod calls;
mod datagram;
pub mod device;
mod element;
mod error;
mod failures;
mod group;
mod member;
mod memory;
mod pending;
mod planner;
mod relay;
mod replan;
mod stuck;
mod tensor;
pub mod world;

pub use builder::GroupBuilder;
pub use call::Call;
pub use device::{DeviceSpec, Opened};
pub use element::{Element, F8E4M3, F8E5M2, Reduction, Weight, Weighted};
pub use error::Error;
pub use group::Group;
pub use half::{bf16, f16};
pub use member::Member;
pub use pending::{Pending, Promise, Replanning, Worker};
pub use planner::{Choice, Plan, PlanOptions};
pub use replan::{Replan, Replanned};
pub use tensor::{Buffer, BufferMut, Tensor};
pub use unisono_core::ReduceOp::{Avg, BitAnd, BitOr, BitXor, Max, Min, Prod, Sum};
pub use unisono_core::{DType, Kind, Order, ReduceOp, Scalar, Schedule, schedule};
#[cfg(feature = "opencl")]
pub use unisono_device_opencl as opencl;
#[cfg(feature = "vulkan")]
pub use unisono_device_vulkan as vulkan;
pub use unisono_planner::{
    Pick, Selection, SelectionError, Table, Topology, TopologyError, topology,
};
pub use world::World;
