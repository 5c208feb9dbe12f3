//! Copies of memory on AArch64, 64 bytes a step.
//!
//! The compiler's own `memcpy` for bare-metal targets moves a word at a time, because it must not
//! rely on unaligned accesses. Boards here run with their MMU on, and nothing copies device
//! registers, so these may be unaligned. Written in assembly: a copy written in Rust would be
//! compiled into a call of itself.

core::arch::global_asm!(
    ".section .text.memcpy, \"ax\"",
    ".balign 16",
    ".global memcpy",
    ".type memcpy, @function",
    "memcpy:",
    "mov x3, x0",
    "subs x2, x2, #64",
    "b.lo 2f",
    "1: ldp q0, q1, [x1], #32",
    "ldp q2, q3, [x1], #32",
    "stp q0, q1, [x3], #32",
    "stp q2, q3, [x3], #32",
    "subs x2, x2, #64",
    "b.hs 1b",
    // Bits 0 to 5 of the count are still those of what is left.
    "2: tbz x2, #5, 3f",
    "ldp q0, q1, [x1], #32",
    "stp q0, q1, [x3], #32",
    "3: tbz x2, #4, 4f",
    "ldr q0, [x1], #16",
    "str q0, [x3], #16",
    "4: tbz x2, #3, 5f",
    "ldr x4, [x1], #8",
    "str x4, [x3], #8",
    "5: tbz x2, #2, 6f",
    "ldr w4, [x1], #4",
    "str w4, [x3], #4",
    "6: tbz x2, #1, 7f",
    "ldrh w4, [x1], #2",
    "strh w4, [x3], #2",
    "7: tbz x2, #0, 8f",
    "ldrb w4, [x1]",
    "strb w4, [x3]",
    "8: ret",
    ".size memcpy, . - memcpy",
);
