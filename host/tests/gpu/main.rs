//! Groups of CPU, Vulkan and OpenCL ranks: nobody can tell from the result who was who. Needs
//! drivers of both APIs (Mesa's lavapipe and PoCL do).
#![cfg(all(feature = "vulkan", feature = "opencl"))]

mod adopted;
mod broken;
mod data;
mod errors;
mod gradients;
mod names;
mod replan;
mod results;
mod senseless;
mod signals;
mod stuck;
