//! The kernels as OpenCL C.

use super::{Variant, spirv};
use crate::error::GpuError;
use std::fmt::Write;

/// The program's source. The variant is in the build options.
pub const SOURCE: &str = concat!(include_str!("../../kernels/fold.cl"));

impl Variant {
    /// The options to build [`SOURCE`] with.
    ///
    /// # Errors
    /// If the merges make no sense.
    pub fn options(&self) -> Result<String, GpuError> {
        let mut options = String::from("-cl-std=CL1.2");
        for (name, (_, value)) in spirv::NAMES.iter().zip(self.constants()?) {
            // Writing to a string cannot fail.
            let _ = write!(options, " -D{name}={value}u");
        }
        Ok(options)
    }
}
