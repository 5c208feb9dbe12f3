//! Tells the linker where things go: as on the board without a network card.

fn main() {
    let map = concat!(env!("CARGO_MANIFEST_DIR"), "/../qemu_virt_aarch64/link.ld");
    println!("cargo:rerun-if-changed={map}");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    println!("cargo:rustc-link-arg-bins=-T{map}");
    println!("cargo:rustc-link-arg-bins=-Tdefmt.x");
    println!("cargo:rustc-link-arg-bins=--build-id=sha1");
    println!("cargo:rustc-link-arg-bins=--nmagic");
}
