//! unisono.
