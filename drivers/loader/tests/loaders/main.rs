//! Loaders against folders that stand for the system: fake devices, which record what is done to
//! them in its order, and fake programs, which record their arguments.

#[path = "../elf/mod.rs"]
mod image;
mod programs;
mod remoteproc;
mod rshim;
mod world;

use unisono_loader::{LOADERS, LoadError, Package, Version, World, loader};
use world::{
    EM_AARCH64, EM_ARM, EM_RISCV, EM_X86_64, Root, boot_stream, elf, elf_for, micro, plan, raw,
};

#[test]
fn what_is_no_loader_is_refused_with_a_list() {
    let error = |to: &str| loader(to).map(drop).expect_err(to).to_string();
    let none = error("jtag");
    assert!(none.starts_with("jtag: no such loader; there are qemu:aarch64, "), "{none}");
    for way in LOADERS {
        assert!(none.contains(way.usage), "{none}");
    }
    for (to, why) in [
        ("qemu", "no such machine"),
        ("qemu:", "no such machine"),
        ("qemu:vax", "no such machine"),
        ("rshim:x", "the number of a device"),
        ("rshim:-1", "the number of a device"),
        ("remoteproc:", "the number of a device"),
        ("probe-rs:", "the name of a chip"),
        ("probe-rs:--erase", "the name of a chip"),
        ("ssh", "is a host"),
        ("ssh:-oProxyCommand=x", "is a host"),
        ("ssh:a b", "is a host"),
        ("ssh:a;b", "is a host"),
    ] {
        let line = error(to);
        assert!(line.starts_with(&format!("{to}: ")) && line.contains(why), "{line}");
    }
}

/// Each says what it wants instead, and that nothing was done.
#[test]
fn what_does_not_suit_a_device_is_refused() {
    let root = Root::new();
    for (to, package, why) in [
        ("rshim", elf(), "boots boot streams (.bfb): wrap it with `mlx-mkbfb`"),
        ("rshim", raw(), "it is raw bytes"),
        ("remoteproc", boot_stream(), "Linux loads ELF files"),
        ("probe-rs", raw(), "says where in the flash its parts belong"),
        ("qemu:aarch64", raw(), "QEMU loads ELF files"),
        ("ssh:dpu", boot_stream(), "it is a BlueField boot stream, and a Linux runs ELF files"),
    ] {
        let error = plan(&root, to, &package).expect_err(to);
        assert!(matches!(error, LoadError::Unfit { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let error = plan(&root, "qemu:aarch64", &elf()).expect_err("another board's");
    let line = "the image: it is for board m4, not for qemu-virt-aarch64";
    assert_eq!(error.to_string(), line);
}

/// Nobody behind these devices would notice that the code is another CPU's.
#[test]
fn an_image_for_another_cpu_is_refused() {
    let root = Root::new();
    for (to, package, why) in [
        ("probe-rs", elf_for("m4", EM_AARCH64, 64), "it is an ELF file for aarch64, and micro"),
        ("probe-rs", elf_for("m4", EM_RISCV, 64), "it is an ELF file for riscv64, and micro"),
        ("probe-rs", elf_for("m4", EM_X86_64, 64), "it is an ELF file for x86_64, and micro"),
        ("remoteproc", elf_for("m4", EM_AARCH64, 64), "for aarch64, and a companion core is"),
        ("remoteproc", elf_for("m4", EM_X86_64, 64), "for x86_64, and a companion core is"),
        (
            "remoteproc",
            elf_for("qemu-virt-riscv64", EM_RISCV, 64),
            "load it with --to qemu:riscv64",
        ),
        ("probe-rs:X", elf_for("qemu-mps2-cortex-m", EM_ARM, 32), "a machine of QEMU; load it"),
    ] {
        let error = plan(&root, to, &package).expect_err(to);
        assert!(matches!(error, LoadError::Unfit { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    for (to, package) in [
        ("probe-rs", micro()),
        ("probe-rs", elf_for("esp32-c3", EM_RISCV, 32)),
        ("remoteproc", micro()),
        ("remoteproc", elf_for("c906l", EM_RISCV, 64)),
    ] {
        plan(&root, to, &package).expect(to);
    }
}

/// What a Linux would not run, or what would end it.
#[test]
fn a_linux_gets_its_own_programs_only() {
    let root = Root::new();
    let packed = |cpu, board: &str, program| {
        let bytes = image::image(cpu, board, program);
        Package::new(bytes, board, Version([0, 1, 0])).expect("packed")
    };
    for (package, why) in [
        (packed(image::AARCH64, "qemu_virt_aarch64", false), "load it with --to qemu:aarch64"),
        (
            packed(image::AARCH64, "qemu_virt_aarch64_udp", true),
            "load it with --to qemu:aarch64-udp",
        ),
        (
            packed(image::RISCV, "my_card", false),
            "it is no program of Linux but an image for a bare machine",
        ),
    ] {
        let error = plan(&root, "ssh:dpu", &package).expect_err(why);
        assert!(matches!(error, LoadError::Unfit { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    for board in ["dpu_linux", "my_card"] {
        plan(&root, "ssh:dpu", &packed(image::AARCH64, board, true)).expect(board);
    }
}

/// On this machine, too, a missing device is named with its path.
#[test]
fn the_real_world_is_asked_by_its_own_paths() {
    let real = World::real();
    assert_eq!(real.path("dev/rshim0/boot").to_str(), Some("/dev/rshim0/boot"));
    assert!(real.program("sh").is_some_and(|path| path.is_absolute()));
    assert_eq!(real.program("no-such-program-xyz"), None);
}
