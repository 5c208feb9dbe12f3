//! unisono-link-span.
