//! unisono-runtime.
