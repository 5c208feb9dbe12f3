//! unisono-device-cpu.
