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

/// What each board says of itself is that board's.
#[test]
fn every_board_boots_and_says_who_it_is() {
    for (to, image, board, fpu) in [
        ("qemu:aarch64", "qemu_virt_aarch64", "qemu-virt-aarch64", "in hardware"),
        ("qemu:riscv64", "qemu_virt_riscv64", "qemu-virt-riscv64", "in software"),
        ("qemu:cortex-m", "qemu_mps2_cortex_m", "qemu-mps2-cortex-m", "in hardware"),
    ] {
        let packed = pack(image, board);
        assert!(packed.build().is_some_and(|build| build != 0), "{image} has no build id");
        // By way of a file's bytes.
        let bytes = [packed.header(), packed.payload()].concat();
        let package = Package::parse(bytes).expect("as packed");
        let said = load(to, &package).unwrap_or_else(|error| panic!("{to}: {error}"));
        assert!(said[0].starts_with(&format!("{board}: adds ")), "{said:?}");
        assert!(said[0].ends_with(&format!("floating point {fpu}")), "{said:?}");
        assert!(said[1].starts_with("types ") && said[1].contains("f32"), "{said:?}");
        assert!(said[2].starts_with("groups of up to "), "{said:?}");
    }
}

/// The header may claim what it wants: the machine, or the board itself, tells.
#[test]
fn images_under_a_wrong_name_are_found_out() {
    let error = load("qemu:aarch64", &pack("qemu_virt_riscv64", "qemu-virt-aarch64"));
    let error = error.expect_err("another machine's image").to_string();
    let start = "qemu:aarch64: step 2 of 2 failed (start qemu-aarch64 with IMAGE and greet it): \
                 board qemu-aarch64: ";
    assert!(error.starts_with(start), "{error}");
    assert!(error.contains("is no image for it: built for ELF machine 243"), "{error}");
    assert!(error.ends_with("; now nothing is left: QEMU's machines keep nothing"), "{error}");
    let error = load("qemu:riscv64", &pack("qemu_virt_aarch64", "qemu-virt-aarch64"));
    let error = error.expect_err("another board's image").to_string();
    let line = "the image: it is for board qemu-virt-aarch64, not for qemu-virt-riscv64";
    assert_eq!(error, line);
}
