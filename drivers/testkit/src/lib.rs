//! unisono-testkit.
