//! What of a device is used.

use unisono_gpu::Arithmetic;

/// What of a device is used. By default all that it has; less, to try how it goes without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Of what the device has of its own, only this.
    pub offers: Arithmetic,
    /// Import memory of the process where the device shares it.
    pub import: bool,
    /// Allocate memory that host and device share, where there is any.
    pub shared: bool,
    /// Let the device run independent jobs at the same time.
    pub out_of_order: bool,
    /// At most so many work items in a work group.
    pub group_size: u32,
    /// At most so many bytes in a buffer.
    pub buffer_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            offers: Arithmetic {
                native_f32: true,
                normal_f32: true,
                native_f64: true,
                native_i64: true,
                storage_8: true,
                narrow: true,
            },
            import: true,
            shared: true,
            out_of_order: true,
            group_size: u32::MAX,
            buffer_max: u64::MAX,
        }
    }
}
