//! What can go wrong with a GPU, with the driver's own words.

use unisono_core::numeric::FoldError;

/// An error of a GPU device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The API's loader, or every driver for it, is missing.
    #[error("{api}: {what}; {help}")]
    Missing {
        /// The API.
        api: &'static str,
        /// What was not found, in the loader's words.
        what: String,
        /// How to get it.
        help: &'static str,
    },
    /// A driver, or the file that names it, breaks the API for all others.
    #[error("{api}: {what}; {help}")]
    Broken {
        /// The API.
        api: &'static str,
        /// Which driver, and what is wrong with it.
        what: String,
        /// What to do.
        help: &'static str,
    },
    /// No device of this name, index, UUID or address.
    #[error("no {api} device {wanted}; there are: {there}")]
    NoDevice {
        /// The API.
        api: &'static str,
        /// What was asked for.
        wanted: String,
        /// What there is.
        there: String,
    },
    /// The process has forked since the device was opened: GPU drivers do not survive that.
    #[error("the process has forked since {0} was opened: open devices after the fork, or exec")]
    Forked(String),
    /// No memory.
    #[error("{device}: no memory for {bytes} bytes: {text}")]
    OutOfMemory {
        /// The device.
        device: String,
        /// How many bytes.
        bytes: u64,
        /// The driver's words.
        text: String,
    },
    /// The compiler refused a kernel.
    #[error("{device}: the kernel for {kernel} does not build: {text}")]
    Build {
        /// The device.
        device: String,
        /// Which.
        kernel: String,
        /// The compiler's log.
        text: String,
    },
    /// The device is gone.
    #[error("{device} is lost: {text}")]
    Lost {
        /// The device.
        device: String,
        /// The driver's words.
        text: String,
    },
    /// Any other call that failed.
    #[error("{device}: {call}: {text}")]
    Driver {
        /// The device.
        device: String,
        /// The call.
        call: &'static str,
        /// The driver's words.
        text: String,
    },
    /// The device gives wrong bits, whatever arithmetic is used.
    #[error("{device} fails its self-test: {text}")]
    SelfTest {
        /// The device.
        device: String,
        /// What differed.
        text: String,
    },
    /// More work than [`unisono_driver::Device::has_room`] allowed.
    #[error("the device has no room for more work")]
    Busy,
    /// More spans than the device takes, or none.
    #[error("a fold takes 1 to {0} sources and 1 to {1} destinations")]
    Spans(usize, usize),
    /// The fold makes no sense.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// Memory that the device cannot reach as it lies there.
    #[error("{device} cannot reach {bytes} bytes at {start:#x}: {text}")]
    Address {
        /// The device.
        device: String,
        /// The address.
        start: usize,
        /// How many bytes.
        bytes: u64,
        /// Why.
        text: &'static str,
    },
}
