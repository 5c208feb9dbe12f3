//! Exceptions: there are none that the program could go on after.

use aarch64_rt::{ExceptionHandlers, exception_handlers};

/// Every handler is the default one, which panics.
struct Fatal;

impl ExceptionHandlers for Fatal {}

exception_handlers!(Fatal);
