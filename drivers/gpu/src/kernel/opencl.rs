//! The kernels as OpenCL C.

use super::{Variant, spirv};
use crate::error::GpuError;
use std::fmt::Write;

/// The program's source. The variant is in the build options.
pub const SOURCE: &str = concat!(
    include_str!("../../kernels/lang_cl.h"),
    include_str!("../../kernels/spans_cl.h"),
    include_str!("../../kernels/codes.h"),
    include_str!("../../kernels/word.h"),
    include_str!("../../kernels/f32.h"),
    include_str!("../../kernels/f64.h"),
    include_str!("../../kernels/small.h"),
    include_str!("../../kernels/int.h"),
    include_str!("../../kernels/long.h"),
    include_str!("../../kernels/element.h"),
    include_str!("../../kernels/fold.h"),
);

impl Variant {
    /// The options to build [`SOURCE`] with.
    ///
    /// # Errors
    /// If there are too many spans, or the merges make no sense.
    pub fn options(&self) -> Result<String, GpuError> {
        let mut options = String::from("-cl-std=CL1.2 -w");
        for (name, (_, value)) in spirv::NAMES.iter().zip(self.constants()?) {
            // Writing to a string cannot fail.
            let _ = write!(options, " -D{name}={value}u");
        }
        Ok(options)
    }
}
