//! What a developer's machine may be without: other hosts (network namespaces), and launchers.
#![cfg(target_os = "linux")]

mod launchers;
mod namespaces;
#[path = "../processes/ranks.rs"]
mod ranks;

const SECRET: &str = "a secret that only tests know";
