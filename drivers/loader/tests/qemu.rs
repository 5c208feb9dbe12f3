//! Images are loaded into QEMU for real: packed, signed, read again, booted, greeted.

use std::path::PathBuf;
use unisono_loader::{Device, LoadError, Package, Quiet, Version, World, loader};

/// An image that `cargo xtask boards` has built.
fn image(name: &str) -> Vec<u8> {
    let folder = std::env::var_os("UNISONO_BOARDS");
    let folder = folder.expect("UNISONO_BOARDS names a folder of images: run `cargo xtask boards`");
    std::fs::read(PathBuf::from(folder).join(name)).expect("an image")
}

fn pack(name: &str, board: &str) -> Package {
    Package::new(image(name), board, Version([0, 1, 0])).expect("packed")
}

fn load(to: &str, package: &Package) -> Result<Vec<String>, LoadError> {
    let plan = loader(to)?.plan(&World::real(), package)?;
    assert!(matches!(plan.device, Device::Seen(_)), "{}", plan.device);
    plan.run(package, &mut Quiet)
}

const LENT: &str = "; can be a rank with tensors in memory that its host lends";
/// The small board has memory of its own, and no other.
const OWN: &str = "; can be a rank with tensors of 12288 bytes";

/// What each board says of itself is that board's.
#[test]
fn every_board_boots_and_says_who_it_is() {
    for (to, image, board, fpu, role) in [
        ("qemu:aarch64", "qemu_virt_aarch64", "qemu-virt-aarch64", "in hardware", LENT),
        ("qemu:riscv64", "qemu_virt_riscv64", "qemu-virt-riscv64", "in software", LENT),
        ("qemu:aarch64-udp", "qemu_virt_aarch64_udp", "qemu-virt-aarch64", "in hardware", LENT),
        ("qemu:riscv64-udp", "qemu_virt_riscv64_udp", "qemu-virt-riscv64", "in software", LENT),
        ("qemu:cortex-m", "qemu_mps2_cortex_m", "qemu-mps2-cortex-m", "in hardware", OWN),
    ] {
        let packed = pack(image, image);
        assert!(packed.build().is_some_and(|build| build != 0), "{image} has no build id");
        // By way of a file's bytes.
        let bytes = [packed.header(), packed.payload()].concat();
        let package = Package::parse(bytes).expect("as packed");
        let said = load(to, &package).unwrap_or_else(|error| panic!("{to}: {error}"));
        assert!(said[0].starts_with(&format!("{board}: adds ")), "{said:?}");
        assert!(said[0].ends_with(&format!("floating point {fpu}")), "{said:?}");
        assert!(said[1].starts_with("types ") && said[1].contains("f32"), "{said:?}");
        assert!(said[2].starts_with("groups of up to "), "{said:?}");
        assert!(said[2].ends_with(role) && !said[2].contains(" 1 calls"), "{said:?}");
    }
}

/// The name of a file, a header or a command may claim what it wants: the image itself tells.
#[test]
fn images_under_a_wrong_name_are_found_out() {
    for (name, board, has) in [
        ("qemu_virt_riscv64", "qemu-virt-aarch64", "qemu-virt-riscv64"),
        ("dpu_linux", "qemu-virt-aarch64", "dpu-linux"),
    ] {
        let error = Package::new(image(name), board, Version([0, 1, 0])).expect_err("another's");
        assert_eq!(error.to_string(), format!("it is for board {has}, not for {board}"));
    }
    let package = pack("qemu_virt_aarch64", "qemu-virt-aarch64");
    let error = load("qemu:riscv64", &package).expect_err("another board's image").to_string();
    let line = "the image: it is for board qemu-virt-aarch64, not for qemu-virt-riscv64";
    assert_eq!(error, line);
}
