//! What a rank is: the CPU, a GPU through Vulkan or OpenCL, or a board.
//!
//! * `spec`: how devices are named (`cpu`, `vulkan:0`, `opencl:NAME`, `auto`);
//! * `catalog`: which devices there are, and which cards two APIs see;
//! * `any`: one type for all of them, for the engine: no call on the data path is virtual;
//! * `located`: a device together with the memory that other processes see;
//! * `store`: the memory of an open device, which all members on it share;
//! * `dpu`: boards, which have engines of their own;
//! * `rates`: how fast each device folds, for the planner;
//! * `speed`: what a device does by itself.
//!
//! A driver that crashes takes the process with it. The tool tries drivers, and the devices that it
//! will open, in a child process first: `unisono devices -v` says which one it is. A program that
//! has to survive does the same with [`driver_files`], [`rule_out`] and [`rule_out_device`].

pub(crate) mod any;
pub(crate) mod catalog;
pub(crate) mod dpu;
pub(crate) mod located;
pub(crate) mod rates;
pub(crate) mod spec;
mod speed;
pub(crate) mod store;

pub use catalog::{Catalog, Missing, driver_files, driver_library, rule_out, rule_out_device};
pub use dpu::{Dpu, DpuEntry, DpuPlace, DpuRole, DpuSpec, attachable, boards};
pub use spec::{DeviceSpec, Which};
pub use speed::Bench;
pub use store::Opened;
pub use unisono_gpu::{Api, Arithmetic, Card, CardType, GpuError, Pci, try_library};
