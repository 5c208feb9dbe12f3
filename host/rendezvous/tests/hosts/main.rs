//! What a developer's machine may be without: other hosts (network namespaces), and launchers.
#![cfg(target_os = "linux")]

mod launchers;
mod namespaces;
#[allow(dead_code, reason = "shared with tests that use the rest")]
#[path = "../processes/ranks.rs"]
mod ranks;

const SECRET: &str = "a secret that only tests know";
