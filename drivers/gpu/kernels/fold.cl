/* The OpenCL kernels come here: see src/kernel/mod.rs for how they are called. */
