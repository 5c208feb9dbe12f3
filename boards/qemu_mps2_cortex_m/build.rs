//! Hands the linker the memory map and the scripts of the crates that need them.

use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=memory.x");
    // On a host the crate is only looked at (by clippy and the like), not linked.
    if env::var("CARGO_CFG_TARGET_OS")? == "none" {
        let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
        fs::copy("memory.x", out.join("memory.x"))?;
        println!("cargo:rustc-link-search={}", out.display());
        for argument in ["-Tlink.x", "-Tdefmt.x", "--nmagic", "--build-id=sha1"] {
            println!("cargo:rustc-link-arg-bins={argument}");
        }
    }
    Ok(())
}
