//! unisono-sim.
